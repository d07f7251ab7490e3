//! What is compared: loads, and whom they go to.

use std::time::Duration;

use paxoslease_load::{Dialect, Extent, Plan, Workload};

/// Whom a load goes to; the first is what the others are compared with.
pub(crate) const SIDES: [Side; 3] = [Side::Redis, Side::OneNode, Side::Spread];

/// Runs before anything counts.
const WARMUP: Duration = Duration::from_millis(200);
/// A multiple of the nodes, and no fewer than the others have.
const SPREAD_CONNECTIONS: u32 = 6;
const CONNECTIONS: u32 = 4;
const LEASES: u32 = 2_000;

/// Whom a load goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Redis,
    /// One node of the cell; the others vote.
    OneNode,
    /// All nodes of the cell alike.
    Spread,
}

impl Side {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::OneNode => "one node",
            Self::Spread => "spread over three",
        }
    }
}

/// One load.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) title: String,
    workload: Workload,
    in_flight: u32,
    /// None is a connection for each request in flight.
    connections: Option<u32>,
    sides: &'static [Side],
}

/// Everything, in the order of the table.
pub(crate) fn all() -> Vec<Case> {
    use Side::{OneNode, Redis, Spread};
    let case = |what: &str, workload, in_flight: u32, connections, sides| Case {
        title: format!("{what}, {in_flight}"),
        workload,
        in_flight,
        connections,
        sides,
    };
    let pairs = |in_flight, sides| {
        case("pairs in flight", Workload::Pairs, in_flight, Some(CONNECTIONS), sides)
    };
    let renewals = |in_flight| {
        let workload = Workload::Renew { leases: LEASES };
        case("renewals in flight", workload, in_flight, Some(CONNECTIONS), &SIDES)
    };
    let handover =
        |clients, sides| case("hand-overs, clients", Workload::Handover, clients, None, sides);
    vec![
        pairs(1, &[Redis, OneNode]),
        pairs(64, &SIDES),
        pairs(512, &SIDES),
        case("pairs, a connection each", Workload::Pairs, 64, None, &SIDES),
        renewals(64),
        renewals(512),
        handover(16, &SIDES),
        handover(100, &[Redis, Spread]),
    ]
}

impl Case {
    /// What is counted.
    pub(crate) const fn unit(&self) -> &'static str {
        self.workload.unit()
    }

    /// How much longer than it counts a load of so many seconds runs, as a share.
    pub(crate) fn warmup_share(&self, seconds: f64) -> f64 {
        WARMUP.as_secs_f64() / seconds
    }

    /// The load for one side, if it has any.
    pub(crate) fn plan(
        &self,
        side: Side,
        cell: &[String],
        redis: &str,
        span: Duration,
    ) -> Option<Plan> {
        if !self.sides.contains(&side) {
            return None;
        }
        let endpoints = match side {
            Side::Redis => vec![redis.to_owned()],
            Side::OneNode => cell[..1].to_vec(),
            Side::Spread => cell.to_vec(),
        };
        let connections = match (self.connections, side) {
            (None, _) => self.in_flight,
            (Some(_), Side::Spread) => SPREAD_CONNECTIONS,
            (Some(connections), Side::Redis | Side::OneNode) => connections,
        };
        let mut plan = Plan::new(endpoints, self.workload);
        plan.dialect = if side == Side::Redis { Dialect::Redis } else { Dialect::Paxoslease };
        plan.in_flight = self.in_flight;
        plan.connections = connections.min(self.in_flight);
        plan.extent = Extent::Lasting(span);
        plan.warmup = WARMUP;
        Some(plan)
    }
}
