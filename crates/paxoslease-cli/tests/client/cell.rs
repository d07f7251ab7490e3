//! A cell for a test, and commands that talk to it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::support::{PATIENCE, Process, free_port, outcome, paxoslease, scratch};

/// The longest lease of the cell.
pub(crate) const MAX_LEASE: &str = "20s";

/// Three nodes, in one process or in several.
pub(crate) struct Cell {
    process: Process,
    /// The address of every node for clients.
    pub(crate) endpoints: Vec<String>,
    /// The description that `dev` printed.
    pub(crate) described: Value,
}

impl Cell {
    pub(crate) fn start() -> Self {
        Self::of(&[])
    }

    /// A cell whose nodes can be killed.
    pub(crate) fn of_processes() -> Self {
        Self::of(&["--processes"])
    }

    fn of(options: &[&str]) -> Self {
        let port = free_port(3).to_string();
        let dev = ["dev", "--json", "--port", &port, "--max-lease", MAX_LEASE];
        let process = Process::start(&[&dev, options].concat());
        let line = process.stdout.until(|_| true).remove(0);
        let described: Value = serde_json::from_str(&line).expect("a line of JSON");
        let nodes = described["nodes"].as_array().expect("a list");
        let address = |node: &Value| node["listen"]["clients"].as_str().expect("text").to_owned();
        let endpoints = nodes.iter().map(address).collect();
        Self { process, endpoints, described }
    }

    /// The address of node `id` for `what`.
    pub(crate) fn port(&self, id: usize, what: &str) -> String {
        self.described["nodes"][id - 1]["listen"][what].as_str().expect("text").to_owned()
    }

    /// Kills node `id`, as a power loss would.
    pub(crate) fn kill(&self, id: usize) {
        let pid = self.described["nodes"][id - 1]["pid"].as_i64().expect("a number");
        let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        kill_process(pid, Signal::KILL).expect("it runs");
    }

    /// Kills all nodes at once.
    pub(crate) fn kill_all(&self) {
        self.process.signal(Signal::KILL);
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = paxoslease(args);
        command.env("PAXOSLEASE_ENDPOINTS", self.endpoints.join(","));
        command
    }

    /// Runs a command to its end: exit code, stdout, stderr.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        outcome(self.command(args))
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub(crate) fn say(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// Runs a command that must succeed, and parses its line of JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.say(args)).expect("a line of JSON")
    }

    /// Starts a command in the background.
    pub(crate) fn start_command(&self, args: &[&str]) -> Process {
        Process::run(self.command(args))
    }
}

/// Stops the cell cleanly, so that it leaves no folders behind.
impl Drop for Cell {
    fn drop(&mut self) {
        self.process.signal(Signal::TERM);
        if !std::thread::panicking() {
            self.process.stderr.rest();
        }
    }
}

/// A gate for a script: `read line < $gate`, with [`Self::path`] for `$gate`.
pub(crate) struct Gate(PathBuf);

impl Gate {
    /// The name must be unique within a test.
    pub(crate) fn new(name: &str) -> Self {
        let path = scratch(name).join("gate");
        let made = Command::new("mkfifo").arg(&path).status().expect("runs");
        assert!(made.success());
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    /// Waits until the script waits at the gate, and lets it continue.
    pub(crate) fn open(&self) {
        std::fs::write(&self.0, "\n").expect("a script waits there");
    }
}

/// A process, a child of the test or not, that may end.
pub(crate) struct WatchedProcess(OwnedFd);

impl WatchedProcess {
    /// The process whose id is `line`.
    pub(crate) fn new(line: &str) -> Self {
        let pid = Pid::from_raw(line.trim().parse().expect("a pid")).expect("a pid");
        Self(pidfd_open(pid, PidfdFlags::empty()).expect("it runs"))
    }

    /// Whether it has ended by now.
    pub(crate) fn has_ended(&self) -> bool {
        is_readable(&self.0, Duration::ZERO)
    }

    /// Waits until it has.
    pub(crate) fn wait(&self) {
        assert!(is_readable(&self.0, PATIENCE), "it does not end");
    }
}

/// Whether the file is readable, after this timeout at most.
pub(crate) fn is_readable(file: &impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("short");
    loop {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            // A child of this process ended.
            Err(Errno::INTR) => {}
            ready => return ready.expect("can be waited for") > 0,
        }
    }
}
