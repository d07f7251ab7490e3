//! One `lease_shell`, the example, as a process: told what to do, heard when it did.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::beliefs::Beliefs;

/// How long anything may take before a test gives up. Nothing is expected to take this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const POLLED_EVERY: Duration = Duration::from_millis(5);

/// Where cargo put an example of this package: beside the folder of this test.
pub(crate) fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("tests are files");
    path.pop();
    path.set_file_name("examples");
    path.push(name);
    assert!(
        path.exists(),
        "{} is missing: cargo build -p paxoslease-node --examples",
        path.display()
    );
    path
}

/// The time by the clock that nodes go by, in nanoseconds.
pub(crate) fn now() -> u64 {
    let reading = clock_gettime(ClockId::Boottime);
    reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64
}

/// One line that a shell said.
#[derive(Clone, Debug)]
pub(crate) struct Line(String);

impl Line {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn begins(&self, words: &str) -> bool {
        self.0.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// What it is about.
    pub(crate) fn name(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.0.contains(" is_held=true ")
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        self.0.contains(text)
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        let value = self.0.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let number = value.and_then(|value| value.parse().ok());
        number.unwrap_or_else(|| panic!("no {key} in {:?}", self.0))
    }

    /// Until when a holder that said "held" believed, at least.
    pub(crate) fn believed_until(&self) -> u64 {
        self.number("from") + self.number("remaining_ms") * 1_000_000
    }
}

pub(crate) struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Line>,
    /// Said and not asked for yet.
    unread: Vec<Line>,
    /// How long it was going to be silent when it started.
    quarantine_ms: u64,
    beliefs: Rc<RefCell<Beliefs>>,
}

/// The command that becomes a shell. A file size limit stands for a full disk here; the signal
/// that comes with it is ignored, so that a write fails as it does on a full disk.
pub(crate) fn command(args: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(example("lease_shell")).args(args);
    command
}

impl Shell {
    /// Starts one that is expected to run.
    pub(crate) fn start(args: &[String], beliefs: Rc<RefCell<Beliefs>>) -> Self {
        let mut command = command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh is there");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(Line(line)).is_err() {
                    return;
                }
            }
        });
        let unread = Vec::new();
        let mut shell = Self { child, stdin, lines, unread, quarantine_ms: 0, beliefs };
        shell.quarantine_ms = shell.expect("started").number("quarantine_ms");
        shell
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) const fn quarantine_ms(&self) -> u64 {
        self.quarantine_ms
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    pub(crate) fn say(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("it runs");
    }

    /// Waits for the first line not asked for yet that begins with these words.
    pub(crate) fn expect(&mut self, words: &str) -> Line {
        loop {
            if let Some(index) = self.unread.iter().position(|line| line.begins(words)) {
                return self.unread.remove(index);
            }
            if let Err(error) = self.hear(PATIENCE) {
                panic!("no line {words:?} ({error}), but {:?}", self.unread);
            }
        }
    }

    fn hear(&mut self, patience: Duration) -> Result<(), RecvTimeoutError> {
        let line = self.lines.recv_timeout(patience)?;
        self.beliefs.borrow_mut().note(&line);
        self.unread.push(line);
        Ok(())
    }

    /// Whether it said so already, and nobody asked for it yet.
    pub(crate) fn has_said(&mut self, words: &str) -> bool {
        while self.hear(Duration::ZERO).is_ok() {}
        self.unread.iter().any(|line| line.begins(words))
    }

    pub(crate) fn ask(&mut self, command: &str, answer: &str) -> Line {
        self.say(command);
        self.expect(answer)
    }

    /// Acquires, waiting if need be.
    pub(crate) fn acquire(&mut self, name: &str, ttl: &str) -> Line {
        let line = self.ask(&format!("acquire {name} {ttl} 20s"), &format!("acquired {name}"));
        assert!(line.is_held(), "{line:?}");
        line
    }

    /// What the guard of this name says now.
    pub(crate) fn held(&mut self, name: &str) -> Line {
        self.ask(&format!("held {name}"), &format!("held {name}"))
    }

    pub(crate) fn status(&mut self) -> Value {
        let line = self.ask("status", "status");
        serde_json::from_str(&line.0["status ".len()..]).expect("a status is JSON")
    }

    /// Waits for a status to become so.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        for _ in 0..PATIENCE.as_millis() / POLLED_EVERY.as_millis() {
            status = self.status();
            if is_so(&status) {
                return status;
            }
            // Whatever is said meanwhile is kept.
            let _nothing = self.hear(POLLED_EVERY);
        }
        panic!("not {what}: {status:#}");
    }

    /// Waits until these peers are connected.
    pub(crate) fn until_up(&mut self, peers: &[u16]) {
        self.until(&format!("connected to {peers:?}"), |status| {
            peers.iter().all(|node| peer(status, *node)["up"] == true)
        });
    }

    /// Ends it as people do, and waits for the end.
    pub(crate) fn quit(mut self) {
        self.ask("quit", "stopped");
        assert!(self.child.wait().expect("it ran").success());
    }
}

/// A node's view of a peer.
pub(crate) fn peer(status: &Value, node: u16) -> Value {
    let peers = status["peers"].as_array().expect("a list");
    peers.iter().find(|peer| peer["node"] == node).cloned().unwrap_or_default()
}

/// `kill -9`, unless it has ended.
impl Drop for Shell {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
