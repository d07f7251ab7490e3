//! Processes that are killed by their id when dropped, also after a failure. The ids of all running
//! processes are known here, so that an interrupt can end them as well.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Processes that run, or are dead and not yet waited for: the system gives no other process such
/// an id.
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
    // A thread that starts or ends a process now waits here until this process exits.
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
    pub fn id(&self) -> u32 {
        self.id
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().expect("nobody panics while holding it")
    }

    /// How long it ran so far, in user and kernel mode.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = self.proc("stat")?;
        // What follows the name, which may itself hold anything.
        let fields = stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace();
        let ticks: Vec<&str> = fields.skip(11).take(2).collect();
        let ticks: u64 = ticks.iter().map(|ticks| ticks.parse().unwrap_or(0)).sum::<u64>();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// The bytes of memory that it occupies now.
    pub fn rss(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The most that it ever occupied.
    pub fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// What of that it allocated: not the parts of the program that it came to run so far.
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
    pub fn kill(&self) -> Result<()> {
        let mut ids = ids();
        let mut child = self.child();
        child.kill()?;
        child.wait()?;
        ids.remove(&self.id);
        Ok(())
    }

    /// Ends the input of a program that stops cleanly with it, and waits until it has.
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

/// The binary `paxoslease` that was built with the program that runs.
pub fn paxoslease_beside_this() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("paxoslease");
    ensure!(path.is_file(), "no {}; build it: cargo build --release", path.display());
    Ok(path)
}
