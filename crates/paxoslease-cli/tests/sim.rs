//! `sim` with the real binary: exit codes, stdout and files.

use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use assert_cmd::Command;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_paxoslease");

fn paxoslease(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args);
    command
}

/// Exit code, stdout, stderr.
fn outcome(args: &[&str]) -> (i32, String, String) {
    let output = paxoslease(args).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// The last line of stdout.
fn json(args: &[&str]) -> (i32, Value) {
    let (code, stdout, _) = outcome(args);
    let line = stdout.lines().last().expect("a line");
    (code, serde_json::from_str(line).expect("JSON"))
}

/// A path of this test, where nothing exists.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn without_arguments_it_prints_what_to_try() {
    let (code, stdout, _) = outcome(&[]);
    assert_eq!(code, 0);
    assert!(stdout.contains("What to try:") && stdout.contains("paxoslease sim"), "{stdout}");
}

#[test]
fn help_names_every_option_of_sim() {
    let (code, stdout, _) = outcome(&["sim", "--help"]);
    assert_eq!(code, 0);
    for option in [
        "--seed",
        "--runs",
        "--nodes",
        "--clients",
        "--algorithm",
        "--faults",
        "--stack",
        "--scenario",
        "--json",
        "--diagram",
    ] {
        assert!(stdout.contains(option), "no {option} in {stdout}");
    }
}

