//! The result of a load as plain data, which serialises to JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::plan::Dialect;

#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    pub workload: &'static str,
    pub dialect: Dialect,
    /// The endpoints, in the order of the connections.
    pub endpoints: Vec<String>,
    pub connections: u32,
    /// The most requests in flight.
    pub in_flight: u32,
    /// The due operations per second, if the plan had a rate.
    pub rate: Option<f64>,
    pub seconds: f64,
    /// Successful pairs, renewals or holdings.
    pub operations: u64,
    /// Operations per second; in a hand-over, changes of the holder.
    pub per_second: f64,
    /// Acquires of names that another client held.
    pub held: u64,
    /// Operations that failed, by the first word of the error.
    pub errors: BTreeMap<String, u64>,
    pub last_error: Option<String>,
    /// Due operations that never began, because all slots were busy.
    pub behind: u64,
    /// Requests without an answer at the end of the load.
    pub unanswered: u64,
    /// By kind of request: acquire, renew, release.
    pub latency: BTreeMap<&'static str, Latency>,
    /// How evenly the clients of a hand-over got the name.
    pub shares: Option<Shares>,
    /// The longest time without a success, in milliseconds.
    pub longest_gap_ms: f64,
    /// The durations of whole operations, from the due time to the last answer, in nanoseconds.
    #[serde(skip)]
    pub whole_nanos: Histogram<u64>,
}

impl Report {
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Latencies in microseconds. With a rate, they count from the due time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    pub count: u64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

impl Latency {
    #[must_use]
    pub fn of(nanos: &Histogram<u64>) -> Self {
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

/// How evenly the clients of a hand-over got the name.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Shares {
    pub clients: u32,
    pub handovers: u64,
    /// The most grants of a client.
    pub max: u64,
    /// The fewest grants of a client.
    pub min: u64,
    /// The longest wait for the name, in microseconds. A wait that the end of the measurement cut
    /// off counts as far as it went.
    pub longest_wait_us: f64,
}

impl Shares {
    /// The ratio of the most to the fewest grants; infinite if a client had none.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.max as f64 / self.min as f64
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// The current phase, as a text.
    pub doing: &'static str,
    /// The completed share of the phase, 0 to 1.
    pub share: f64,
    /// Measured operations so far.
    pub operations: u64,
    /// Measured time so far.
    pub elapsed: Duration,
}
