//! The loads, the same for all services: operations, requests in flight, connections and members.

use std::fmt;
use std::time::Duration;

use paxoslease_bench::peers::{Load, Target, pairs};
use paxoslease_load::{Extent, Workload};
use serde::{Deserialize, Serialize};

/// Of loads whose clients share connections.
pub(crate) const CONNECTIONS: u32 = 4;
/// A multiple of three members.
pub(crate) const SPREAD_CONNECTIONS: u32 = 6;
/// Leases that the renewals renew in turn.
pub(crate) const LEASES: u32 = 2_000;
pub(crate) const HOT_NAMES: u32 = 4;
pub(crate) const HOT_SHARE: f64 = 0.1;
pub(crate) const TTL: Duration = Duration::from_secs(15);
/// Hand-overs last longer, so that each client gets the name several times.
pub(crate) const HANDOVER_SPANS: u32 = 2;
const CURVE: [u32; 7] = [1, 4, 16, 64, 256, 512, 1024];
const QUICK_CURVE: [u32; 4] = [1, 64, 512, 1024];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// Acquire and release, each of another name.
    Pairs,
    /// Pairs, with a connection for each request in flight.
    OwnConnections,
    /// Pairs, while no core can sleep.
    Awake,
    Renewals,
    Handovers,
    /// Pairs, a tenth of them on the same few names.
    Mixed,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) what: What,
    pub(crate) in_flight: u32,
    /// Whether connections go to all members, not to one.
    pub(crate) spread: bool,
}

/// All cases, in the order of a round.
pub(crate) fn all(quick: bool) -> Vec<Case> {
    use What::{Awake, Handovers, Mixed, OwnConnections, Pairs, Renewals};
    let curve: &[u32] = if quick { &QUICK_CURVE } else { &CURVE };
    let pairs = curve.iter().map(|in_flight| Case::new(Pairs, *in_flight));
    let others = [
        Case::new(Pairs, 64).spread(),
        Case::new(Pairs, 512).spread(),
        Case::new(Awake, 1),
        Case::new(Awake, 64),
        Case::new(OwnConnections, 64),
        Case::new(OwnConnections, 512),
        Case::new(Renewals, 64),
        Case::new(Renewals, 512),
        Case::new(Handovers, 16),
        Case::new(Handovers, 128),
        Case::new(Handovers, 16).spread(),
        Case::new(Mixed, 64),
    ];
    pairs.chain(others).collect()
}

impl Case {
    pub(crate) const fn new(what: What, in_flight: u32) -> Self {
        Self { what, in_flight, spread: false }
    }

    pub(crate) const fn spread(self) -> Self {
        Self { spread: true, ..self }
    }

    /// The same load on one member, for the comparison with a single server.
    pub(crate) const fn to_one(self) -> Self {
        Self { spread: false, ..self }
    }

    /// Its name in `--only` and in the goals, such as `pairs-512-spread`.
    pub(crate) fn name(self) -> String {
        let what = serde_json::to_value(self.what).expect("a plain word");
        let what = what.as_str().expect("a plain word");
        format!("{what}-{}{}", self.in_flight, if self.spread { "-spread" } else { "" })
    }

    /// Whether variants of a service run it too.
    pub(crate) fn is_headline(self) -> bool {
        let headline = match self.what {
            What::Pairs => [1, 64, 512].contains(&self.in_flight),
            What::Renewals => self.in_flight == 64,
            What::OwnConnections | What::Awake | What::Handovers | What::Mixed => false,
        };
        headline && !self.spread
    }

    /// Whether it has a goal, so that the blocking cell runs it too.
    pub(crate) fn has_goal(self) -> bool {
        match self.what {
            What::Pairs => [1, 64, 512].contains(&self.in_flight),
            What::Awake => self.in_flight == 1,
            What::OwnConnections => self.in_flight == 64,
            What::Handovers => self.in_flight == 16,
            What::Renewals => true,
            What::Mixed => false,
        }
    }

    /// Whether restless services run it too: they have fewer points of the curve.
    pub(crate) fn is_coarse(self) -> bool {
        self.what != What::Pairs || QUICK_CURVE.contains(&self.in_flight)
    }

    /// The measured time of a turn, if that of most cases is `span`.
    pub(crate) fn lasts(self, span: Duration) -> Duration {
        if self.what == What::Handovers { span * HANDOVER_SPANS } else { span }
    }

    pub(crate) fn load(self, span: Duration, warmup: Duration) -> Load {
        let workload = match self.what {
            What::Pairs | What::OwnConnections | What::Awake => Workload::Pairs,
            What::Renewals => Workload::Renew { leases: LEASES },
            What::Handovers => Workload::Handover,
            What::Mixed => Workload::Mixed { hot_names: HOT_NAMES, hot_share: HOT_SHARE },
        };
        let connections = match self.what {
            What::OwnConnections | What::Handovers => self.in_flight,
            What::Pairs | What::Awake | What::Renewals | What::Mixed => {
                if self.spread {
                    SPREAD_CONNECTIONS
                } else {
                    CONNECTIONS
                }
            }
        };
        let pairs = pairs(self.in_flight, connections, Extent::Lasting(self.lasts(span)));
        Load { workload, ttl: TTL, names: "peers/".to_owned(), warmup, ..pairs }
    }

    pub(crate) const fn target(self) -> Target {
        if self.spread { Target::Spread } else { Target::One }
    }
}

/// The title on the page.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.in_flight;
        match self.what {
            What::Pairs => write!(f, "pairs, {count} in flight"),
            What::OwnConnections => write!(f, "pairs, a connection each, {count}"),
            What::Awake => write!(f, "pairs, cores kept awake, {count} in flight"),
            What::Renewals => write!(f, "renewals, {count} in flight"),
            What::Handovers => write!(f, "hand-overs, {count} clients"),
            What::Mixed => write!(f, "pairs, a tenth contended, {count} in flight"),
        }?;
        f.write_str(if self.spread { ", spread" } else { "" })
    }
}
