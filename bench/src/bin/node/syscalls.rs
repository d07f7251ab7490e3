//! System calls of processes, counted by the kernel through `perf`, which hardly slows them down.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// System calls per second of these processes, over about a second.
pub(crate) fn per_second(pids: &[u32]) -> Result<f64> {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let output = Command::new("perf")
        .args(["stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", &pids.join(",")])
        .args(["--", "sleep", "1"])
        .stdin(Stdio::null())
        .output()
        .context("perf cannot be started")?;
    let report = String::from_utf8_lossy(&output.stderr);
    let line = report.lines().find(|line| line.contains("raw_syscalls"));
    let Some(line) = line else { bail!("perf says: {}", report.trim()) };
    let count = line.split(',').next().unwrap_or_default();
    count.parse().with_context(|| format!("perf counted no system calls: {line}"))
}
