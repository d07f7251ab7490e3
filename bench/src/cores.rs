//! The cores a measurement runs on: which there are, staying on one, and keeping one busy, either
//! as a neighbour that wants its share or only so that it never sleeps.
//!
//! Where the system offers no way to say so, it alone decides.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use paxoslease_rig::Process;

/// What the command line of a binary calls [`keep_busy`].
pub const BUSY: &str = "busy";

/// The cores that this process may run on, where it can tell.
#[cfg(target_os = "linux")]
pub fn all() -> Vec<usize> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect()
}

/// Keeps this process, and the threads it starts from now on, on one core.
#[cfg(target_os = "linux")]
pub fn stay_on(core: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The cores that this process may run on, where it can tell.
#[cfg(not(target_os = "linux"))]
pub fn all() -> Vec<usize> {
    Vec::new()
}

/// Keeps this process on one core, where that can be said.
#[cfg(not(target_os = "linux"))]
pub fn stay_on(_: usize) -> std::io::Result<()> {
    Ok(())
}

/// How much a busy loop wants its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// As much as anybody: half of it when somebody else wants it too.
    Share,
    /// Only what nobody else wants: the core never sleeps, and nobody waits for it.
    Rest,
}

/// A process that keeps one core busy; gone when dropped.
#[derive(Debug)]
pub struct Busy(Process);

impl Busy {
    /// Starts one. The binary that runs must know the subcommand [`BUSY`] with a core.
    pub fn on(core: usize, want: Want) -> Result<Self> {
        let this = std::env::current_exe()?;
        let mut command = match want {
            Want::Share => Command::new(this),
            Want::Rest => {
                // The idle class of the scheduler, which a nice value does not come near.
                let mut chrt = Command::new("chrt");
                chrt.args(["--idle", "0"]).arg(this);
                chrt
            }
        };
        command.args([BUSY, &core.to_string()]);
        Ok(Self(Process::spawn(command, Path::new("/dev/null"))?))
    }

    /// Makes sure that it still runs: whoever may not choose a class of the scheduler is gone at
    /// once.
    pub fn check(&self) -> Result<()> {
        ensure!(self.0.ended()?.is_none(), "what was to keep a core busy has ended");
        Ok(())
    }

    /// One on every core, for what nobody else wants.
    pub fn on_all() -> Result<Vec<Self>> {
        all().into_iter().map(|core| Self::on(core, Want::Rest)).collect()
    }
}

/// What the process behind [`Busy`] does: nothing, as fast as it can, until whoever started it is
/// gone.
pub fn keep_busy(core: usize) -> Result<()> {
    stay_on(core)?;
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let _closed = std::io::stdin().read(&mut [0]);
    Ok(())
}
