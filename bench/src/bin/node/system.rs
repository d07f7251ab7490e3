//! What the system says of this process and of the loopback interface.

use std::fs;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps this thread, and those it starts from now on, on one core.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("cannot stay on core {core}"))
}

pub(crate) fn resident_bytes() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).context("statm has no resident size")?;
    Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
}

/// How often threads of this process blocked.
pub(crate) fn sleeps() -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        // A thread that just ended has none.
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.context("no count of context switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// What went over the loopback interface so far, whoever sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loopback {
    /// Headers included.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

impl Loopback {
    pub(crate) fn so_far() -> Result<Self> {
        let devices = fs::read_to_string("/proc/net/dev")?;
        let line = devices.lines().find_map(|line| line.trim().strip_prefix("lo:"));
        let mut fields = line.context("no loopback interface")?.split_whitespace();
        let mut next = || -> Result<u64> { Ok(fields.next().context("cut short")?.parse()?) };
        Ok(Self { bytes: next()?, packets: next()? })
    }
}
