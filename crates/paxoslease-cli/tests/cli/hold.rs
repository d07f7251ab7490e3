//! `lock` without failures: the command runs as it would alone, one at a time.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;

use crate::support::{Cell, Gate, Process, WatchedProcess};

/// Prints its own id, and keeps running.
const STAY: &[&str] = &["sh", "-c", "echo $$; exec sleep 600"];

fn lock<'a>(options: &[&'a str], command: &[&'a str]) -> Vec<&'a str> {
    [&["lock", "x"], options, &["--"], command].concat()
}

/// A `lock` that holds the lease, with a command that keeps running.
fn holder(cell: &Cell, options: &[&str]) -> (Process, WatchedProcess) {
    let holder = cell.start_command(&lock(options, STAY));
    let child = WatchedProcess::printed_by(&holder);
    (holder, child)
}

/// A `lock` that waits for the lease, and has reported the holder.
fn waiter(cell: &Cell, holder: &Process) -> Process {
    let waiter = cell.start_command(&lock(&[], &["echo", "my turn"]));
    let line = waiter.stderr.until(|line| line.starts_with("waiting: \"x\" is held by ")).concat();
    assert!(line.contains(&format!(":{}\" (fence ", holder.id())), "{line}");
    waiter
}

fn has_its_turn(waiter: Process) {
    assert_eq!(waiter.stdout.until(|_| true), ["my turn"]);
    assert_eq!(waiter.end(), Some(0));
}

#[test]
fn a_lease_is_held_for_as_long_as_its_command_runs() {
    let cell = Cell::start();
    let ttl = ["--ttl", "2s", "--holder", "me"];
    let lock = cell.start_command(&lock(&ttl, &["sh", "-c", "sleep 5; echo done"]));
    lock.stdout.until(|line| line == "done");
    assert_eq!(lock.end(), Some(0), "renewed all the time");
}

#[test]
fn a_stopped_lock_hands_over_at_once() {
    let cell = Cell::start();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (first, child) = holder(&cell, &[]);
        let second = waiter(&cell, &first);
        first.signal(signal);
        child.wait();
        assert_eq!(first.end(), Some(128 + signal.as_raw()));
        has_its_turn(second);
    }
}

#[test]
fn a_lease_is_held_while_a_child_still_cleans_up() {
    let cell = Cell::start();
    let gate = Gate::new("clean-up");
    // The shell ends at once, as shells do; only its child cleans up.
    let child = format!(
        "trap 'read line < {}; echo clean; exit' TERM; echo $$; while :; do sleep 1; done",
        gate.path()
    );
    let first = cell.start_command(&lock(
        &["--ttl", "20s", "--grace", "9s"],
        &["sh", "-c", "sh -c \"$0\"; :", &child],
    ));
    let child = WatchedProcess::printed_by(&first);
    let second = waiter(&cell, &first);
    first.signal(Signal::TERM);
    gate.open();
    first.stdout.until(|line| line == "clean");
    assert_eq!(first.end(), Some(128 + 15));
    has_its_turn(second);
    assert!(child.has_ended());
}

#[test]
fn a_stubborn_child_is_killed_before_the_lease_is_released() {
    let cell = Cell::start();
    let script = "(trap '' TERM; exec sleep 600) & echo $!; wait";
    let first = cell.start_command(&lock(&["--grace", "100ms"], &["sh", "-c", script]));
    let child = WatchedProcess::printed_by(&first);
    let second = waiter(&cell, &first);
    first.signal(Signal::TERM);
    has_its_turn(second);
    assert!(child.has_ended(), "before another client could hold it");
    assert_eq!(first.end(), Some(128 + 15));
}

#[test]
fn signals_reach_the_whole_group_and_may_be_ignored() {
    let cell = Cell::start();
    // Only `wait` is interrupted by every trapped signal.
    let script = "(trap '' USR1; exec sleep 600 >/dev/null 2>&1) & \
                  trap 'echo int' INT; trap 'echo usr1' USR1; trap 'kill $!; echo bye; exit 3' QUIT; \
                  echo ready; while :; do wait; done";
    let lock = cell.start_command(&lock(&[], &["sh", "-c", script]));
    lock.stdout.until(|line| line == "ready");
    for (signal, line) in [(Signal::INT, "int"), (Signal::USR1, "usr1"), (Signal::QUIT, "bye")] {
        lock.signal(signal);
        lock.stdout.until(|said| said == line);
    }
    assert_eq!(lock.end(), Some(3));
}

#[test]
fn an_interrupted_lock_ends_the_loop_of_a_shell() {
    let cell = Cell::start();
    // Shells look at the signal, not at the exit code.
    let status = cell.command(&["lock", "x", "--", "sh", "-c", "kill -INT $$"]).status();
    assert_eq!(status.expect("runs").signal(), Some(2));
}

#[test]
fn a_second_signal_does_not_prevent_the_release() {
    let cell = Cell::start();
    let (lock, _child) = holder(&cell, &[]);
    let end = WatchedProcess::new(&lock.id().to_string());
    while !end.has_ended() {
        lock.signal(Signal::INT);
        lock.signal(Signal::WINCH);
    }
    assert_eq!(lock.end(), Some(128 + 2));
    assert_eq!(cell.run(&["get", "x"]).0, 1, "nobody holds it");
}

#[test]
fn a_stopped_waiter_leaves_the_queue() {
    let cell = Cell::start();
    let (first, _child) = holder(&cell, &[]);
    let second = waiter(&cell, &first);
    let third = waiter(&cell, &first);
    assert_eq!(second.end_by(Signal::INT), Some(128 + 2));
    first.signal(Signal::TERM);
    has_its_turn(third);
}

#[test]
fn a_command_ends_with_its_killed_lock() {
    let cell = Cell::start();
    let (first, child) = holder(&cell, &["--ttl", "2s"]);
    let second = waiter(&cell, &first);
    first.signal(Signal::KILL);
    has_its_turn(second);
    assert!(child.has_ended(), "before another client could hold it");
}

#[test]
fn a_paused_lock_loses_its_command_and_exits_75() {
    let cell = Cell::start();
    let (first, child) = holder(&cell, &["--ttl", "2s"]);
    let second = waiter(&cell, &first);
    first.signal(Signal::STOP);
    assert_eq!(second.stdout.until(|_| true), ["my turn"]);
    assert!(child.has_ended(), "before another client could hold it");
    first.signal(Signal::CONT);
    let line = first.stderr.until(|line| line.starts_with("error: ")).concat();
    assert!(line.contains("; the command was ended"), "{line}");
    assert_eq!(first.end(), Some(75));
}
