//! Processes that are killed by their id on drop, also after a failure. A set has the ids of all
//! running processes, so that an interrupt can end them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Processes that run or are not waited for. The system does not reuse these ids.
static IDS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn ids() -> MutexGuard<'static, BTreeSet<u32>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all processes, and blocks the start of others. The caller has to exit.
pub fn end_all() {
    let ids = ids();
    for id in ids.iter() {
        // The process may be dead already.
        let _gone = kill_process(pid(*id), Signal::KILL);
    }
    // A thread that starts or ends a process now waits here until this process exits.
    std::mem::forget(ids);
}

fn pid(id: u32) -> Pid {
    let id = i32::try_from(id).ok();
    id.and_then(Pid::from_raw).expect("the id of a process is positive")
}

#[derive(Debug)]
pub struct Process {
    id: u32,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts it. Its output goes to the file `log`. Its standard input stays open as long as this
    /// process lives, so that a program that ends with its input never outlives it.
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

    pub fn pid(&self) -> Pid {
        pid(self.id)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().expect("no panic while it is held")
    }

    /// The processor time so far, in user and kernel mode.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = self.proc("stat")?;
        // The fields after the name, which may contain any character.
        let fields = stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace();
        let ticks: Vec<&str> = fields.skip(11).take(2).collect();
        let ticks: u64 = ticks.iter().map(|ticks| ticks.parse().unwrap_or(0)).sum::<u64>();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// The processor time of the threads that live, in nanoseconds where [`Self::cpu`] has ticks.
    pub fn run_time(&self) -> Result<Duration> {
        let of_thread = |thread: std::io::Result<fs::DirEntry>| {
            let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
            let nanos = stat.split_whitespace().next().context("an empty schedstat")?;
            anyhow::Ok(Duration::from_nanos(nanos.parse()?))
        };
        fs::read_dir(format!("/proc/{}/task", self.id))?.map(of_thread).sum()
    }

    /// In bytes, as the other figures of memory.
    pub fn rss(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The highest resident memory so far.
    pub fn peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    /// The allocated part of the resident memory, without pages of the program.
    pub fn allocated(&self) -> Result<u64> {
        self.memory("RssAnon:")
    }

    /// The writable memory, without what heaps only reserve.
    pub fn data(&self) -> Result<u64> {
        self.memory("VmData:")
    }

    fn memory(&self, kind: &str) -> Result<u64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(kind));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: u64 =
            kilobytes.with_context(|| format!("no {kind} has it ended?"))?.parse()?;
        Ok(kilobytes * 1024)
    }

    pub fn open_files(&self) -> Result<usize> {
        let files = fs::read_dir(format!("/proc/{}/fd", self.id))
            .with_context(|| format!("a process is gone: {}", self.log_tail()))?;
        Ok(files.count())
    }

    fn proc(&self, what: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{what}", self.id))
            .with_context(|| format!("a process is gone: {}", self.log_tail()))
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut ids = ids();
        let mut child = self.child();
        if child.try_wait()?.is_some() {
            ids.remove(&self.id);
            return Ok(());
        }
        // The process is not waited for yet, so the id is still valid.
        Ok(kill_process(self.pid(), signal)?)
    }

    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        let mut ids = ids();
        let status = self.child().try_wait()?;
        if status.is_some() {
            ids.remove(&self.id);
        }
        Ok(status)
    }

    /// Kills it with SIGKILL and waits for its end. Does nothing if it has ended.
    pub fn kill(&self) -> Result<()> {
        let mut ids = ids();
        let mut child = self.child();
        child.kill()?;
        child.wait()?;
        ids.remove(&self.id);
        Ok(())
    }

    /// Closes the standard input of a program that stops cleanly then, and waits for its end.
    pub fn stop(&self) -> Result<()> {
        // The process ends with its input, also if this process ends.
        ids().remove(&self.id);
        let mut child = self.child();
        drop(child.stdin.take());
        let status = child.wait()?;
        ensure!(status.success(), "it did not stop cleanly: {}", self.log_tail());
        Ok(())
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
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

/// The binary `paxoslease` in the folder of this program.
pub fn paxoslease_beside_this() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("paxoslease");
    ensure!(path.is_file(), "no {}; build it: cargo build --release", path.display());
    Ok(path)
}
