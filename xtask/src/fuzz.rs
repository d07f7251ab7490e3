//! Runs the targets of `fuzz/`, which is a workspace of its own because it needs nightly.
//!
//! New inputs go to the build folder. Three folders of `fuzz/` are part of the repository and of
//! the tests: `corpus`, the fewest inputs with the coverage of all, which `--keep` rewrites;
//! `bounds`, inputs as long as the code reads them; and `regressions`, inputs that once failed. The
//! last two are written by hand, and nothing here removes any of them.

use std::fs;

use anyhow::{Context, ensure};

use crate::install;
use crate::invocation::{cargo, repository_root};

/// The longest input of each target, in KiB.
const LENGTHS: &str = include_str!("fuzz.txt");
const LENGTHS_PATH: &str = "xtask/src/fuzz.txt";

const CORPUS: &str = "corpus";
const BY_HAND: [&str; 2] = ["bounds", "regressions"];

/// An input that takes longer than this counts as a hang, also on a busy machine.
const TIMEOUT: &str = "-timeout=120";
/// Keeps long inputs, which the fuzzer varies, although short ones may have the same coverage.
const KEEP_SEED: &str = "-keep_seed=1";

/// Runs every target, or the named one, for `seconds` each. The first crash ends it and shows the
/// input. With `keep`, inputs with new coverage join the corpus.
pub(crate) fn run(seconds: u32, only: Option<&str>, keep: bool) -> anyhow::Result<()> {
    install::ensure("nightly fuzz")?;
    let list = cargo(["+nightly", "fuzz", "list"]).stdout()?;
    let wanted = |target: &&str| only.is_none_or(|only| only == *target);
    let targets: Vec<&str> = list.split_whitespace().filter(wanted).collect();
    ensure!(!targets.is_empty(), "no such target in fuzz/; there are:\n{list}");
    for target in &targets {
        let found = format!("target/fuzz/{target}");
        fs::create_dir_all(repository_root().join(&found))
            .with_context(|| format!("cannot make {found}"))?;
        let time = format!("-max_total_time={seconds}");
        let len = format!("-max_len={}", len_max(target)?);
        cargo(["+nightly", "fuzz", "run", target, &found])
            .args(kept(target))
            .args(["--", &time, &len, TIMEOUT, KEEP_SEED, "-print_final_stats=1"])
            .run()
            .with_context(|| format!("add its input to fuzz/regressions/{target} with the fix"))?;
        if keep {
            self::keep(target, &found)?;
        }
    }
    eprintln!("\n{} targets, {seconds} s each, no crash: {}", targets.len(), targets.join(", "));
    Ok(())
}

/// The longest input of a target, in bytes.
fn len_max(target: &str) -> anyhow::Result<usize> {
    let mut rows = LENGTHS.lines().filter_map(|line| line.split_once(' '));
    let (_, kib) = rows.find(|(name, _)| *name == target).with_context(|| {
        format!("how long are the inputs of {target}? Say so in {LENGTHS_PATH}")
    })?;
    Ok(kib.parse::<usize>()? << 10)
}

/// The folders of a target that exist in the repository.
fn kept(target: &str) -> Vec<String> {
    let kinds = [CORPUS].into_iter().chain(BY_HAND);
    let folders = kinds.map(|kind| format!("fuzz/{kind}/{target}"));
    folders.filter(|folder| repository_root().join(folder).is_dir()).collect()
}

/// Replaces the corpus of a target by the fewest inputs that, with those written by hand, take
/// every branch that any input takes. It does not count how often they take it, which would make
/// the corpus several times as large.
fn keep(target: &str, found: &str) -> anyhow::Result<()> {
    let merged = format!("target/fuzz/{target}.merged");
    let corpus = format!("fuzz/{CORPUS}/{target}");
    let by_hand = BY_HAND.map(|kind| format!("fuzz/{kind}/{target}"));
    renew(&merged, &by_hand, |_| true)?;
    let len_max = format!("-max_len={}", len_max(target)?);
    fs::create_dir_all(repository_root().join(&corpus))?;
    cargo(["+nightly", "fuzz", "run", target, &merged, found, &corpus])
        .args(["--", "-set_cover_merge=1", "-use_counters=0", &len_max])
        .run()?;
    renew(&corpus, &[merged], is_hash)
}

/// Whether libFuzzer named an input, by its SHA-1.
fn is_hash(name: &str) -> bool {
    name.len() == 40 && name.chars().all(|c| c.is_ascii_hexdigit())
}

/// Replaces the contents of a folder by the wanted files of other folders.
fn renew(folder: &str, from: &[String], is_wanted: fn(&str) -> bool) -> anyhow::Result<()> {
    let to = repository_root().join(folder);
    if to.exists() {
        fs::remove_dir_all(&to).with_context(|| format!("cannot empty {folder}"))?;
    }
    fs::create_dir_all(&to).with_context(|| format!("cannot make {folder}"))?;
    for from in from {
        let Ok(inputs) = fs::read_dir(repository_root().join(from)) else { continue };
        for input in inputs {
            let input = input?;
            if is_wanted(&input.file_name().to_string_lossy()) {
                fs::copy(input.path(), to.join(input.file_name()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kept_input_is_longer_than_its_target_allows() {
        let targets = fs::read_dir(repository_root().join("fuzz/fuzz_targets")).expect("readable");
        for file in targets {
            let path = file.expect("readable").path();
            let target = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            let len_max = len_max(target).expect("known");
            for folder in kept(target) {
                for input in fs::read_dir(repository_root().join(folder)).expect("readable") {
                    let path = input.expect("readable").path();
                    assert!(fs::read(&path).expect("readable").len() <= len_max, "{path:?}");
                }
            }
        }
    }
}
