//! What the hot paths cost when it was last recorded, in `bench/instructions.toml`, and how that
//! compares with what they cost now.

use std::collections::BTreeMap;
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

/// What a count may be off by, in percent: other versions of libc, and in a daemon what comes by
/// the clock.
const TOLERANCE: f64 = 3.0;
/// And in instructions, since of a short path a few are many percent.
const TOLERANCE_MIN: u64 = 8;
/// Whether the most expensive insert copies what it makes room for is up to what else is on the
/// heap. A stall would be ten times as much.
const TOLERANCE_WORST: f64 = 100.0;

/// For those who made a path worse.
pub(crate) const ADVICE: &str = "\
a hot path takes more instructions than recorded
  to see where they go:          cargo xtask instructions --show <path>
  if they are worth it, record:  cargo xtask instructions --record
and say in the commit what they are for";

/// Instructions per operation, by path.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Counts, and the processors they are for.
#[derive(Deserialize)]
pub(crate) struct Record {
    processor: String,
    instructions: Counts,
}

impl Record {
    /// Counts of this machine.
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

    /// Every path of either.
    pub(crate) fn compare(&self, counts: &Counts) -> Comparison {
        let mut lines: BTreeMap<&String, (Option<u64>, Option<u64>)> = BTreeMap::new();
        for (path, count) in &self.instructions {
            lines.entry(path).or_default().0 = Some(*count);
        }
        for (path, count) in counts {
            lines.entry(path).or_default().1 = Some(*count);
        }
        let lines = lines.into_iter().map(|(path, counts)| Line { path: path.clone(), counts });
        let elsewhere = (self.processor != ARCH).then(|| self.processor.clone());
        Comparison { lines: lines.collect(), elsewhere }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{OPENING}processor = \"{}\"\n\n[instructions]", self.processor)?;
        self.instructions.iter().try_for_each(|(path, count)| writeln!(f, "{path} = {count}"))
    }
}

/// A path's count, as recorded and now.
struct Line {
    path: String,
    counts: (Option<u64>, Option<u64>),
}

/// What is to be said of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Same,
    Worse,
    Better,
    /// It is not recorded yet.
    New,
    /// It is counted no more.
    Gone,
}

impl Line {
    /// In percent.
    fn change(&self) -> Option<f64> {
        let (Some(before), Some(now)) = self.counts else { return None };
        Some(100.0 * (now as f64 - before as f64) / (before as f64).max(1.0))
    }

    fn verdict(&self) -> Verdict {
        let worst = self.path == Path::InsertWorst.name();
        let tolerance = if worst { TOLERANCE_WORST } else { TOLERANCE };
        let is_near = matches!(self.counts, (Some(before), Some(now))
            if before.abs_diff(now) <= TOLERANCE_MIN);
        match (self.counts, self.change()) {
            (_, Some(change)) if change > tolerance && !is_near => Verdict::Worse,
            (_, Some(change)) if change < -tolerance && !is_near => Verdict::Better,
            (_, Some(_)) => Verdict::Same,
            ((None, _), None) => Verdict::New,
            ((Some(_), _), None) => Verdict::Gone,
        }
    }
}

/// All paths, for people; [`Self::is_worse`] is what a test goes by.
pub(crate) struct Comparison {
    lines: Vec<Line>,
    /// The record is for these processors, and this is another one.
    elsewhere: Option<String>,
}

impl Comparison {
    /// Whether the record has to be looked at before this may pass. A path it does not know counts
    /// too: what nobody recorded, nobody guards.
    pub(crate) fn is_worse(&self) -> bool {
        let passes = |line: &Line| matches!(line.verdict(), Verdict::Same | Verdict::Better);
        self.elsewhere.is_none() && !self.lines.iter().all(passes)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        writeln!(f, "{:<16} {:>12} {:>12} {:>8}", "path", "recorded", "now", "change")?;
        for line in &self.lines {
            let (before, now) = line.counts;
            let change = line.change().map_or_else(String::new, |change| format!("{change:+.1}%"));
            let verdict = match line.verdict() {
                Verdict::Same => "",
                Verdict::Worse => "  WORSE",
                Verdict::Better => "  better: record the gain, or it may be lost unnoticed",
                Verdict::New => "  NOT RECORDED",
                Verdict::Gone => "  COUNTED NO MORE",
            };
            let (path, before, now) = (&line.path, shown(before), shown(now));
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
    fn more_instructions_than_the_tolerance_fail_and_the_path_is_named() {
        let worse = compared(&[("pair", 1031), ("renewal", 500)]);
        assert!(worse.is_worse());
        let text = worse.to_string();
        let line = text.lines().find(|line| line.contains("WORSE")).expect("it is named");
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["pair", "1000", "1031", "+3.1%", "WORSE"]);
        assert!(!compared(&[("pair", 1030), ("renewal", 500)]).is_worse());
    }

    #[test]
    fn a_few_instructions_of_a_short_path_are_no_change() {
        let record = Record::of(counts(&[("reply", 100)]));
        assert!(!record.compare(&counts(&[("reply", 108)])).is_worse());
        assert!(record.compare(&counts(&[("reply", 109)])).is_worse());
        assert!(!record.compare(&counts(&[("reply", 92)])).to_string().contains("gain"));
    }

    #[test]
    fn fewer_instructions_pass_and_the_gain_is_to_be_recorded() {
        let better = compared(&[("pair", 900), ("renewal", 500)]);
        assert!(!better.is_worse());
        assert!(better.to_string().contains("record the gain"), "{better}");
        assert!(!compared(&[("pair", 975), ("renewal", 500)]).to_string().contains("gain"));
    }

    #[test]
    fn a_path_without_a_record_fails_and_so_does_a_record_without_a_path() {
        assert!(compared(&[("pair", 1000), ("renewal", 500), ("sweep", 1)]).is_worse());
        assert!(compared(&[("pair", 1000)]).is_worse());
    }

    #[test]
    fn a_record_of_other_processors_is_shown_and_compares_nothing() {
        let mut record = Record::of(counts(&[("pair", 1000)]));
        record.processor = "z80".to_owned();
        let comparison = record.compare(&counts(&[("pair", 2000)]));
        assert!(!comparison.is_worse());
        assert!(comparison.to_string().contains("Recorded on z80"), "{comparison}");
    }

    #[test]
    fn what_is_written_is_read_again_and_the_record_knows_every_path() {
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
