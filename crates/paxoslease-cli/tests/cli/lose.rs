//! `lock` when the lease is lost: the command is ended in time, in the requested way.

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cell, Gate, Process, WatchedProcess};

/// Starts a command under a lease of two seconds; the command prints its id.
fn lock(cell: &Cell, options: &[&str], script: &str) -> (Process, WatchedProcess) {
    let args = [&["lock", "x", "--ttl", "2s"], options, &["--", "sh", "-c", script]].concat();
    let lock = cell.start_command(&args);
    let child = WatchedProcess::printed_by(&lock);
    (lock, child)
}

/// The id of the watchdog, which the command prints as its second line.
fn watchdog(lock: &Process) -> Pid {
    let line = lock.stdout.line();
    Pid::from_raw(line.parse().expect("a pid")).expect("a pid")
}

/// The command ends, and `lock` exits with 75 for this reason.
#[track_caller]
fn has_lost(lock: Process, child: &WatchedProcess, reason: &str) {
    child.wait();
    let line = lock.stderr.until(|line| line.starts_with("error: ")).concat();
    assert!(line.contains(reason), "{line}");
    assert_eq!(lock.end(), Some(75));
}

#[test]
fn a_command_may_clean_up_when_its_lease_cannot_be_renewed() {
    let cell = Cell::start();
    let script = "trap 'echo cleaning up; exit 0' TERM; echo $$; while :; do sleep 600; done";
    let (lock, child) = lock(&cell, &[], script);
    cell.kill_all();
    lock.stdout.until(|line| line == "cleaning up");
    child.wait();
    let line = lock.stderr.until(|line| line.starts_with("error: ")).concat();
    assert!(line.contains("\"x\" (fence ") && line.contains("the command was ended"), "{line}");
    assert_eq!(lock.end(), Some(75), "whatever the command's own exit code");
}

#[test]
fn a_stubborn_command_is_killed_with_all_its_children() {
    let cell = Cell::start();
    let script = "trap '' TERM; sleep 600 & echo $!; wait";
    let (lock, grandchild) = lock(&cell, &["--grace", "100ms"], script);
    cell.kill_all();
    grandchild.wait();
    assert_eq!(lock.end(), Some(75));
}

#[test]
fn a_process_that_leaves_the_group_is_ended_too() {
    let cell = Cell::start();
    for (options, stray) in [
        (&[][..], "setsid sh -c 'echo $$; exec sleep 600' & wait"),
        (&[], "timeout 600 sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done'"),
        (
            &["--on-lost", "kill"],
            "setsid sh -c 'setsid sh -c \"echo \\$\\$; sleep 600\"; :' & wait",
        ),
    ] {
        let args = [&["lock", "x", "--ttl", "2s"], options, &["--", "sh", "-c", stray]].concat();
        let lock = cell.start_command(&args);
        let stray = WatchedProcess::printed_by(&lock);
        let seen = cell.json(&["get", "x", "--json"]);
        cell.say(&["release", "x", "--fence", seen["fence"].as_str().expect("text")]);
        assert_eq!(lock.end(), Some(75));
        assert!(stray.has_ended(), "{args:?}");
    }
}

#[test]
fn kill_sends_no_sigterm() {
    let cell = Cell::start();
    let script = "trap 'echo asked' TERM; echo $$; while :; do sleep 600; done";
    let (lock, child) = lock(&cell, &["--on-lost", "kill"], script);
    cell.kill_all();
    child.wait();
    assert_eq!(lock.stdout.rest(), [""; 0]);
    assert_eq!(lock.end(), Some(75));
}

#[test]
fn ignore_lets_the_command_continue_with_a_warning() {
    let cell = Cell::start();
    let gate = Gate::new("ignore");
    let script = format!("echo $$; read line < {}; exit 4", gate.path());
    let (lock, child) = lock(&cell, &["--on-lost", "ignore"], &script);
    cell.kill_all();
    lock.stderr.until(|line| line.starts_with("warning: \"x\" (fence ") && line.contains("lost"));
    assert!(!child.has_ended());
    gate.open();
    assert_eq!(lock.end(), Some(4));
}

#[test]
fn a_release_by_another_client_ends_the_command_at_once() {
    let cell = Cell::start();
    let script = "echo $$; exec sleep 600";
    let args = ["lock", "x", "--ttl", "20s", "--", "sh", "-c", script];
    let lock = cell.start_command(&args);
    let child = WatchedProcess::printed_by(&lock);
    let seen = cell.json(&["get", "x", "--json"]);
    cell.say(&["release", "x", "--fence", seen["fence"].as_str().expect("text")]);
    has_lost(lock, &child, "is not held any more");
}

#[test]
fn a_stopped_watchdog_does_not_save_the_command() {
    let cell = Cell::start();
    let script = "trap '' TERM; echo $$; echo $PPID; while :; do sleep 600; done";
    for is_given_back in [true, false] {
        let (lock, child) = lock(&cell, &["--grace", "100ms"], script);
        let watchdog = watchdog(&lock);
        let seen = cell.json(&["get", "x", "--json"]);
        kill_process(watchdog, Signal::STOP).expect("it runs");
        if is_given_back {
            cell.say(&["release", "x", "--fence", seen["fence"].as_str().expect("text")]);
        } else {
            cell.kill_all();
        }
        has_lost(lock, &child, "the command was ended");
    }
}

#[test]
fn a_command_does_not_outlive_both_its_watchdog_and_its_lock() {
    let cell = Cell::start();
    let (lock, child) = lock(&cell, &[], "echo $$; echo $PPID; exec sleep 600");
    let watchdog = watchdog(&lock);
    // While both are stopped, neither can react to the end of the other.
    lock.signal(Signal::STOP);
    kill_process(watchdog, Signal::STOP).expect("it runs");
    kill_process(watchdog, Signal::KILL).expect("it runs");
    lock.signal(Signal::KILL);
    child.wait();
}

#[test]
fn a_command_does_not_outlive_a_watchdog_that_was_killed() {
    let cell = Cell::start();
    let script = "echo $$; echo $PPID; exec sleep 600";
    let (lock, child) = lock(&cell, &[], script);
    let watchdog = watchdog(&lock);
    kill_process(watchdog, Signal::TERM).expect("it runs");
    kill_process(watchdog, Signal::INT).expect("it runs");
    assert!(!child.has_ended(), "it refuses to end");
    kill_process(watchdog, Signal::KILL).expect("it runs");
    has_lost(lock, &child, "killed the watchdog");
}