#[test]
fn a_swarm_of_worlds_keeps_every_invariant() {
    let (code, stdout, _) = outcome(&["sim", "--runs", "20"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("all held in 20 runs"), "{stdout}");
}

#[test]
fn the_last_line_of_json_has_the_pinned_fields() {
    let (code, summary) = json(&["sim", "--runs", "5", "--nodes", "3", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(summary["runs"], 5);
    assert_eq!(summary["violations"], 0);
    assert!(summary["events"].as_u64() > Some(1000), "{summary}");
    assert!(summary["acquires"].as_u64() > Some(0), "{summary}");
    let hash = summary["trace_hash"].as_str().expect("a string");
    assert_eq!(hash.len(), 16);
    assert!(u64::from_str_radix(hash, 16).is_ok());
}

#[test]
fn the_same_options_give_the_same_output() {
    let args = ["sim", "--runs", "12", "--faults", "hostile", "--seed", "77"];
    assert_eq!(outcome(&args).1, outcome(&args).1);
}

#[test]
fn a_broken_invariant_exits_3_and_is_explained() {
    let args = ["sim", "--scenario", "late-propose-after-restart", "--algorithm", "paper"];
    let (code, stdout, _) = outcome(&args);
    assert_eq!(code, 3);
    assert!(stdout.contains("OneHolder: client 3 holds"), "{stdout}");
    assert!(stdout.contains("while client 2 holds"), "{stdout}");
    assert!(stdout.contains("arrived 3 -> 2  Propose"), "the trace around it: {stdout}");
    assert!(stdout.contains(&format!("paxoslease {}", args.join(" "))), "{stdout}");
}

#[test]
fn the_same_schedule_is_safe_with_the_default_algorithm() {
    let (code, summary) = json(&["sim", "--scenario", "late-propose-after-restart", "--json"]);
    assert_eq!((code, &summary["violations"]), (0, &Value::from(0)));
}

#[test]
fn the_replay_command_reproduces_the_trace() {
    let args = ["sim", "--algorithm", "paper", "--faults", "lossy", "--runs", "30", "--json"];
    let (code, summary) = json(&args);
    assert_eq!(code, 3, "{summary}");
    let broken = &summary["broken"];
    let replay = broken["replay"].as_str().expect("a command");
    let mut again: Vec<&str> = replay.split(' ').skip(1).collect();
    again.push("--json");
    let (code, replayed) = json(&again);
    assert_eq!(code, 3);
    assert_eq!(replayed["trace_hash"], broken["trace_hash"]);
    assert_eq!(replayed["broken"]["text"], broken["text"]);
}

#[test]
fn scenarios_are_listed_one_per_line() {
    let (code, stdout, _) = outcome(&["sim", "--scenario", "list"]);
    assert_eq!(code, 0);
    for name in [
        "late-propose-after-restart",
        "promise-not-raised",
        "shorter-renewal",
        "duplicate-replies",
        "late-third-reply",
        "stale-release",
        "snapshot-in-quarantine",
        "split-vote",
        "fence-after-restart",
    ] {
        assert!(stdout.lines().any(|line| line.starts_with(name)), "no {name} in {stdout}");
    }
    let (code, listed) = json(&["sim", "--scenario", "list", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(listed.as_array().map(Vec::len), Some(stdout.lines().count()));
}

#[test]
fn bad_usage_exits_2_and_says_why() {
    for (args, reason) in [
        (&["sim", "--nodes", "10"][..], "10 is not in 1..=9"),
        (&["sim", "--nodes", "0"], "0 is not in 1..=9"),
        (&["sim", "--runs", "0"], "0 is not in 1..="),
        (&["sim", "--clients", "0"], "0 is not in 1..=1000"),
        (&["sim", "--scenario", "split-vot"], "did you mean `split-vote`?"),
        (&["sim", "--scenario", "split-vote", "--runs", "5"], "cannot be used with"),
        (&["sim", "--scenario", "list", "--diagram", "x.svg"], "draws nothing"),
        (&["sim", "--faults", "rude"], "choose from: none, lossy, "),
        (&["sim", "--algorithm", "raft"], "possible values: paxoslease, paper, naive"),
        (&["simulate"], "unrecognized subcommand"),
    ] {
        let (code, stdout, stderr) = outcome(args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
        assert_eq!(stdout, "", "{args:?}");
    }
}

#[test]
fn a_diagram_of_a_schedule_is_written() {
    let path = scratch("schedule.svg");
    let file = path.to_str().expect("UTF-8");
    let args = ["sim", "--scenario", "promise-not-raised", "--algorithm", "paper"];
    let (code, ..) = outcome(&[&args[..], &["--diagram", file]].concat());
    assert_eq!(code, 3);
    let svg = std::fs::read_to_string(&path).expect("a file");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("TWO HOLDERS"));
}

#[test]
fn a_diagram_of_a_seed_is_written() {
    let path = scratch("seed.svg");
    let file = path.to_str().expect("UTF-8");
    let (code, ..) = outcome(&["sim", "--seed", "5", "--runs", "2", "--diagram", file]);
    assert_eq!(code, 0);
    let svg = std::fs::read_to_string(&path).expect("a file");
    assert!(svg.contains("seed 5"), "the first, since none broke");
}

#[test]
fn a_diagram_that_cannot_be_written_is_a_clear_error() {
    let path = scratch("no-such-folder").join("x.svg");
    let file = path.to_str().expect("UTF-8");
    let (code, stdout, stderr) = outcome(&["sim", "--runs", "1", "--diagram", file]);
    assert_eq!(code, 1);
    assert!(stderr.contains(&format!("cannot write the diagram to {file}")), "{stderr}");
    assert_eq!(stdout, "");
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let mut child = Process::new(BINARY)
        .args(["sim", "--scenario", "stale-release", "--algorithm", "paper"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn completions_and_the_manual_are_printed() {
    let (code, script, _) = outcome(&["completions", "bash"]);
    assert_eq!(code, 0);
    assert!(script.contains("_paxoslease"));
    let (code, page, _) = outcome(&["man"]);
    assert_eq!(code, 0);
    assert!(page.contains(".TH paxoslease ") && page.contains("\\-\\-diagram"), "{page}");
}

#[test]
fn the_whole_stack_runs_from_a_seed_and_is_drawn() {
    let file = scratch("stack.svg");
    let path = file.to_str().expect("UTF-8");
    let args = ["sim", "--stack", "--seed", "3", "--runs", "1", "--json", "--diagram", path];
    let (code, summary) = json(&args);
    assert_eq!((code, &summary["stack"], &summary["violations"]), (0, &true.into(), &0.into()));
    assert!(summary["acquires"].as_u64().is_some_and(|count| count > 20), "{summary}");
    let drawn = std::fs::read_to_string(&file).expect("a diagram");
    assert!(drawn.contains("PaxosLease, the whole stack") && drawn.contains("stores"), "{drawn}");
    assert_eq!(json(&args), (code, summary), "the same seed is the same run");
}
