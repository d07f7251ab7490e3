//! Runs the targets of `fuzz/`, which is a workspace of its own because it needs nightly, and
//! keeps what they find worth keeping.
//!
//! What a run finds goes to the build folder. Three folders of `fuzz/` are part of the repository
//! and of the tests: `corpus`, the least that leads everywhere, which changes when asked to;
//! `bounds`, inputs as long as the code reads them; and `regressions`, inputs that once failed.
//! The last two are written by hand, and nothing here removes any of them.

use std::fs;

use anyhow::{Context, bail, ensure};

use crate::install::Tool;
use crate::invocation::{cargo, repository_root};

const CORPUS: &str = "corpus";
const BY_HAND: [&str; 2] = ["bounds", "regressions"];

/// An input that takes longer than this hangs. Waiting for a busy machine does not.
const TIMEOUT: &str = "-timeout=120";
/// Long inputs are there to be varied, though short ones may lead just as far.
const KEEP_SEED: &str = "-keep_seed=1";

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
        let found = format!("target/fuzz/{target}");
        fs::create_dir_all(repository_root().join(&found))
            .with_context(|| format!("cannot make {found}"))?;
        let mut command = cargo(["+nightly", "fuzz", "run", target, &found]);
        for folder in kept(target) {
            command = command.arg(folder);
        }
        command
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={}", len_max(target)?))
            .arg(TIMEOUT)
            .arg(KEEP_SEED)
            .arg("-print_final_stats=1")
            .run()
            .with_context(|| {
                format!("once it is fixed, its input belongs in fuzz/regressions/{target}")
            })?;
        if keep {
            self::keep(target, &found)?;
        }
    }
    eprintln!("\n{} targets, {seconds} s each, no crash: {}", targets.len(), targets.join(", "));
    Ok(())
}

/// The longest input of a target, in bytes: somewhat more than what the code reads at once, so
/// that its bounds are tried from both sides. How long inputs get depends on those to begin with,
/// so `fuzz/bounds` has some of about this length.
fn len_max(target: &str) -> anyhow::Result<usize> {
    let kib = match target {
        // As many steps as there can be, of the longest kind: 512 of 8 and of 52 bytes.
        "cell" => 5,
        "shard" => 27,
        // A greeting ends after 4 KiB.
        "hello" => 5,
        // Files have no bound; this is twenty of the longest leases, or hundreds of short ones.
        "snapshot" | "stable" => 16,
        // A head of 32 KiB and a body of 16.
        "http" => 50,
        // A configuration has no bound either. Longer ones only repeat themselves.
        "config" => 64,
        // A request ends after 64 KiB, and a client reads as much at a time.
        "client" | "resp" => 80,
        // A server reads two requests ahead.
        "session" => 144,
        // A frame ends after 256 KiB.
        "frame" | "peer" => 260,
        _ => bail!("how long are the inputs of {target}? Say so in xtask/src/fuzz.rs"),
    };
    Ok(kib << 10)
}

/// The folders of a target in the repository, as far as there are any.
fn kept(target: &str) -> Vec<String> {
    let kinds = [CORPUS].into_iter().chain(BY_HAND);
    let folders = kinds.map(|kind| format!("fuzz/{kind}/{target}"));
    folders.filter(|folder| repository_root().join(folder).is_dir()).collect()
}

/// Makes a target's corpus the fewest inputs that, beside those written by hand, take every branch
/// that anything found or kept takes. How often they take it is not looked at: the corpus would
/// have several times as many bytes, and it is part of every checkout.
fn keep(target: &str, found: &str) -> anyhow::Result<()> {
    let merged = format!("target/fuzz/{target}.merged");
    let corpus = format!("fuzz/{CORPUS}/{target}");
    let by_hand = BY_HAND.map(|kind| format!("fuzz/{kind}/{target}"));
    renew(&merged, &by_hand, |_| true)?;
    let len_max = format!("-max_len={}", len_max(target)?);
    fs::create_dir_all(repository_root().join(&corpus))?;
    cargo(["+nightly", "fuzz", "run", target, &merged, found, &corpus, "--"])
        .arg("-set_cover_merge=1")
        .arg("-use_counters=0")
        .arg(len_max)
        .run()?;
    renew(&corpus, &[merged], is_hash)
}

/// Whether libFuzzer named an input: by its SHA-1. People use words.
fn is_hash(name: &str) -> bool {
    name.len() == 40 && name.chars().all(|c| c.is_ascii_hexdigit())
}

/// Makes a folder of what others have, as far as it is wanted, and of nothing else.
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
    fn every_target_has_a_longest_input_and_none_that_is_kept_is_longer() {
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
