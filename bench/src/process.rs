//! Processes that a benchmark starts, their folders and their ports. A process is killed by its
//! id when dropped, also after a failure, and a folder goes with whoever owns it. All that run are
//! known by their ids, so that an interrupt can end them, too.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Those that run, or are dead and not yet waited for: nobody else can have such an id.
static IDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn ids() -> MutexGuard<'static, BTreeSet<u32>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all that run, and keeps others from being started: the end of this process is near.
pub fn end_all() {
    let ids = ids();
    for id in ids.iter() {
        let pid = i32::try_from(*id).ok().and_then(Pid::from_raw);
        // It may be dead already.
        let _gone = pid.map(|pid| kill_process(pid, Signal::KILL));
    }
    // Whoever starts or ends one waits for this, and then for nothing any more.
    std::mem::forget(ids);
}

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
        let mut ids = ids();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        ids.insert(child.id());
        drop(ids);
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
        self.memory("VmRSS:")
    }

    /// The most that it ever occupied.
    ///
    /// # Errors
    /// When it is gone.
    pub fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// What of that it allocated: not the parts of the program that it came to run so far.
    ///
    /// # Errors
    /// When it is gone.
    pub fn allocated(&self) -> Result<u64> {
        self.memory("RssAnon:")
    }

    fn memory(&self, kind: &str) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(kind));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: u64 =
            kilobytes.with_context(|| format!("no {kind} has it ended?"))?.parse()?;
        Ok(kilobytes * 1024)
    }

    /// How many files and sockets it has open now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open_files(&self) -> Result<usize> {
        let files = fs::read_dir(format!("/proc/{}/fd", self.id()))
            .with_context(|| format!("a process is gone: {}", self.said()))?;
        Ok(files.count())
    }

    fn proc(&self, what: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{what}", self.id()))
            .with_context(|| format!("a process is gone: {}", self.said()))
    }

    /// Sends it a signal; one that has ended gets none.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut ids = ids();
        let mut child = self.child();
        if child.try_wait()?.is_some() {
            ids.remove(&self.id);
            return Ok(());
        }
        // Nobody has waited for it yet, so the id is still its own.
        let pid = i32::try_from(self.id).ok().and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        let mut ids = ids();
        let status = self.child().try_wait()?;
        if status.is_some() {
            ids.remove(&self.id);
        }
        Ok(status)
    }

    /// Kills it as `kill -9` does, and waits until it is gone. One that is gone already is no
    /// matter.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn kill(&self) -> Result<()> {
        let mut ids = ids();
        let mut child = self.child();
        child.kill()?;
        child.wait()?;
        ids.remove(&self.id);
        Ok(())
    }

    /// Ends the input of a program that stops cleanly with it, and waits until it has.
    ///
    /// # Errors
    /// When it ends otherwise than well.
    pub fn stop(&self) -> Result<()> {
        // It ends with its input, also when ours is the end.
        ids().remove(&self.id);
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

/// Ports where nobody listens, and which for a minute the system gives to nobody but who asks for
/// them by number.
///
/// # Errors
/// When there are not so many.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = reserved_port()?;
    }
    Ok(ports)
}

/// Whoever ends a connection has to remember it for a while, and that keeps its port.
fn reserved_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (server, _) = listener.accept()?;
    drop(server);
    drop(client);
    Ok(address.port())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_free_and_all_different_however_many_are_asked_for() {
        let ports: BTreeSet<u16> =
            (0..100).flat_map(|_| free_ports::<9>().expect("there are enough")).collect();
        assert_eq!(ports.len(), 900);
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("nobody listens there");
        }
    }
}
