//! `lock` and signals, where a transcript cannot tell the difference.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;

use crate::support::{Cell, Process, WatchedProcess, outcome};

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
    let sleep = ["lock", "x", "--", "sh", "-c", "echo $$; exec sleep 600"];
    let lock = Process::run(cell.command(&sleep));
    lock.stdout.line();
    let end = WatchedProcess::new(&lock.id().to_string());
    while !end.has_ended() {
        lock.signal(Signal::INT);
        lock.signal(Signal::WINCH);
    }
    assert_eq!(lock.end(), Some(128 + 2));
    assert_eq!(outcome(cell.command(&["get", "x"])).0, 1, "no client holds it");
}
