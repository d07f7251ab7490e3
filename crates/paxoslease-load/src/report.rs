//! What a load came to, as plain data: for a table, or for a program as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::plan::Dialect;

/// What a load came to.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What was asked.
    pub workload: &'static str,
    /// What was spoken.
    pub dialect: Dialect,
    /// Where, in the order of the connections.
    pub endpoints: Vec<String>,
    /// How many connections there were.
    pub connections: u32,
    /// How many requests were under way at once, at most.
    pub in_flight: u32,
    /// Operations per second that were due, if that was fixed.
    pub rate: Option<f64>,
    /// For how long it was measured.
    pub seconds: f64,
    /// Pairs, renewals or holdings that succeeded.
    pub operations: u64,
    /// The same per second; in a hand-over, those that changed the client.
    pub per_second: f64,
    /// Acquires that found the name held by another.
    pub held: u64,
    /// Operations that failed, by the first word of the error.
    pub errors: BTreeMap<String, u64>,
    /// One error in the server's words.
    pub last_error: Option<String>,
    /// Operations that were due and never begun, because all slots were taken.
    pub behind: u64,
    /// Requests that were still unanswered when the load was over and had waited long enough.
    pub unanswered: u64,
    /// By kind of request: acquire, renew, release.
    pub latency: BTreeMap<&'static str, Latency>,
    /// How evenly a name went around.
    pub shares: Option<Shares>,
    /// The longest time in which nothing succeeded, in milliseconds.
    pub longest_gap_ms: f64,
    /// How long whole operations took, from when one was due to its last answer, in nanoseconds:
    /// everything the percentiles leave out.
    #[serde(skip)]
    pub whole_nanos: Histogram<u64>,
}

impl Report {
    /// How many operations failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// How long answers took, in microseconds. With a rate this counts from when the request was due.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// Half took no longer.
    pub p50_us: f64,
    /// Of ten, nine took no longer.
    pub p90_us: f64,
    /// Of a hundred, all but one.
    pub p99_us: f64,
    /// Of a thousand, all but one.
    pub p99_9_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latency {
    pub(crate) fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            count: nanos.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: nanos.max() as f64 / 1e3,
        }
    }
}

/// How evenly a name went around.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Shares {
    /// How many wanted it.
    pub clients: u32,
    /// How often it went from one client to another.
    pub handovers: u64,
    /// How often the luckiest client had it.
    pub max: u64,
    /// How often the unluckiest had it.
    pub min: u64,
}

impl Shares {
    /// How many times as often the luckiest had it as the unluckiest; infinite if that never did.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.max as f64 / self.min as f64
    }
}

/// How far a load has come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// What it is doing, for people.
    pub doing: &'static str,
    /// How much of that is done, 0 to 1.
    pub share: f64,
    /// What was done since it counts.
    pub operations: u64,
    /// Since when it counts.
    pub elapsed: Duration,
}
