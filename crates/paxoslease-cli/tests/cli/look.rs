//! Commands that look at a cell while others use it: `watch`, `status` and a waiting `acquire`.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Cell, free_port};

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
        assert_eq!(process.end_by(Signal::INT), Some(0));
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

#[test]
fn a_name_is_explained() {
    let cell = Cell::start();
    let text = cell.say(&["status", "x"]);
    assert!(text.ends_with("nobody holds \"x\": it can be acquired\n"), "{text}");
    let fence = cell.say(&["acquire", "x", "--holder", "bob"]);
    let fence = fence.trim();
    let waiter = cell.start_command(&["lock", "x", "--", "true"]);
    waiter.stderr.until(|line| line.starts_with("waiting: "));
    // The waiter has printed that it waits; a moment later the node knows too.
    let waits = format!("1 waits at node 1 for \"x\": held by \"bob\" (fence {fence})\n");
    let text = loop {
        let text = cell.say(&["status", "x"]);
        if text.contains(" waits at node ") {
            break text;
        }
    };
    assert!(text.contains(&waits), "{text}");
    let held = format!("\"x\" is held by \"bob\" (fence {fence}) for 1");
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with(&held) && last.ends_with("; 1 waits for it"), "{text}");
    let all = cell.json(&["status", "x", "--json"]);
    assert_eq!((&all["name"], &all["lease"]["fence"]), (&json!("x"), &json!(fence)));
}

#[test]
fn without_a_majority_every_command_exits_69_and_says_why() {
    let cell = Cell::with(free_port(3), &["--processes"]);
    let fence = cell.say(&["acquire", "y"]);
    let other_fence = cell.say(&["acquire", "z"]);
    cell.kill(2);
    cell.say(&["renew", "y", "--fence", fence.trim()]);
    cell.kill(3);
    let begin = "error: nothing can be acquired now: 1 of 3 members vote, 2 needed; node 2: down";
    let (text, stderr) = loop {
        let (code, stdout, stderr) = cell.run(&["status", "x"]);
        // It takes a moment until node 1 knows.
        if code != 0 {
            assert_eq!(code, 69, "{stderr}");
        }
        if stderr.starts_with(begin) {
            break (stdout, stderr);
        }
    };
    for endpoint in &cell.endpoints[1..] {
        assert!(text.contains(&format!("?\t{endpoint}\tno answer\t")), "{text}");
        assert!(text.contains(&format!("\n{endpoint} does not answer: ")), "{text}");
    }
    assert!(stderr.contains("; node 3: down"), "{stderr}");
    assert!(text.contains(&format!("\n3\t{}\tdown\t", cell.port(3, "peers"))), "{text}");
    let (code, stdout, _) = cell.run(&["status", "--json"]);
    let all: Value = serde_json::from_str(&stdout).expect("a line of JSON");
    assert_eq!((code, &all["ready"]), (69, &json!(false)));
    assert!(all["nodes"][1]["error"].is_string(), "{all}");
    let commands = [
        &["acquire", "x"][..],
        &["acquire", "--no-wait", "x"],
        &["lock", "x", "--", "echo", "no"],
        &["elect", "x"],
        &["renew", "y", "--fence", fence.trim()],
        &["release", "z", "--fence", other_fence.trim()],
        &["get", "x"],
    ];
    // In parallel: each command waits for its request timeout.
    let started = commands.map(|args| (args, cell.start_command(args)));
    for (args, process) in started {
        assert_eq!(process.stdout.rest(), [""; 0], "{args:?}");
        let lines = process.stderr.rest();
        assert!(lines.len() == 1 && lines[0].starts_with("error: "), "{args:?}: {lines:?}");
        assert_eq!(process.end(), Some(69), "{args:?}: {lines:?}");
    }
}

#[test]
fn a_waiter_shows_the_holder_and_gets_the_released_lease() {
    let cell = Cell::start();
    let fence = cell.say(&["acquire", "x", "--holder", "bob"]);
    let waiter = cell.start_command(&["acquire", "x", "--json"]);
    let line = waiter.stderr.until(|line| line.starts_with("waiting: "));
    assert!(line.concat().contains("\"x\" is held by \"bob\""), "{line:?}");
    cell.say(&["release", "x", "--fence", fence.trim()]);
    let grant: Value = waiter.stdout.json();
    assert!(grant["fence"].as_str().expect("text").parse::<u64>().is_ok(), "{grant}");
    assert_eq!(waiter.end(), Some(0));
}
