//! The result of a judge.

use std::collections::BTreeMap;
use std::fmt;

/// The most violations kept: one mistake often shows many times.
const VIOLATIONS_MAX: usize = 100;

/// Whether the clocks of the cell stayed within its drift. Only then can instants of different
/// nodes be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clocks {
    /// Every clock stayed within the drift.
    WithinDrift,
    /// Some clock did not: rules that depend on the drift are not judged.
    Outside,
}

/// What a judge checked and found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The number of traces: one for each shard of each start of a node.
    pub traces: usize,
    /// The number of steps replayed.
    pub steps: u64,
    /// The number of traces whose last line is torn or that reached their bound.
    pub cut_short: usize,
    /// How often each rule was checked.
    pub checks: BTreeMap<&'static str, u64>,
    /// The broken rules, each with what was seen; at most the first hundred.
    pub violations: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn check(&mut self, rule: &'static str, holds: bool, seen: impl FnOnce() -> String) {
        *self.checks.entry(rule).or_default() += 1;
        if !holds && self.violations.len() < VIOLATIONS_MAX {
            self.violations.push((rule, seen()));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks: u64 = self.checks.values().sum();
        write!(
            f,
            "{} traces ({} cut short), {} steps replayed, {} rules checked {checks} times, {} \
             violations",
            self.traces,
            self.cut_short,
            self.steps,
            self.checks.len(),
            self.violations.len()
        )
    }
}
