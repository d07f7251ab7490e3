//! The real binary as a background process: its lines as they come, and its end.

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const BINARY: &str = env!("CARGO_BIN_EXE_paxoslease");
/// The timeout of every wait; only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary, without the environment variables of the tester.
pub(crate) fn paxoslease(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args);
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("PAXOSLEASE_") {
            command.env_remove(key);
        }
    }
    command
}

/// Runs a command to its end: exit code, stdout, stderr.
pub(crate) fn outcome(command: Command) -> (i32, String, String) {
    let mut command = assert_cmd::Command::from(command);
    let output = command.timeout(PATIENCE).output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// A background process. Killed when dropped, if a test fails.
pub(crate) struct Process {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

/// The output of a process, by lines.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(stream).lines() {
                let Ok(text) = text else { return };
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// All lines up to the first that matches, which is the last of them.
    pub(crate) fn until(&self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self.0.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{error} after {seen:#?}"));
            seen.push(line);
            if seen.last().is_some_and(|line| is_meant(line)) {
                return seen;
            }
        }
    }

    /// All lines until the process closes its output.
    pub(crate) fn rest(&self) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(line) => seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return seen,
                Err(RecvTimeoutError::Timeout) => panic!("still running after {seen:#?}"),
            }
        }
    }
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::run(paxoslease(args))
    }

    pub(crate) fn run(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = Lines::of(child.stdout.take().expect("piped"));
        let stderr = Lines::of(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Its exit code, as shells count.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.stderr.rest();
        let status = self.child.wait().expect("it has closed its end");
        status.code().or_else(|| Some(128 + status.signal()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The first of `count` free ports, each ten after the one before. They are below the range that
/// the system uses for outgoing connections, so that no connection takes one. Each process begins
/// at another port.
pub(crate) fn free_port(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 200) as u16;
    loop {
        let block = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + 100 * (block % 200);
        let at = |index, offset| TcpListener::bind(("127.0.0.1", port + 10 * index + offset));
        let is_free = |index| (0..3).all(|offset| at(index, offset).is_ok());
        if (0..count).all(is_free) {
            return port;
        }
    }
}

/// A new empty folder of this test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _none = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("can be made");
    path
}
