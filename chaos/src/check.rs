//! The judge: what the events of a run prove, whatever the run was.
//!
//! [`judge`] is a pure function: the same events give the same verdict. It trusts the clients' logs
//! (they say what they believed, [`crate::log`] says why that is enough) and nothing that the cell
//! says of itself. Whatever cannot be known is held in the cell's favour: a violation is proven by
//! the events that come with it, never guessed. Deliberately lacks any knowledge of seeds,
//! schedules and processes.

mod beliefs;
mod counts;
mod gaps;
mod health;
mod liveness;
mod releases;
mod requests;
mod tenures;
#[cfg(test)]
mod tests;
mod writes;

use std::fmt;
use std::time::Duration;

pub use counts::{Counts, Tally};
pub use gaps::{Gap, Gaps};
pub use health::{FaultSpan, Health};
pub use tenures::Tenure;

use crate::log::{Event, Nanos};
use requests::Request;

/// What a healthy cell owes its clients, on the machine it runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How soon after a confirmed release whoever waits has the lease.
    pub available: Duration,
    /// How long after the last fault a cell counts as healthy again.
    pub settle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { available: Duration::from_secs(3), settle: Duration::from_secs(10) }
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
    /// A name was not granted again after everything was mended.
    HealedIsGranted,
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
            Self::HealedIsGranted => "not granted after healing",
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
    /// The first and the last instant that was logged.
    pub span: (Nanos, Nanos),
    /// How many times a cell was declared healed, and for how many (name, healing) pairs a grant
    /// was demanded.
    pub healings: (u64, u64),
}

/// Judges a run by its events, which are in the order of time.
#[must_use]
pub fn judge(events: &[Event], bounds: Bounds) -> Verdict {
    let span = span(events);
    let tenures = tenures::collect(events);
    let requests = requests::collect(events);
    let health = Health::of(events, span.1, nanos(bounds.settle));
    let mut violations = beliefs::violations(&tenures);
    violations.extend(writes::violations(events, &tenures));
    violations.extend(releases::violations(&tenures, &requests, &health, bounds, span.1));
    let (unheard, healings) = liveness::violations(events, &tenures, &requests, &health, span.1);
    violations.extend(unheard);
    violations.sort_by_key(|violation| violation.at);
    let gaps = gaps::by_fault(&tenures, &health, span);
    let counts = counts::count(events, &tenures);
    Verdict { violations, tenures, health, gaps, counts, span, healings }
}

/// Beliefs may reach beyond the last thing that happened; a run does not.
fn span(events: &[Event]) -> (Nanos, Nanos) {
    let first = events.first().map_or(0, |event| event.at);
    (first, events.last().map_or(first, |event| event.at))
}

/// Nanoseconds, for people.
pub(crate) fn spoken(nanos: Nanos) -> String {
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
