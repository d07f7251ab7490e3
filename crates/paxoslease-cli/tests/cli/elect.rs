//! Elections: one candidate leads, the next takes over, observers see it.

use rustix::process::Signal;

use crate::support::{Cell, WatchedProcess};

#[test]
fn a_stopped_leader_hands_over_at_once() {
    let cell = Cell::start();
    let first = cell.start_command(&["elect", "e", "--holder", "one"]);
    let line = first.stdout.line();
    assert!(line.starts_with("e  fence ") && line.ends_with("  one"), "{line}");
    let second = cell.start_command(&["elect", "e", "--holder", "two", "--json"]);
    second.stderr.until(|line| line.contains("is held by \"one\""));
    assert_eq!(first.end_by(Signal::TERM), Some(0));
    let elected = second.stdout.json();
    assert_eq!((&elected["name"], &elected["holder"]), (&"e".into(), &"two".into()));
    assert!(elected["fence"].is_string(), "{elected}");
    assert_eq!(second.end_by(Signal::INT), Some(0));
    assert_eq!(cell.run(&["get", "e"]).0, 1, "nobody leads");
}

#[test]
fn a_stopped_candidate_withdraws() {
    let cell = Cell::start();
    cell.say(&["acquire", "e", "--holder", "one"]);
    let candidate = cell.start_command(&["elect", "e"]);
    candidate.stderr.until(|line| line.starts_with("waiting: "));
    assert_eq!(candidate.end_by(Signal::TERM), Some(0));
}

#[test]
fn observers_see_every_leader() {
    let cell = Cell::start();
    let first = cell.start_command(&["elect", "e", "--holder", "one"]);
    first.stdout.line();
    let onlooker = cell.start_command(&["elect", "--listen", "e"]);
    onlooker.stdout.until(|line| line.ends_with("  one"));
    let second = cell.start_command(&["elect", "e", "--holder", "two"]);
    second.stderr.until(|line| line.starts_with("waiting: "));
    first.signal(Signal::TERM);
    onlooker.stdout.until(|line| line.ends_with("  two"));
    assert_eq!(onlooker.end_by(Signal::INT), Some(0));
}

#[test]
fn a_command_runs_only_while_its_candidate_leads() {
    let cell = Cell::start();
    let script = "echo $PAXOSLEASE_NAME $$; exec sleep 600";
    let leader = cell.start_command(&["elect", "e", "--", "sh", "-c", script]);
    leader.stdout.until(|line| line.starts_with("e  fence "));
    let line = leader.stdout.until(|line| line.starts_with("e ")).concat();
    let child = WatchedProcess::new(line.trim_start_matches("e "));
    leader.signal(Signal::TERM);
    child.wait();
    assert_eq!(leader.end(), Some(128 + 15));
    assert_eq!(cell.run(&["elect", "e", "--", "sh", "-c", "exit 5"]).0, 5);
}

#[test]
fn a_leadership_that_is_lost_exits_75() {
    let cell = Cell::start();
    let leader = cell.start_command(&["elect", "e", "--ttl", "2s"]);
    leader.stdout.line();
    cell.kill_all();
    let lines = leader.stderr.until(|line| line.starts_with("error: "));
    let last = lines.last().expect("a line");
    assert!(last.starts_with("error: \"e\" (fence ") && last.contains("is lost"), "{lines:?}");
    assert_eq!(leader.end(), Some(75));
}
