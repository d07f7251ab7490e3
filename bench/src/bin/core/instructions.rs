//! Instructions per operation, counted by callgrind: the same on a busy machine and a quiet one.
//!
//! Each workload runs twice, the second time with twice the operations; the difference is free of
//! what preparing costs. By function, it shows where the instructions go.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use paxoslease_bench::report::Section;

use crate::acceptor::{Asked, scattered};
use crate::cell::Rig;
use crate::names::Names;

/// Live leases in the table that Renew is counted on.
const TABLE: u32 = 100_000;
/// Names in the cell: few, so that all are known soon.
const NAMES: u32 = 1 << 12;
/// Operations until every name is known and as much is in flight as ever will be.
const WARMING: u64 = 40_000;
/// Functions shown of a profile.
const SHOWN: usize = 20;

/// What can be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Workload {
    /// Acquire and release in a cell of three, through the codec
    Pair,
    /// Renewal in a cell of three, through the codec
    Renewal,
    /// Propose of a new name at an acceptor
    Insert,
    /// Renew at an acceptor with 100 thousand leases, at random
    Renew,
}

impl Workload {
    /// Prepares the same for any number of operations, then carries them out.
    pub(crate) fn run(self, operations: u32) {
        match self {
            Self::Pair => {
                let mut rig = Rig::new(64, NAMES);
                rig.run(2 * WARMING);
                rig.run(2 * u64::from(operations));
            }
            Self::Renewal => {
                let mut rig = Rig::new(64, NAMES);
                rig.hold_all_and_renew(64);
                rig.run(WARMING);
                rig.run(u64::from(operations));
            }
            Self::Insert => {
                let names = Names::of(0..2 * TABLE);
                let mut asked = Asked::new();
                (0..operations as usize).for_each(|at| asked.propose(&names, at));
            }
            Self::Renew => {
                let names = Names::of(0..TABLE);
                let mut asked = Asked::new();
                (0..names.len()).for_each(|at| asked.propose(&names, at));
                for pick in scattered(TABLE).take(operations as usize) {
                    asked.renew(&names, pick as usize, pick);
                }
            }
        }
    }
}

pub(crate) fn measure(quick: bool) -> Result<Vec<Section>> {
    let mut section = Section::new("instructions", "Instructions, counted by callgrind");
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        section.note("Skipped: valgrind is not installed.");
        return Ok(vec![section]);
    }
    let operations = if quick { 10_000 } else { 40_000 };
    let mut sections = Vec::new();
    for (workload, what) in [
        (Workload::Pair, "acquire+release, three nodes and codec, 64 in flight"),
        (Workload::Renewal, "renewal, three nodes and codec, 64 in flight"),
        (Workload::Insert, "Propose of a new name, one acceptor"),
        (Workload::Renew, "random Renew on 100 thousand leases, one acceptor"),
    ] {
        let profile = Profile::of(workload, operations)?;
        section.figure(what, profile.total, "instructions");
        if workload == Workload::Pair {
            let title = "Where the instructions of a pair go: in the function itself";
            sections.push(profile.section("pair_self", title, &profile.own));
            let title = "Where the instructions of a pair go: with all it calls";
            sections.push(profile.section("pair_inclusive", title, &profile.inclusive));
        }
    }
    sections.insert(0, section);
    Ok(sections)
}

type ByFunction = BTreeMap<String, f64>;

/// Instructions per operation.
struct Profile {
    total: f64,
    own: ByFunction,
    inclusive: ByFunction,
}

impl Profile {
    fn of(workload: Workload, operations: u32) -> Result<Self> {
        let once = Collected::of(workload, operations)?;
        let twice = Collected::of(workload, 2 * operations)?;
        let (total, own) = twice.less(&once, operations, OWN)?;
        let (_, inclusive) = twice.less(&once, operations, INCLUSIVE)?;
        Ok(Self { total, own, inclusive })
    }

