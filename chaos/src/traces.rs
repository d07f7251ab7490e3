//! The traces of nodes that were built with the feature `trace`, and the verdict on them. Owns the
//! folder of the traces, not their contents.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use paxoslease_trace::{Clocks, Judge, Report};

/// The variable that tells a node the folder of its traces.
pub const FOLDER: &str = "PAXOSLEASE_TRACE_DIR";

pub fn folder(run: &Path) -> PathBuf {
    run.join("traces")
}

/// Judges the traces of a run, and writes the verdict beside them.
pub fn judge(run: &Path, clocks: Clocks) -> Result<Report> {
    let mut judge = Judge::new(clocks);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder(run))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let label = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        judge.add(&label, BufReader::new(file))?;
    }
    let report = judge.verdict();
    let mut text = format!("{report}\n");
    for (rule, count) in &report.checks {
        writeln!(text, "{count:>9} {rule}")?;
    }
    for (rule, seen) in &report.violations {
        writeln!(text, "VIOLATION: {rule}: {seen}")?;
    }
    fs::write(run.join("traces.txt"), text)?;
    Ok(report)
}
