//! The cores of this machine, and loops that keep a core busy.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use paxoslease_rig::Process;

/// The subcommand that calls [`keep_busy`].
pub const BUSY: &str = "busy";

/// The steps of a neighbour between two looks at whether it should end.
const STEPS: u32 = 10_000;

/// The cores that this process may run on; none if the system does not tell.
pub fn all() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
        let cores = 0..rustix::thread::CpuSet::MAX_CPU;
        return cores.filter(|core| allowed.is_set(*core)).collect();
    }
    Vec::new()
}

/// A process that keeps one core awake, killed on drop.
#[derive(Debug)]
pub struct Busy(Process);

impl Busy {
    /// In the idle class of the scheduler, below every nice value: the core never sleeps, and no
    /// other thread waits for it.
    /// This binary must have the subcommand [`BUSY`] with a core.
    fn idle(core: usize) -> Result<Self> {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?);
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
    pin(core)?;
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let _closed = std::io::stdin().read(&mut [0]);
    Ok(())
}

/// Binds this thread, and those that it starts, to a core.
fn pin(core: usize) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _any = core;
    Ok(())
}

/// A thread of normal priority that needs all of one core, and counts how far it comes. It ends on
/// drop.
#[derive(Debug)]
pub struct Neighbour(Arc<AtomicU64>);

impl Neighbour {
    /// On the last core.
    pub fn start() -> Result<Self> {
        let core = *all().last().context("cannot tell which cores there are")?;
        let count = Arc::new(AtomicU64::new(0));
        let of_thread = Arc::downgrade(&count);
        thread::spawn(move || {
            pin(core).expect("a core that this process may run on");
            while let Some(count) = of_thread.upgrade() {
                for _ in 0..STEPS {
                    std::hint::black_box(count.fetch_add(1, Ordering::Relaxed));
                }
            }
        });
        Ok(Self(count))
    }

    /// The steps of its loop so far.
    pub fn steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
