//! The measured machine, as far as it matters for the figures, without anything that identifies it.

use std::fs;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) virtualised: bool,
    /// The load average of the minute before the run.
    pub(crate) load_before: f64,
    /// The share of processor time that the host gave to other guests.
    pub(crate) stolen_percent: f64,
}

/// Processor time of all cores since boot, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once([':', '='])?.1.trim().trim_matches('"').to_owned())
        };
        let kilobytes = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = kilobytes.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        let load = read("/proc/loadavg");
        // With a suffix of the distribution.
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            processor: field(&cpu, "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (kilobytes.unwrap_or(0.0) / f64::from(1 << 20)).round(),
            kernel: release.split('-').next().unwrap_or_default().to_owned(),
            system: field(&read("/etc/os-release"), "PRETTY_NAME").unwrap_or_default(),
            virtualised: field(&cpu, "flags").is_some_and(|flags| flags.contains("hypervisor")),
            load_before: load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
            stolen_percent: 0.0,
        }
    }
}

impl Ticks {
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        // The last two of ten count guests of our own, which are among the first.
        Self { all: ticks.iter().take(8).sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    pub(crate) fn stolen_percent(self) -> f64 {
        let now = Self::now();
        let all = now.all.saturating_sub(self.all).max(1);
        100.0 * now.stolen.saturating_sub(self.stolen) as f64 / all as f64
    }
}
