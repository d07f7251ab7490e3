//! The real binary as a background process, and cells of it. Every wait has a timeout.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_paxoslease");
/// The timeout of every wait; only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn paxoslease(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args);
    without_variables(&mut command);
    command
}

/// Removes the environment variables of the tester.
pub(crate) fn without_variables(command: &mut Command) {
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("PAXOSLEASE_") {
            command.env_remove(key);
        }
    }
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
    child: RefCell<Child>,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

/// The output of a process, by lines.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    /// All lines also go to the file.
    fn of(stream: impl Read + Send + 'static, mut log: Option<File>) -> Self {
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(stream).lines() {
                let Ok(text) = text else { return };
                if let Some(log) = &mut log {
                    writeln!(log, "{text}").expect("can be written");
                }
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

    pub(crate) fn line(&self) -> String {
        self.until(|_| true).remove(0)
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
    pub(crate) fn run(command: Command) -> Self {
        Self::run_with_log(command, None)
    }

    /// Starts a command. Its stderr also goes to the file.
    pub(crate) fn run_with_log(mut command: Command, log: Option<File>) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = Lines::of(child.stdout.take().expect("piped"), None);
        let stderr = Lines::of(child.stderr.take().expect("piped"), log);
        Self { child: RefCell::new(child), stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.borrow().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.borrow()), signal).expect("it runs");
    }

    /// Its exit code, as shells count.
    pub(crate) fn end(&self) -> Option<i32> {
        self.stderr.rest();
        let status = self.child.borrow_mut().wait().expect("it has closed its end");
        status.code().or_else(|| Some(128 + status.signal()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.get_mut().kill();
        let _ended = self.child.get_mut().wait();
    }
}

/// The first of `count` free ports, each ten after the one before. They are below the range that
/// the system uses for outgoing connections, so that no connection takes one. A listener on the
/// last port of the block keeps other test processes away from it.
pub(crate) fn free_port(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 200) as u16;
    loop {
        let block = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + 100 * (block % 200);
        let bind = |port| TcpListener::bind(("127.0.0.1", port));
        let Ok(reservation) = bind(port + 99) else { continue };
        let mut ports = (0..count).flat_map(|index| [0, 1, 2].map(|offset| 10 * index + offset));
        if ports.all(|offset| bind(port + offset).is_ok()) {
            std::mem::forget(reservation);
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

pub(crate) fn utf8(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The longest lease of the cell.
pub(crate) const MAX_LEASE: &str = "20s";

/// Three nodes, in one process or in several.
pub(crate) struct Cell {
    pub(crate) process: Process,
    /// The address of every node for clients.
    pub(crate) endpoints: Vec<String>,
    /// The description that `dev` printed.
    pub(crate) described: Value,
}

impl Cell {
    pub(crate) fn start() -> Self {
        Self::with(&["--max-lease", MAX_LEASE])
    }

    /// A cell with these options of `dev`.
    pub(crate) fn with(options: &[&str]) -> Self {
        let dev = ["dev", "--json", "--port", "0"];
        let process = Process::run(paxoslease(&[&dev, options].concat()));
        let described: Value = serde_json::from_str(&process.stdout.line()).expect("JSON");
        let nodes = described["nodes"].as_array().expect("a list");
        let address = |node: &Value| node["listen"]["clients"].as_str().expect("text").to_owned();
        let endpoints = nodes.iter().map(address).collect();
        Self { process, endpoints, described }
    }

    /// The address of node `id` for `what`.
    pub(crate) fn port(&self, id: usize, what: &str) -> String {
        self.described["nodes"][id - 1]["listen"][what].as_str().expect("text").to_owned()
    }

    /// The text with placeholders for the name and the addresses of this cell.
    pub(crate) fn with_placeholders(&self, text: String) -> String {
        let mut text = text.replace(self.described["cell"].as_str().expect("text"), "<cell>");
        for (id, kind) in (1..=3).flat_map(|id| ["clients", "http", "peers"].map(|kind| (id, kind)))
        {
            text = text.replace(&self.port(id, kind), &format!("<{kind} {id}>"));
        }
        text
    }

    /// Kills node `id`, as a power loss would.
    pub(crate) fn kill(&self, id: usize) {
        let id = self.described["nodes"][id - 1]["pid"].to_string();
        kill_process(pid(&id), Signal::KILL).expect("it runs");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = paxoslease(args);
        command.env("PAXOSLEASE_ENDPOINTS", self.endpoints.join(","));
        command
    }
}

/// Stops the cell cleanly, so that it leaves no folders behind.
impl Drop for Cell {
    fn drop(&mut self) {
        let has_ended = self.process.child.borrow_mut().try_wait().is_ok_and(|end| end.is_some());
        if !has_ended && !std::thread::panicking() {
            self.process.signal(Signal::TERM);
            self.process.end();
        }
    }
}

pub(crate) fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a number")).expect("a pid")
}

/// A process, a child of the test or not, that may end.
pub(crate) struct WatchedProcess {
    pub(crate) id: Pid,
    file: OwnedFd,
}

impl WatchedProcess {
    /// The process whose id is `line`.
    pub(crate) fn new(line: &str) -> Self {
        let id = pid(line);
        Self { id, file: pidfd_open(id, PidfdFlags::empty()).expect("it runs") }
    }

    /// Whether it has ended by now.
    pub(crate) fn has_ended(&self) -> bool {
        is_readable(&self.file, Duration::ZERO)
    }

    /// Waits until it has.
    pub(crate) fn wait(&self) {
        assert!(is_readable(&self.file, PATIENCE), "it does not end");
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
