//! A command at a terminal: it gets the keyboard when it reads, and Ctrl-C.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{Cell, PATIENCE, is_readable, scratch, utf8};

/// The controlling end of a terminal, and the session at its other end.
pub(crate) struct TestTerminal {
    keyboard: File,
    session: Child,
}

impl TestTerminal {
    fn lock(cell: &Cell, script: &str) -> Self {
        Self::run(cell, &["lock", "x", "--", "sh", "-c", script])
    }

    /// Runs a command as the first process of a session. Without `unsafe`, that requires `setsid`.
    pub(crate) fn run(cell: &Cell, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("ours");
        unlockpt(&master).expect("ours");
        let name = ptsname(&master, Vec::new()).expect("it has one");
        let name = name.to_str().expect("UTF-8");
        let slave = OpenOptions::new().read(true).write(true).open(name).expect("ours");
        let end = || Stdio::from(OwnedFd::from(slave.try_clone().expect("another")));
        let program = cell.command(args);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(program.get_program()).args(program.get_args());
        for (key, value) in program.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        let session = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("runs");
        Self { keyboard: File::from(master), session }
    }

    /// The output up to `text`.
    fn until(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut byte = [0];
        while !shown.contains(text) {
            assert!(is_readable(&self.keyboard, PATIENCE), "nothing after {shown:?}");
            let read = self.keyboard.read(&mut byte);
            assert!(matches!(read, Ok(1)), "{read:?} after {shown:?}");
            shown.push(byte[0] as char);
        }
        shown
    }

    /// The output up to the end of the session.
    pub(crate) fn rest(mut self) -> String {
        let mut shown = Vec::new();
        let mut bytes = [0; 1024];
        // A terminal without a session fails to read.
        while is_readable(&self.keyboard, PATIENCE)
            && let Ok(count @ 1..) = self.keyboard.read(&mut bytes)
        {
            shown.extend_from_slice(&bytes[..count]);
        }
        self.end();
        String::from_utf8(shown).expect("UTF-8").replace('\r', "")
    }

    /// Waits until the first process is stopped, and continues it.
    fn go_on_when_stopped(&self) {
        let session = Pid::from_child(&self.session);
        let (_, status) = waitpid(Some(session), WaitOptions::UNTRACED)
            .expect("it is ours")
            .expect("it was waited for");
        assert!(status.stopped(), "{status:?}");
        kill_process(session, Signal::CONT).expect("it is there");
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    fn end(mut self) -> Option<i32> {
        let status = self.session.wait().expect("it is ours");
        status.code().or_else(|| Some(128 + status.signal()?))
    }
}

#[test]
fn a_command_that_reads_gets_the_keyboard() {
    let cell = Cell::start();
    let mut terminal = TestTerminal::lock(&cell, "echo name?; read name; echo hello $name; exit 3");
    terminal.until("name?");
    terminal.press("anna\r");
    terminal.until("hello anna");
    assert_eq!(terminal.end(), Some(3));
}

#[test]
fn ctrl_z_stops_the_lock_with_its_command_and_both_go_on() {
    let cell = Cell::start();
    let reads = "echo ready; read a; echo got $a; read b; echo then $b";
    let mut terminal = TestTerminal::lock(&cell, reads);
    terminal.until("ready");
    terminal.press("A\r");
    terminal.until("got A");
    terminal.press("\u{1a}");
    terminal.go_on_when_stopped();
    terminal.press("B\r");
    terminal.until("then B");
    assert_eq!(terminal.end(), Some(0));
    let gate = scratch("ctrl-z").join("gate");
    let does_not_read =
        format!("mkfifo {0}; echo ready; read a < {0}; echo done; exit 5", utf8(&gate));
    let mut terminal = TestTerminal::lock(&cell, &does_not_read);
    terminal.until("ready");
    terminal.press("\u{1a}");
    terminal.go_on_when_stopped();
    std::fs::write(gate, "\n").expect("the command waits there");
    terminal.until("done");
    assert_eq!(terminal.end(), Some(5));
}

#[test]
fn ctrl_c_ends_a_command_that_reads_and_one_that_does_not() {
    let cell = Cell::start();
    let mut terminal = TestTerminal::lock(&cell, "echo ready; exec sleep 600");
    terminal.until("ready");
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), Some(128 + 2));
    let mut terminal = TestTerminal::lock(&cell, "echo ready; read line; echo got; read line");
    terminal.until("ready");
    terminal.press("a\r");
    terminal.until("got");
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), Some(128 + 2));
}

#[test]
fn a_release_by_force_says_what_it_risks_and_asks() {
    let cell = Cell::start();
    let acquired = cell.command(&["acquire", "x", "--holder", "hangs"]).output().expect("runs");
    assert!(acquired.status.success(), "{acquired:?}");
    for (typed, code) in [("n\r", 1), ("\r", 1), ("\u{4}", 1), ("y\r", 0)] {
        let mut terminal = TestTerminal::run(&cell, &["release", "x", "--force"]);
        let shown = terminal.until("[y/N] ");
        assert!(shown.contains("\"x\" is held by \"hangs\""), "{shown}");
        assert!(shown.contains("may work on until then"), "{shown}");
        terminal.press(typed);
        assert_eq!(terminal.end(), Some(code), "{typed:?}");
    }
    let free = cell.command(&["get", "x"]).output().expect("runs");
    assert_eq!(free.status.code(), Some(1), "{free:?}");
}
