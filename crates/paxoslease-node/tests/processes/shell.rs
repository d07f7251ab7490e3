//! One process of the example `lease_shell`.

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
use super::harness::PATIENCE;

const POLLED_EVERY: Duration = Duration::from_millis(5);

/// An example that cargo built: beside the folder of this test.
pub(crate) fn example(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("tests are files");
    path.pop();
    path.set_file_name("examples");
    path.push(name);
    assert!(
        path.exists(),
        "{} is missing: cargo build -p paxoslease-node -p paxoslease --examples",
        path.display()
    );
    path
}

/// The time on the clock of the nodes, in nanoseconds.
pub(crate) fn now() -> u64 {
    let reading = clock_gettime(ClockId::Boottime);
    reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64
}

/// One line that a shell printed.
#[derive(Clone, Debug)]
pub(crate) struct Line(String);

impl Line {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    fn begins(&self, words: &str) -> bool {
        self.0.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// The name of the lease.
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

    /// The end of the belief that the line reports, at the earliest.
    pub(crate) fn believed_until(&self) -> u64 {
        self.number("from") + self.number("remaining_ms") * 1_000_000
    }
}

pub(crate) struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Line>,
    /// Lines that no test has asked for yet.
    unread: Vec<Line>,
    /// Its quarantine when it started.
    quarantine_ms: u64,
    beliefs: Rc<RefCell<Beliefs>>,
}

/// The command that starts a shell. A limit on file sizes simulates a full disk. The signal of that
/// limit is ignored, so that a write fails as on a full disk.
pub(crate) fn command(args: &[String]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(example("lease_shell")).args(args);
    command
}

impl Shell {
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

    /// Whether it has printed such a line that no test has asked for yet.
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

    /// Asks the guard of this name.
    pub(crate) fn held(&mut self, name: &str) -> Line {
        self.ask(&format!("held {name}"), &format!("held {name}"))
    }

    /// Checks that the tenure with this fence is still held, and was all the time.
    pub(crate) fn still_holds(&mut self, name: &str, fence: u64) {
        let held = self.held(name);
        assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
        assert!(!self.has_said(&format!("lost {name}")));
    }

    /// Checks that an acquire is refused for this reason.
    pub(crate) fn is_refused(&mut self, acquire: &str, why: &str) {
        let refused = self.ask(&format!("acquire {acquire}"), "refused");
        assert!(refused.contains(why), "{refused:?}");
    }

    pub(crate) fn status(&mut self) -> Value {
        let line = self.ask("status", "status");
        serde_json::from_str(&line.0["status ".len()..]).expect("a status is JSON")
    }

    /// Waits for a condition of the status.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        for _ in 0..PATIENCE.as_millis() / POLLED_EVERY.as_millis() {
            status = self.status();
            if is_so(&status) {
                return status;
            }
            // Lines that come meanwhile are kept.
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

    /// Stops it cleanly, and waits for its end.
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
