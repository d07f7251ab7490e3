//! What a judge found.

use std::collections::BTreeMap;
use std::fmt;

/// How many violations are kept; one mistake is often seen again and again.
const VIOLATIONS_MAX: usize = 100;

/// Whether the clocks of the cell stayed within its drift, so that instants of different nodes can
/// be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clocks {
    /// They did.
    WithinDrift,
    /// They did not: rules that rest on it are not judged.
    Outside,
}

/// What a judge looked at and found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Traces: one for each shard of each start of a node.
    pub traces: usize,
    /// Steps replayed.
    pub steps: u64,
    /// Traces whose last line is torn or whose bound was reached.
    pub cut_short: usize,
    /// How often each rule was looked at.
    pub checks: BTreeMap<&'static str, u64>,
    /// The rules that were broken, each with what was seen; the first hundred.
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
            "{} traces ({} cut short), {} steps replayed, {} rules looked at {checks} times, {} \
             violations",
            self.traces,
            self.cut_short,
            self.steps,
            self.checks.len(),
            self.violations.len()
        )
    }
}
