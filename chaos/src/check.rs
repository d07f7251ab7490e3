//! The judge: what the events of a run prove, whatever the run was.
//!
//! [`judge`] is a pure function: the same events give the same verdict. It trusts the clients' logs
//! (they say what they believed, [`crate::log`] says why that is enough) and nothing that the cell
//! says of itself. Whatever cannot be known is held in the cell's favour: a violation is proven by
//! the events that come with it, never guessed. Deliberately lacks any knowledge of seeds,
//! schedules and processes.

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

use std::fmt;
use std::time::Duration;

pub(crate) use counts::contended;
pub use counts::{Counts, Tally};
pub use gaps::{Gap, Gaps};
pub use health::{FaultSpan, Health};
pub use tenures::{Over, Tenure};

use crate::log::{Event, Nanos, What};
use requests::Request;

/// What a healthy cell owes its clients, on the machine it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How soon after a confirmed release whoever waits has the lease.
    pub available: Duration,
    /// How long after the last fault a cell counts as healthy again.
    pub settle: Duration,
    /// How long after healing every client must have been heard of.
    pub silence: Duration,
    /// The longest time without any grant while nothing is broken.
    pub idle: Duration,
    /// The longest time without a grant through a node that is well and has a majority.
    pub served: Duration,
    /// Through how many hand-overs for each contender a waiter may have to wait.
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

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// Two beliefs in one name met (invariant 1).
    OneHolder,
    /// A later tenure has a fence that is not greater (invariant 3).
    FencesRise,
    /// Two tenures have one fence.
    FencesAreUnique,
    /// The fenced store took a write that came late.
    StaleWritesAreRefused,
    /// The fenced store refused a write of whoever held the lease.
    HoldersMayWrite,
    /// Somebody was denied because of a tenure whose release had been confirmed.
    ReleasesAreKept,
    /// A name that was given back was not granted to whoever waited for it.
    ReleasedIsAvailable,
    /// Somebody was told, before its belief was over, that its tenure was.
    LeasesAreKept,
    /// A name was not granted again after everything was mended.
    HealedIsGranted,
    /// A node granted nothing, or took nothing back, after everything was mended.
    EveryNodeServes,
    /// A client was not heard of after everything was mended.
    ClientsAreHeard,
    /// Nothing was granted for long, though nothing was broken.
    HealthyIsGranted,
    /// A node that had a majority granted nothing for long, though only a minority was away.
    MajorityServes,
    /// A client waited while others had the name over and over.
    WaitersTakeTurns,
    /// Too little happened for the verdict to mean anything.
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

/// A broken rule, with the events that prove it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// For which name.
    pub name: String,
    /// When it became true.
    pub at: Nanos,
    /// In words, with the figures.
    pub text: String,
    /// The proof.
    pub evidence: Vec<Event>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Everything that must not be, by time. Empty is what we want.
    pub violations: Vec<Violation>,
    /// Everything that was held, by the begin of the belief.
    pub tenures: Vec<Tenure>,
    /// Everything that was broken, and when nothing was.
    pub health: Health,
    /// The longest times without a grant, by kind of fault.
    pub gaps: Vec<Gaps>,
    /// How much happened, by kind of client.
    pub counts: Counts,
    /// The first instant that was logged, and the last that counts.
    pub span: (Nanos, Nanos),
    /// How much there was to judge.
    pub judged: Judged,
}

impl Verdict {
    /// How many violations of a rule there are.
    #[must_use]
    pub fn count(&self, rule: Rule) -> usize {
        self.violations.iter().filter(|violation| violation.rule == rule).count()
    }
}

/// How often a rule that needs an occasion had one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// How many times everything was declared mended.
    pub healings: u64,
    /// Names that had to be granted again, in all healings.
    pub names: u64,
    /// Nodes that had to serve, in all healings.
    pub nodes: u64,
    /// Healings in which every client had to be heard of.
    pub clients: u64,
    /// Releases that somebody waited for, with nothing else in the way.
    pub releases: u64,
    /// The longest that anybody waited after such a release.
    pub longest_wait: Nanos,
    /// How long nothing was broken, nor had been shortly before.
    pub healthy: Nanos,
    /// How long nodes with a majority had to serve while something was broken, all nodes together.
    pub minority: Nanos,
    /// The longest time without a grant through such a node.
    pub longest_unserved: Nanos,
    /// Requests that waited where nothing was broken.
    pub waits: u64,
    /// Through how many hand-overs to others any of these waited.
    pub most_turns: u64,
}

/// What there is to judge by.
#[derive(Clone, Copy)]
struct Run<'a> {
    events: &'a [Event],
    /// By the begin of the belief.
    tenures: &'a [Tenure],
    requests: &'a [Request],
    health: &'a Health,
    bounds: Bounds,
    /// The last instant that counts.
    last: Nanos,
}

/// Judges a run by its events, which are in the order of time.
#[must_use]
pub fn judge(events: &[Event], bounds: Bounds) -> Verdict {
    let closed = events.iter().find(|event| event.what == What::Closed);
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
    let mut judged = Judged::default();
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

/// Beliefs may reach beyond the last thing that happened; a run does not.
fn span(events: &[Event], closed: Option<&Event>) -> (Nanos, Nanos) {
    let first = events.first().map_or(0, |event| event.at);
    (first, closed.or(events.last()).map_or(first, |event| event.at))
}

/// Nanoseconds, for people.
#[must_use]
pub fn spoken(nanos: Nanos) -> String {
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
