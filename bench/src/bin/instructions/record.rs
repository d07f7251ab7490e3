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

    /// Compares every path of the record and of the counts: a table, and whether the test fails.
    pub(crate) fn compare(&self, counts: &Counts) -> (String, bool) {
        let mut text = format!("{:<16} {:>12} {:>12} {:>8}\n", "path", "recorded", "now", "change");
        let mut is_worse = false;
        let paths: BTreeSet<&String> = self.instructions.keys().chain(counts.keys()).collect();
        for path in paths {
            let (before, now) = (self.instructions.get(path), counts.get(path));
            let (change, verdict, fails) = verdict(path, before, now);
            let [before, now] =
                [before, now].map(|count| count.map_or_else(|| "-".to_owned(), u64::to_string));
            text += &format!("{path:<16} {before:>12} {now:>12} {change:>8}{verdict}\n");
            is_worse |= fails;
        }
        if self.processor == ARCH {
            return (text, is_worse);
        }
        let processor = &self.processor;
        (format!("{text}Recorded on {processor}; on {ARCH} nothing is compared.\n"), false)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{OPENING}processor = \"{}\"\n\n[instructions]", self.processor)?;
        self.instructions.iter().try_for_each(|(path, count)| writeln!(f, "{path} = {count}"))
    }
}

/// The change in percent, and the verdict; whether it fails the test.
fn verdict(path: &str, before: Option<&u64>, now: Option<&u64>) -> (String, &'static str, bool) {
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (*before, *now),
        // A path without a record has no guard.
        (None, _) => return (String::new(), "  NOT RECORDED", true),
        (_, None) => return (String::new(), "  NOT COUNTED ANY MORE", true),
    };
    let change = 100.0 * (now as f64 - before as f64) / (before as f64).max(1.0);
    let is_worst = path == Path::InsertWorst.name();
    let tolerance = if is_worst { TOLERANCE_WORST } else { TOLERANCE };
    let is_same = change.abs() <= tolerance || before.abs_diff(now) <= TOLERANCE_MIN;
    let (verdict, fails) = match change {
        _ if is_same => ("", false),
        0.0.. => ("  WORSE", true),
        _ => ("  better: record the gain, or it may be lost unnoticed", false),
    };
    (format!("{change:+.1}%"), verdict, fails)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect()
    }

    /// Whether the comparison of these counts fails, and its line about the path `pair`.
    fn compared(before: u64, now: &[(&str, u64)]) -> (bool, String) {
        let (text, is_worse) = Record::of(counts(&[("pair", before)])).compare(&counts(now));
        let words: Vec<_> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        (is_worse, words.join(" "))
    }

    #[test]
    fn more_instructions_than_both_tolerances_fail() {
        let gain = "better: record the gain, or it may be lost unnoticed";
        for (before, now, is_worse, shown) in [
            (1000, 1031, true, "+3.1% WORSE"),
            (1000, 1030, false, "+3.0%"),
            (1000, 975, false, "-2.5%"),
            (1000, 900, false, &format!("-10.0% {gain}")),
            (100, 108, false, "+8.0%"),
            (100, 109, true, "+9.0% WORSE"),
            (100, 92, false, "-8.0%"),
        ] {
            let line = format!("pair {before} {now} {shown}");
            assert_eq!(compared(before, &[("pair", now)]), (is_worse, line));
        }
    }

    #[test]
    fn a_path_without_a_record_fails_and_vice_versa() {
        assert!(compared(1000, &[("pair", 1000), ("sweep", 1)]).0);
        assert_eq!(compared(1000, &[]), (true, "pair 1000 - NOT COUNTED ANY MORE".to_owned()));
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
