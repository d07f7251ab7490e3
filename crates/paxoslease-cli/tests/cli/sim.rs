//! `sim` for programs. What people see is a transcript.

use serde_json::Value;

use crate::support::{outcome, paxoslease};

/// The exit code, and the last line of stdout.
fn sim(args: &[&str]) -> (i32, Value) {
    let (code, stdout, _) = outcome(paxoslease(&[&["sim"], args].concat()));
    let line = stdout.lines().last().expect("a line");
    (code, serde_json::from_str(line).expect("JSON"))
}

#[test]
fn the_last_line_of_json_has_the_pinned_fields() {
    let (code, summary) = sim(&["--runs", "5", "--nodes", "3", "--json"]);
    assert_eq!((code, &summary["runs"], &summary["violations"]), (0, &5.into(), &0.into()));
    assert!(summary["events"].as_u64() > Some(1000), "{summary}");
    assert!(summary["acquires"].as_u64() > Some(0), "{summary}");
    let hash = summary["trace_hash"].as_str().expect("a string");
    assert_eq!(hash.len(), 16);
    assert!(u64::from_str_radix(hash, 16).is_ok());
}

#[test]
fn the_replay_command_reproduces_the_trace() {
    let (code, summary) =
        sim(&["--algorithm", "paper", "--faults", "lossy", "--runs", "30", "--json"]);
    assert_eq!(code, 3, "{summary}");
    let broken = &summary["broken"];
    let replay = broken["replay"].as_str().expect("a command");
    let again: Vec<&str> = replay.split(' ').skip(2).chain(["--json"]).collect();
    let (code, replayed) = sim(&again);
    assert_eq!(code, 3);
    assert_eq!(replayed["trace_hash"], broken["trace_hash"]);
    assert_eq!(replayed["broken"]["text"], broken["text"]);
}
