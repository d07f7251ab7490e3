//! The cores of this machine, and processes that keep a core busy.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use paxoslease_rig::Process;

/// The subcommand that calls [`keep_busy`].
pub const BUSY: &str = "busy";

/// The cores that this process may run on; none if the system does not tell.
pub fn all() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
        let cores = 0..rustix::thread::CpuSet::MAX_CPU;
        return cores.filter(|core| allowed.is_set(*core)).collect();
    }
    Vec::new()
}

/// A process that keeps one core busy, killed on drop.
#[derive(Debug)]
pub struct Busy(Process);

impl Busy {
    /// In the idle class of the scheduler, below every nice value: the core never sleeps, and no
    /// other thread waits for it.
    fn idle(core: usize) -> Result<Self> {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?);
        Self::spawn(command, core)
    }

    /// With the usual priority, as a neighbour that needs the core.
    pub fn sharing(core: usize) -> Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?), core)
    }

    /// This binary must have the subcommand [`BUSY`] with a core.
    fn spawn(mut command: Command, core: usize) -> Result<Self> {
        command.args([BUSY, &core.to_string()]);
        Ok(Self(Process::spawn(command, Path::new("/dev/null"))?))
    }

    /// Checks that it still runs: without the permission to set its class it exits at once.
    pub fn check(&self) -> Result<()> {
        ensure!(self.0.ended()?.is_none(), "the process that keeps a core busy has ended");
        Ok(())
    }

    pub fn on_all() -> Result<Vec<Self>> {
        all().into_iter().map(Self::idle).collect()
    }
}

/// The program of [`Busy`]: spins until its standard input is closed.
pub fn keep_busy(core: usize) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _any = core;
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let _closed = std::io::stdin().read(&mut [0]);
    Ok(())
}
