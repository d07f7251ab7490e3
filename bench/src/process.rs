//! Processes that a benchmark starts, their folders and their ports. A process is killed by its
//! id when dropped, also after a failure, and a folder goes with whoever owns it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// One process; killed when dropped.
#[derive(Debug)]
pub struct Process {
    id: u32,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts it. What it says goes to the file `log`, and its standard input stays open as long
    /// as we live: a program that ends with it never outlives us.
    ///
    /// # Errors
    /// When there is no such program or no such folder.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { id: child.id(), child: Mutex::new(child), log: log.to_owned() })
    }

    /// What the system calls it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().expect("nobody panics while holding it")
    }

    /// How long it ran so far, in user and kernel mode.
    ///
    /// # Errors
    /// When it is gone.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = self.proc("stat")?;
        // What follows the name, which may itself hold anything.
        let fields = stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace();
        let ticks: Vec<&str> = fields.skip(11).take(2).collect();
        let ticks: u64 = ticks.iter().map(|ticks| ticks.parse().unwrap_or(0)).sum::<u64>();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// The bytes of memory that it occupies now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn rss(&self) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: u64 = kilobytes.context("no VmRSS; has it ended?")?.parse()?;
        Ok(kilobytes * 1024)
    }

    fn proc(&self, what: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{what}", self.id()))
            .with_context(|| format!("a process is gone: {}", self.said()))
    }

    /// Whether it has not ended.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_running(&self) -> Result<bool> {
        Ok(self.child().try_wait()?.is_none())
    }

    /// Kills it as `kill -9` does, and waits until it is gone. One that is gone already is no
    /// matter.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn kill(&self) -> Result<()> {
        let mut child = self.child();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Ends the input of a program that stops cleanly with it, and waits until it has.
    ///
    /// # Errors
    /// When it ends otherwise than well.
    pub fn stop(&self) -> Result<()> {
        let mut child = self.child();
        drop(child.stdin.take());
        let status = child.wait()?;
        ensure!(status.success(), "it did not stop well: {}", self.said());
        Ok(())
    }

    /// The end of what it wrote.
    #[must_use]
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().map(|line| format!("{line}\n")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.kill();
    }
}

/// A new folder, removed in the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// One where temporary files go, with `what` in its name.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(what: &str) -> Result<Self> {
        Self::within(&std::env::temp_dir(), what)
    }

    /// One in memory: a disk that forgets, for peers that otherwise wait for theirs.
    ///
    /// # Errors
    /// When the system has no such place.
    pub fn in_memory(what: &str) -> Result<Self> {
        Self::within(Path::new("/dev/shm"), what)
    }

    fn within(parent: &Path, what: &str) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("paxoslease-bench-{}-{number}-{what}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file or folder within.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Ports where nobody listened a moment ago.
///
/// # Errors
/// When there are not so many.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    for _ in 0..N {
        listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// The binary `paxoslease` that was built with the program that runs.
///
/// # Errors
/// When it was not.
pub fn paxoslease_beside_this() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("paxoslease");
    ensure!(path.is_file(), "no {}; build it: cargo build --release", path.display());
    Ok(path)
}
