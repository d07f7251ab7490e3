//! `get`, `list` and `watch`.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cell::Cell;

#[test]
fn get_shows_a_holder_to_people_and_programs() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "x", "--holder", "tab\there\u{1b}[2J"]);
    let fence = fence.trim();
    let line = cell.say(&["get", "x"]);
    assert!(line.starts_with(&format!("x\ttab\\there\\u{{1b}}[2J\t{fence}\t1")), "{line:?}");
    let seen = cell.json(&["get", "x", "--json"]);
    assert_eq!((&seen["name"], &seen["fence"]), (&json!("x"), &json!(fence)));
    assert_eq!(seen["holder"], "tab\there\u{1b}[2J");
    assert!(seen["ttl_ms"].as_u64().is_some_and(|left| left <= 15_000), "{seen}");
    for options in [&["get", "nobody's"][..], &["get", "--json", "nobody's"]] {
        let (code, stdout, stderr) = cell.run(options);
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        assert_eq!(stderr, "error: nobody holds \"nobody's\"\n");
    }
}

#[test]
fn a_list_has_every_lease_under_its_prefix() {
    let cell = Cell::start();
    assert_eq!(cell.say(&["list"]), "");
    for name in ["a/1", "a/2", "b/1"] {
        cell.say(&["acquire", name, "--holder", "me"]);
    }
    let names = |text: String| {
        let name = |line: &str| line.split('\t').next().expect("a column").to_owned();
        let mut names: Vec<String> = text.lines().map(name).collect();
        names.sort();
        names
    };
    assert_eq!(names(cell.say(&["list"])), ["a/1", "a/2", "b/1"]);
    assert_eq!(names(cell.say(&["list", "a/"])), ["a/1", "a/2"]);
    assert_eq!(names(cell.say(&["list", "c"])), [""; 0]);
    let lines = cell.say(&["list", "b", "--json"]);
    let seen: Value = serde_json::from_str(&lines).expect("one line of JSON");
    assert_eq!((&seen["name"], &seen["holder"]), (&json!("b/1"), &json!("me")));
    assert!(seen["fence"].is_string() && seen["ttl_ms"].is_u64(), "{seen}");
}

#[test]
fn a_watch_prints_grants_and_releases() {
    let cell = Cell::start();
    let people = cell.start_command(&["watch", "w/"]);
    people.stderr.until(|line| line.starts_with("watching at "));
    let programs = cell.start_command(&["watch", "--json"]);
    programs.stdout.until(|line| line.contains("\"connected\""));
    let fence = cell.say(&["acquire", "w/x", "--holder", "me"]);
    let fence = fence.trim();
    cell.say(&["release", "w/x", "--fence", fence]);
    let lines = people.stdout.until(|line| line.starts_with("freed    w/x"));
    assert!(lines[0].starts_with(&format!("held     w/x  fence {fence}  ")), "{lines:?}");
    assert!(lines[0].ends_with("  me"), "{lines:?}");
    let lines = programs.stdout.until(|line| line.contains("\"freed\""));
    let held: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!((&held["event"], &held["fence"]), (&json!("held"), &json!(fence)));
    assert_eq!((&held["name"], &held["holder"]), (&json!("w/x"), &json!("me")));
    for process in [people, programs] {
        process.signal(Signal::INT);
        assert_eq!(process.end(), Some(0));
    }
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let cell = Cell::start();
    let mut command = cell.command(&["watch", "--json"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
    drop(watch.stdout.take());
    // Each change is written, so `watch` notices after some of them.
    while watch.try_wait().expect("it is ours").is_none() {
        let fence = cell.say(&["acquire", "x"]);
        cell.say(&["release", "x", "--fence", fence.trim()]);
    }
    assert_eq!(watch.wait().expect("it has ended").code(), Some(0));
}
