//! The plan of a load as plain data, and its validation.

use std::fmt;
use std::time::Duration;

use paxoslease_client::Tls;
use serde::Serialize;

/// The most requests in flight.
pub const IN_FLIGHT_MAX: u32 = 65_536;
/// A name is the prefix and nine digits, at most 512 bytes.
const PREFIX_LEN_MAX: usize = 500;
/// Names have nine digits, and each lease takes eight bytes here.
const LEASES_MAX: u32 = 100_000_000;
/// In operations per second.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 100_000_000.0;

#[derive(Clone, Debug)]
pub struct Plan {
    /// The endpoints, each as `host:port`. Connections go to each in turn.
    pub endpoints: Vec<String>,
    pub dialect: Dialect,
    /// The TLS settings; `None` for unencrypted connections.
    pub tls: Option<Tls>,
    /// The token or password, if the server requires one.
    pub token: Option<Secret>,
    /// Whether the token may be sent unencrypted to other machines.
    pub token_in_clear: bool,
    pub workload: Workload,
    /// The number of connections, at most `in_flight`.
    pub connections: u32,
    /// The number of requests in flight; in a hand-over, of clients.
    pub in_flight: u32,
    pub extent: Extent,
    /// The due operations per second; `None` begins one when another ends.
    pub rate: Option<f64>,
    pub ttl: Duration,
    /// The prefix of all names.
    pub names: String,
    /// How long to run before the measurement.
    pub warmup: Duration,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// When a load ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    Lasting(Duration),
    /// After this many operations, successful or not.
    Count(u64),
}

impl Extent {
    pub(crate) fn is_over(self, elapsed: Duration) -> bool {
        matches!(self, Self::Lasting(span) if elapsed >= span)
    }
}

/// The commands for leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// `LEASE.ACQUIRE`, `LEASE.RENEW`, `LEASE.RELEASE`.
    #[default]
    Paxoslease,
    /// `SET key token NX PX ms`, and scripts that compare the token before they delete or extend.
    Redis,
}

/// The kind of operations.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workload {
    /// Acquire and release, each of another name.
    Pairs,
    /// Leases that are acquired before the measurement, renewed in turn, and released at the end.
    Renew { leases: u32 },
    /// All clients want one name: each waits for it, releases it at once and waits again. With
    /// fewer connections than clients, acquires use NOTIFY. Redis is polled.
    Handover,
    /// Pairs, of which a share uses few names.
    Mixed {
        hot_names: u32,
        /// From 0 to 1.
        hot_share: f64,
    },
    /// Acquires every name once, in the order of their numbers. The leases stay held until their
    /// ttl is over.
    Fill,
}

impl Workload {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Renew { .. } => "renew",
            Self::Handover => "handover",
            Self::Mixed { .. } => "mixed",
            Self::Fill => "fill",
        }
    }

    /// The plural of the counted operations.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Pairs | Self::Mixed { .. } => "pairs",
            Self::Renew { .. } => "renewals",
            Self::Handover => "hand-overs",
            Self::Fill => "leases",
        }
    }
}

impl Plan {
    /// 64 in flight over 4 connections for ten seconds after one to warm up; in a hand-over 16
    /// clients with a connection each.
    pub fn new<S: Into<String>>(
        endpoints: impl IntoIterator<Item = S>,
        workload: Workload,
    ) -> Self {
        let (connections, in_flight) = match workload {
            Workload::Handover => (16, 16),
            Workload::Pairs | Workload::Renew { .. } | Workload::Mixed { .. } | Workload::Fill => {
                (4, 64)
            }
        };
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            dialect: Dialect::default(),
            tls: None,
            token: None,
            token_in_clear: false,
            workload,
            connections,
            in_flight,
            extent: Extent::Lasting(Duration::from_secs(10)),
            rate: None,
            ttl: Duration::from_secs(15),
            names: "load/".to_owned(),
            warmup: Duration::from_secs(1),
        }
    }

    /// Validates the plan.
    pub fn check(&self) -> Result<(), PlanError> {
        let is_empty = matches!(self.extent, Extent::Lasting(Duration::ZERO) | Extent::Count(0));
        let mut problems = vec![
            (self.endpoints.is_empty(), PlanError::NoEndpoint),
            (!(1..=IN_FLIGHT_MAX).contains(&self.in_flight), PlanError::InFlight(self.in_flight)),
            (
                !(1..=self.in_flight).contains(&self.connections),
                PlanError::Connections(self.connections),
            ),
            (is_empty, PlanError::NoExtent),
            (self.names.len() > PREFIX_LEN_MAX, PlanError::Names(self.names.len())),
            (self.ttl < Duration::from_millis(1), PlanError::Ttl),
        ];
        if let Some(rate) = self.rate {
            problems.push((!(RATE_MIN..=RATE_MAX).contains(&rate), PlanError::Rate(rate)));
            problems.push((self.workload == Workload::Handover, PlanError::RateOfHandover));
        }
        if let Workload::Renew { leases } = self.workload {
            let is_good = (self.in_flight..=LEASES_MAX).contains(&leases);
            problems.push((!is_good, PlanError::Leases(leases)));
        }
        if let Workload::Mixed { hot_names, hot_share } = self.workload {
            problems.push((!(0.0..=1.0).contains(&hot_share), PlanError::HotShare(hot_share)));
            problems.push((hot_names == 0, PlanError::NoHotName));
        }
        problems.into_iter().find(|(is_bad, _)| *is_bad).map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Why a plan is not valid. Nothing was sent.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("no endpoint: name at least one, as host:port")]
    NoEndpoint,
    #[error("{0} requests in flight: expected 1 to {IN_FLIGHT_MAX}")]
    InFlight(u32),
    #[error("{0} connections: expected at least one, and no more than requests in flight")]
    Connections(u32),
    #[error("nothing to do: expected a duration or a count above zero")]
    NoExtent,
    #[error("names begin with {0} bytes: expected at most {PREFIX_LEN_MAX}")]
    Names(usize),
    #[error("the ttl is below a millisecond; cells take 50ms and more")]
    Ttl,
    #[error("{0} operations per second: expected {RATE_MIN} to {RATE_MAX}")]
    Rate(f64),
    #[error("a hand-over has no rate: its clients wait for each other")]
    RateOfHandover,
    #[error("{0} leases to renew: expected as many as requests in flight, to {LEASES_MAX}")]
    Leases(u32),
    #[error("a share of {0} for hot names: expected 0 to 1")]
    HotShare(f64),
    #[error("no hot name: expected at least one")]
    NoHotName,
}
