//! What nodes wrote down of themselves, if they were built with the feature `trace`, and what the
//! judge of traces says of it.
//!
//! Owns where traces are. Deliberately lacks any knowledge of what is in them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use paxoslease_trace::{Clocks, Judge, Report};

/// The variable by which a node is told where its traces go.
pub const FOLDER: &str = "PAXOSLEASE_TRACE_DIR";

/// Where the traces of a run are.
#[must_use]
pub fn folder(run: &Path) -> PathBuf {
    run.join("traces")
}

/// Judges the traces of a run, and writes the verdict beside them.
///
/// # Errors
/// When they cannot be read.
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
