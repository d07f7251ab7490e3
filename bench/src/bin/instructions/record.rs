//! The recorded counts in `bench/instructions.toml`, and how the current counts compare with them.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::fmt;
use std::fs;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.toml");

const OPENING: &str = "\
# Instructions per operation of the hot paths, written by `cargo xtask instructions --record`.
# What each path is: `cargo run --release -p paxoslease-bench --bin instructions -- --help`
";

/// In percent: libc versions differ, and a daemon has timers.
const TOLERANCE: f64 = 3.0;
/// The absolute tolerance: in a short path, a few instructions are many percent.
const TOLERANCE_MIN: u64 = 8;
/// The heap decides whether the most expensive insert copies. A stall would cost ten times as much.
const TOLERANCE_WORST: f64 = 100.0;

pub(crate) const ADVICE: &str = "\
a hot path takes more instructions than recorded
  to see where they go:          cargo xtask instructions --show <path>
  if they are worth it, record:  cargo xtask instructions --record
and say in the commit what they are for";

pub(crate) type Counts = BTreeMap<String, u64>;

#[derive(Deserialize)]
pub(crate) struct Record {
    processor: String,
    instructions: Counts,
}

impl Record {
    pub(crate) fn of(instructions: Counts) -> Self {
        Self { processor: ARCH.to_owned(), instructions }
    }

    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
        toml::from_str(&text).with_context(|| format!("in {FILE}"))
    }

    pub(crate) fn write(&self) -> Result<()> {
        fs::write(FILE, self.to_string()).with_context(|| format!("cannot write {FILE}"))
    }

    /// Compares every path of the record and of the counts.
    pub(crate) fn compare(&self, counts: &Counts) -> Comparison {
        let paths: BTreeSet<&String> = self.instructions.keys().chain(counts.keys()).collect();
        let line = |path: &String| Line {
            path: path.clone(),
            before: self.instructions.get(path).copied(),
            now: counts.get(path).copied(),
        };
        let elsewhere = (self.processor != ARCH).then(|| self.processor.clone());
        Comparison { lines: paths.into_iter().map(line).collect(), elsewhere }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{OPENING}processor = \"{}\"\n\n[instructions]", self.processor)?;
        self.instructions.iter().try_for_each(|(path, count)| writeln!(f, "{path} = {count}"))
    }
}

struct Line {
    path: String,
    before: Option<u64>,
    now: Option<u64>,
}

impl Line {
    /// The change in percent, and the verdict; whether it fails the test.
    fn verdict(&self) -> (String, &'static str, bool) {
        let (before, now) = match (self.before, self.now) {
            (Some(before), Some(now)) => (before, now),
            // A path without a record has no guard.
            (None, _) => return (String::new(), "  NOT RECORDED", true),
            (_, None) => return (String::new(), "  NOT COUNTED ANY MORE", true),
        };
        let change = 100.0 * (now as f64 - before as f64) / (before as f64).max(1.0);
        let is_worst = self.path == Path::InsertWorst.name();
        let tolerance = if is_worst { TOLERANCE_WORST } else { TOLERANCE };
        let is_same = change.abs() <= tolerance || before.abs_diff(now) <= TOLERANCE_MIN;
        let (verdict, fails) = match change {
            _ if is_same => ("", false),
            0.0.. => ("  WORSE", true),
            _ => ("  better: record the gain, or it may be lost unnoticed", false),
        };
        (format!("{change:+.1}%"), verdict, fails)
    }
}

pub(crate) struct Comparison {
    lines: Vec<Line>,
    /// The processor of the record, if it differs from this one.
    elsewhere: Option<String>,
}

impl Comparison {
    pub(crate) fn is_worse(&self) -> bool {
        self.elsewhere.is_none() && self.lines.iter().any(|line| line.verdict().2)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        writeln!(f, "{:<16} {:>12} {:>12} {:>8}", "path", "recorded", "now", "change")?;
        for line in &self.lines {
            let (path, before, now) = (&line.path, shown(line.before), shown(line.now));
            let (change, verdict, _) = line.verdict();
            writeln!(f, "{path:<16} {before:>12} {now:>12} {change:>8}{verdict}")?;
        }
        if let Some(processor) = &self.elsewhere {
            writeln!(f, "Recorded on {processor}; on {ARCH} nothing is compared.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    fn compared(now: &[(&str, u64)]) -> Comparison {
        Record::of(counts(&[("pair", 1000), ("renewal", 500)])).compare(&counts(now))
    }

    #[test]
    fn more_instructions_than_the_tolerance_fail() {
        let worse = compared(&[("pair", 1031), ("renewal", 500)]);
        assert!(worse.is_worse());
        let text = worse.to_string();
        let line = text.lines().find(|line| line.contains("WORSE")).expect("it is named");
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["pair", "1000", "1031", "+3.1%", "WORSE"]);
        assert!(!compared(&[("pair", 1030), ("renewal", 500)]).is_worse());
    }

    #[test]
    fn a_few_instructions_of_a_short_path_do_not_count() {
        let record = Record::of(counts(&[("reply", 100)]));
        assert!(!record.compare(&counts(&[("reply", 108)])).is_worse());
        assert!(record.compare(&counts(&[("reply", 109)])).is_worse());
        assert!(!record.compare(&counts(&[("reply", 92)])).to_string().contains("gain"));
    }

    #[test]
    fn fewer_instructions_pass_with_the_advice_to_record() {
        let better = compared(&[("pair", 900), ("renewal", 500)]);
        assert!(!better.is_worse());
        assert!(better.to_string().contains("record the gain"), "{better}");
        assert!(!compared(&[("pair", 975), ("renewal", 500)]).to_string().contains("gain"));
    }

    #[test]
    fn a_path_without_a_record_fails_and_vice_versa() {
        assert!(compared(&[("pair", 1000), ("renewal", 500), ("sweep", 1)]).is_worse());
        assert!(compared(&[("pair", 1000)]).is_worse());
    }

    #[test]
    fn the_record_can_be_read_and_has_every_path() {
        use clap::ValueEnum as _;
        let record = Record::read().expect("it is in the repository");
        let again: Record = toml::from_str(&record.to_string()).expect("as it was written");
        assert_eq!(again.instructions, record.instructions);
        let paths = Path::value_variants().iter().map(|path| path.name());
        assert!(
            record.instructions.into_keys().eq(paths.collect::<std::collections::BTreeSet<_>>())
        );
    }
}
