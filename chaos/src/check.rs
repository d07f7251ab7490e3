//! The judge of a chaos run: what the events of a run prove.
//!
//! [`judge`] is a pure function of the events. It trusts the clients' logs of their beliefs
//! ([`crate::log`] says why that is enough), and nothing that the cell reports about itself. Events
//! prove each violation: in doubt, there is none. Deliberately lacks seeds, schedules and
//! processes.

mod beliefs;
mod counts;
mod enough;
mod gaps;
mod health;
mod kept;
mod liveness;
mod releases;
mod requests;
mod tenures;
#[cfg(test)]
mod tests;
mod turns;
mod writes;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

pub use counts::{Counts, Tally};
pub use gaps::{FaultGaps, Gap};
pub use health::{FaultSpan, Health};
pub use tenures::{Over, Tenure};

use crate::log::{Event, EventKind, Nanos};
use requests::Request;

/// What a healthy cell guarantees on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// From a confirmed release to the grant for a waiter.
    pub available: Duration,
    /// From the end of the last fault until the cell counts as healthy.
    pub settle: Duration,
    /// From healing until every client has logged something.
    pub silence: Duration,
    /// The longest time without a grant in a healthy cell.
    pub idle: Duration,
    /// The longest time without a grant through a healthy node with a majority.
    pub served: Duration,
    /// How many hand-overs per contender a waiter may see.
    pub turns: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            available: Duration::from_secs(3),
            settle: Duration::from_secs(10),
            silence: Duration::from_secs(15),
            idle: Duration::from_secs(3),
            served: Duration::from_secs(4),
            turns: 4,
        }
    }
}

/// A property that a run must have. The names state it; the texts state the violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
pub enum Rule {
    /// Invariant 1.
    OneHolder,
    /// Invariant 3.
    FencesRise,
    FencesAreUnique,
    StaleWritesAreRefused,
    HoldersMayWrite,
    /// No request is denied because of a tenure whose release was confirmed.
    ReleasesAreKept,
    /// A released name is granted to a waiter.
    ReleasedIsAvailable,
    /// No holder is told that its tenure is over before its belief ends.
    LeasesAreKept,
    HealedIsGranted,
    EveryNodeServes,
    ClientsAreHeard,
    HealthyIsGranted,
    MajorityServes,
    WaitersTakeTurns,
    /// Enough happened for the verdict to mean something.
    RunShowsEnough,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneHolder => "two holders at once",
            Self::FencesRise => "a fence that does not rise",
            Self::FencesAreUnique => "one fence for two tenures",
            Self::StaleWritesAreRefused => "a stale write was taken",
            Self::HoldersMayWrite => "a holder's write was refused",
            Self::ReleasesAreKept => "denied by a tenure that was given back",
            Self::ReleasedIsAvailable => "given back and not available",
            Self::LeasesAreKept => "a lease was forgotten",
            Self::HealedIsGranted => "not granted after healing",
            Self::EveryNodeServes => "a node that does not serve after healing",
            Self::ClientsAreHeard => "a client that fell silent",
            Self::HealthyIsGranted => "no grant though nothing was broken",
            Self::MajorityServes => "not served though only a minority was away",
            Self::WaitersTakeTurns => "passed over again and again",
            Self::RunShowsEnough => "the run shows too little",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub rule: Rule,
    pub name: String,
    pub at: Nanos,
    pub text: String,
    pub evidence: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct Verdict {
    /// By time.
    pub violations: Vec<Violation>,
    /// By the begin of the belief.
    pub tenures: Vec<Tenure>,
    pub health: Health,
    pub gaps: Vec<FaultGaps>,
    pub counts: Counts,
    /// The first logged instant, and the last one that counts.
    pub span: (Nanos, Nanos),
    pub judged: Coverage,
}

impl Violation {
    /// The evidence is that of a tenure, then more.
    fn of(rule: Rule, tenure: &Tenure, at: Nanos, text: String, more: &[Event]) -> Self {
        let evidence = tenure.evidence.iter().chain(more).cloned().collect();
        Self { rule, name: tenure.name.clone(), at, text, evidence }
    }
}

impl Verdict {
    pub fn count(&self, rule: Rule) -> usize {
        self.violations.iter().filter(|violation| violation.rule == rule).count()
    }
}

/// How much each check had to judge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    pub healings: u64,
    /// Names that had to be granted after healings.
    pub names: u64,
    /// Nodes that had to serve after healings.
    pub nodes: u64,
    /// Healings after which every client had to log something.
    pub clients: u64,
    /// Releases with a waiter, and no other obstacle.
    pub releases: u64,
    /// The longest wait after such a release.
    pub longest_wait: Nanos,
    /// How long the cell was healthy.
    pub healthy: Nanos,
    /// How long nodes with a majority had to serve during faults, summed over nodes.
    pub minority: Nanos,
    pub longest_unserved: Nanos,
    /// Requests that waited in a healthy cell.
    pub waits: u64,
    /// The most hand-overs to others during one of these waits.
    pub most_turns: u64,
}

#[derive(Clone, Copy)]
struct Run<'a> {
    events: &'a [Event],
    /// By the begin of the belief.
    tenures: &'a [Tenure],
    requests: &'a [Request],
    health: &'a Health,
    bounds: Bounds,
    last: Nanos,
}

/// The tenures of each name.
fn by_name(tenures: &[Tenure]) -> BTreeMap<&str, Vec<&Tenure>> {
    let mut by_name: BTreeMap<&str, Vec<&Tenure>> = BTreeMap::new();
    for tenure in tenures {
        by_name.entry(&tenure.name).or_default().push(tenure);
    }
    by_name
}

/// Judges a run by its events, ordered by time.
pub fn judge(events: &[Event], bounds: Bounds) -> Verdict {
    let closed = events.iter().find(|event| event.what == EventKind::Closed);
    let span = span(events, closed);
    let tenures = tenures::collect(events);
    let requests = requests::collect(events);
    let health = Health::of(events, span.1, nanos(bounds.settle));
    let run = Run {
        events,
        tenures: &tenures,
        requests: &requests,
        health: &health,
        bounds,
        last: span.1,
    };
    let mut judged = Coverage::default();
    let mut violations = beliefs::violations(&tenures);
    violations.extend(writes::violations(events, &tenures));
    violations.extend(kept::violations(run));
    violations.extend(releases::violations(run, &mut judged));
    violations.extend(run.liveness(&mut judged));
    violations.extend(turns::violations(run, &mut judged));
    let gaps = gaps::by_fault(run, span);
    let counts = counts::count(events, &tenures);
    if closed.is_some() {
        violations.extend(enough::violations(&counts, &judged, &health, span.1));
    }
    violations.sort_by_key(|violation| violation.at);
    Verdict { violations, tenures, health, gaps, counts, span, judged }
}

/// Beliefs may end after the last event; the run does not.
fn span(events: &[Event], closed: Option<&Event>) -> (Nanos, Nanos) {
    let first = events.first().map_or(0, |event| event.at);
    (first, closed.or(events.last()).map_or(first, |event| event.at))
}

pub fn format_nanos(nanos: Nanos) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        10_000_000..1_000_000_000 => format!("{:.0} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

pub(crate) const fn nanos(span: Duration) -> Nanos {
    span.as_nanos() as Nanos
}
