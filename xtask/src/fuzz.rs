//! Runs the targets of `fuzz/`, which is a workspace of its own because it needs nightly, and
//! keeps what they find worth keeping.
//!
//! What a run finds goes to the build folder; `fuzz/corpus`, which is part of the repository and
//! of the tests, changes only when asked to, and stays small.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::install::Tool;
use crate::invocation::{cargo, repository_root};

/// The longest input, in bytes. Whatever can go wrong does so with fewer.
const INPUT_LEN_MAX: &str = "-max_len=1024";
/// The most inputs that are kept of a target, the shortest first.
const KEPT_MAX: usize = 200;

/// Every target, or the one named, for `seconds` each; the first crash stops it and names its
/// input. With `keep`, whatever leads somewhere new joins the corpus.
pub(crate) fn run(seconds: u32, only: Option<&str>, keep: bool) -> anyhow::Result<()> {
    Tool::Nightly.ensure()?;
    Tool::Fuzz.ensure()?;
    let list = cargo(["+nightly", "fuzz", "list"]).stdout()?;
    let wanted = |target: &&str| only.is_none_or(|only| only == *target);
    let targets: Vec<&str> = list.split_whitespace().filter(wanted).collect();
    ensure!(!targets.is_empty(), "no such target in fuzz/; there are:\n{list}");
    for target in &targets {
        let (found, kept) = (format!("target/fuzz/{target}"), format!("fuzz/corpus/{target}"));
        for folder in [&found, &kept] {
            fs::create_dir_all(repository_root().join(folder))
                .with_context(|| format!("cannot make {folder}"))?;
        }
        cargo(["+nightly", "fuzz", "run", target, &found, &kept, "--"])
            .arg(format!("-max_total_time={seconds}"))
            .arg(INPUT_LEN_MAX)
            .run()?;
        if keep {
            self::keep(target, &found, &kept)?;
        }
    }
    eprintln!("\n{} targets, {seconds} s each, no crash: {}", targets.len(), targets.join(", "));
    Ok(())
}

/// The fewest and shortest inputs that reach as much as all of them.
fn keep(target: &str, found: &str, kept: &str) -> anyhow::Result<()> {
    let merged = format!("target/fuzz/{target}.merged");
    let folder = repository_root().join(&merged);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    cargo(["+nightly", "fuzz", "run", target, &merged, kept, found, "--"])
        .arg("-set_cover_merge=1")
        .arg(INPUT_LEN_MAX)
        .run()?;
    let mut inputs: Vec<(u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        inputs.push((entry.metadata()?.len(), entry.path()));
    }
    inputs.sort();
    inputs.truncate(KEPT_MAX);
    let kept = repository_root().join(kept);
    fs::remove_dir_all(&kept)?;
    fs::create_dir_all(&kept)?;
    for (_, input) in inputs {
        let name = input.file_name().map(Path::new).context("a file has a name")?;
        fs::copy(&input, kept.join(name))?;
    }
    Ok(())
}
