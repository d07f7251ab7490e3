//! The loads, the same for everybody: what is asked, how much of it at once, over how many
//! connections and of how many members.

use std::fmt;
use std::time::Duration;

use paxoslease_bench::peers::{Load, Target, pairs};
use paxoslease_load::{Extent, Workload};
use serde::{Deserialize, Serialize};

/// Pipelined by all, where clients do not have one each.
pub(crate) const CONNECTIONS: u32 = 4;
/// A multiple of three members, and no fewer than the others have.
pub(crate) const SPREAD_CONNECTIONS: u32 = 6;
/// What renewals go around.
pub(crate) const LEASES: u32 = 2_000;
pub(crate) const HOT_NAMES: u32 = 4;
pub(crate) const HOT_SHARE: f64 = 0.1;
pub(crate) const TTL: Duration = Duration::from_secs(15);
/// Each client has to have its turn several times before shares mean anything.
pub(crate) const HANDOVER_SPANS: u32 = 3;
/// In flight, of the curve; the three that everything else is about are among them.
const CURVE: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const QUICK_CURVE: [u32; 5] = [1, 8, 64, 512, 1024];

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// Acquire and release, every name of its own.
    Pairs,
    /// The same, with a connection for each in flight.
    OwnConnections,
    /// The same as pairs, while every core is kept from sleeping.
    Awake,
    Renewals,
    /// Clients that all want one name.
    Handovers,
    /// Pairs, of which a tenth want the same few names.
    Mixed,
}

/// One load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) what: What,
    /// Operations, or clients.
    pub(crate) in_flight: u32,
    /// Over all members, not to one of them.
    pub(crate) spread: bool,
}

/// Everything, in the order in which it is asked.
pub(crate) fn all(quick: bool) -> Vec<Case> {
    use What::{Awake, Handovers, Mixed, OwnConnections, Pairs, Renewals};
    let curve: &[u32] = if quick { &QUICK_CURVE } else { &CURVE };
    let pairs = curve.iter().map(|in_flight| Case::new(Pairs, *in_flight));
    let others = [
        Case::new(Pairs, 64).spread(),
        Case::new(Pairs, 512).spread(),
        Case::new(Awake, 64),
        Case::new(OwnConnections, 64),
        Case::new(OwnConnections, 512),
        Case::new(Renewals, 64),
        Case::new(Renewals, 512),
        Case::new(Handovers, 16),
        Case::new(Handovers, 128),
        Case::new(Handovers, 16).spread(),
        Case::new(Handovers, 128).spread(),
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

    /// What the others are compared with: a lone server has nothing to spread over.
    pub(crate) const fn to_one(self) -> Self {
        Self { spread: false, ..self }
    }

    /// Whether it is among the few that variants of a service are asked for, too.
    pub(crate) fn is_headline(self) -> bool {
        let headline = match self.what {
            What::Pairs => [1, 64, 512].contains(&self.in_flight),
            What::Renewals => self.in_flight == 64,
            What::OwnConnections | What::Awake | What::Handovers | What::Mixed => false,
        };
        headline && !self.spread
    }

    /// Whether a service that takes long to find itself anew is asked for it: the curve has fewer
    /// points then.
    pub(crate) fn is_coarse(self) -> bool {
        self.what != What::Pairs || QUICK_CURVE.contains(&self.in_flight)
    }

    /// How long it counts, where one turn is to take `span`.
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

    /// Which members are spoken to.
    pub(crate) const fn target(self) -> Target {
        if self.spread { Target::Spread } else { Target::One }
    }
}

/// What `--only` is looked for in.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_there_once_and_its_load_has_no_more_connections_than_requests() {
        for quick in [false, true] {
            let mut cases = all(quick);
            for case in &cases {
                let load = case.load(Duration::from_secs(1), Duration::ZERO);
                assert!(load.connections <= load.in_flight, "{case}");
            }
            let count = cases.len();
            cases.sort_unstable();
            cases.dedup();
            assert_eq!(cases.len(), count);
        }
    }

    #[test]
    fn the_quick_curve_is_part_of_the_full_one() {
        assert!(QUICK_CURVE.iter().all(|point| CURVE.contains(point)));
        let is_headline = |point: &&u32| Case::new(What::Pairs, **point).is_headline();
        assert!(CURVE.iter().filter(is_headline).eq(&[1, 64, 512]));
    }
}