    fn section(&self, key: &'static str, title: &str, by_function: &ByFunction) -> Section {
        let mut section = Section::new(key, title);
        let mut functions: Vec<_> = by_function.iter().collect();
        // Whatever contains everything says nothing.
        functions.retain(|(_, count)| **count < 0.99 * self.total);
        functions.sort_by(|a, b| b.1.total_cmp(a.1));
        for (function, count) in functions.into_iter().take(SHOWN) {
            let share = 100.0 * count / self.total;
            section.figure(format!("{share:4.1}% {}", shortened(function)), *count, "instructions");
        }
        section
    }
}

/// The end of a path tells more than its beginning.
fn shortened(function: &str) -> String {
    const LEN_MAX: usize = 46;
    let plain = function.replace("paxoslease_core::", "").replace("paxoslease_wire::", "");
    let skipped = plain.chars().count().saturating_sub(LEN_MAX);
    plain.chars().skip(skipped).collect()
}

/// What callgrind wrote about one run; deleted with this.
struct Collected(PathBuf);

impl Collected {
    fn of(workload: Workload, operations: u32) -> Result<Self> {
        let name = format!("paxoslease-bench-{}-{operations}.callgrind", std::process::id());
        let collected = Self(env::temp_dir().join(name));
        let workload = workload.to_possible_value().expect("every workload has a name");
        let output = Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", collected.0.display()))
            .arg(env::current_exe()?)
            .args(["count", workload.get_name(), &operations.to_string()])
            .output()
            .context("starting valgrind")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(collected)
    }

    /// Instructions per operation, in all and by function: this run's less the other's.
    fn less(&self, other: &Self, operations: u32, how: &str) -> Result<(f64, ByFunction)> {
        let (mut counts, fewer) = (self.counts(how)?, other.counts(how)?);
        for (function, count) in fewer {
            *counts.entry(function).or_default() -= count;
        }
        counts.values_mut().for_each(|count| *count /= f64::from(operations));
        let total = counts.remove(TOTALS).context("callgrind_annotate shows no totals")?;
        Ok((total, counts))
    }

    fn counts(&self, how: &str) -> Result<ByFunction> {
        let output = Command::new("callgrind_annotate")
            .args(["--threshold=100", "--auto=no", how])
            .arg(&self.0)
            .output()
            .context("starting callgrind_annotate")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut counts = ByFunction::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some((function, count)) = counted(line) else { continue };
            let known = counts.entry(function.to_owned()).or_default();
            // Inlining spreads a function over files: its own instructions are split between
            // them, but each of them is shown with all that is called.
            *known = if how == INCLUSIVE { known.max(count) } else { *known + count };
        }
        Ok(counts)
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        // What cannot be deleted is left to whoever cleans the folder for temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

const OWN: &str = "--inclusive=no";
const INCLUSIVE: &str = "--inclusive=yes";
const TOTALS: &str = "PROGRAM TOTALS";

/// Reads `1,234 (56.7%)  file:function [object]`.
fn counted(line: &str) -> Option<(&str, f64)> {
    let (count, rest) = line.trim_start().split_once([' ', '('])?;
    let count: f64 = count.replace(',', "").parse().ok()?;
    let place = rest.rsplit_once("%)").map_or(rest, |(_, place)| place).trim();
    let place = place.rsplit_once(" [").map_or(place, |(place, _)| place);
    Some((place.split_once(':').map_or(place, |(_, function)| function), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_callgrind_annotate_gives_function_and_count() {
        let line = "88,315,685 (11.74%)  src/str.rs:core::str::from_utf8 [target/release/core]";
        assert_eq!(counted(line), Some(("core::str::from_utf8", 88_315_685.0)));
        let line = " 4,053,888 ( 0.54%)  src/a.rs:<impl a::B>::c";
        assert_eq!(counted(line), Some(("<impl a::B>::c", 4_053_888.0)));
        assert_eq!(counted("752 (100.0%)  PROGRAM TOTALS"), Some((TOTALS, 752.0)));
        assert_eq!(counted("Ir                   file:function"), None);
        assert_eq!(counted("----------"), None);
    }
}
