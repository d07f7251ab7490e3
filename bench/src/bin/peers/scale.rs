//! What becomes of the services when there is much of something, or something goes wrong: many
//! leases held, renewed and expiring, a member that dies, a start, a neighbour that takes a core.
//!
//! Each part starts processes of its own with what it needs of them, measures in its own rounds
//! and returns plain rows. What is made of them is the page's business.

mod failover;
mod growth;
mod memory;
mod metrics;
mod neighbour;
mod renewed;
mod stalls;
mod start;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_bench::peers::{self, Load, Ours, OursSettings, Service, Target};
use paxoslease_load::{Extent, Workload};
use paxoslease_rig::Process;
use serde::{Deserialize, Serialize};

pub(crate) use self::failover::{Clients, MAX_LEASE as FAILOVER_MAX_LEASE, TTL as FAILOVER_TTL};
pub(crate) use self::renewed::Latency;
pub(crate) use self::stalls::Phase;
pub(crate) use self::start::{After, MAX_LEASE as START_MAX_LEASE};
use crate::side::Side;

/// So long that nothing ends during a run.
const HELD_FOR: Duration = Duration::from_secs(3600);
/// Requests under way while leases are taken.
const FILL_IN_FLIGHT: u32 = 512;
const CONNECTIONS: u32 = 4;

/// One kind of measurement. In JSON it has the name of its rows in [`Figures`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Memory,
    Growth,
    Renewed,
    Stalls,
    Failover,
    Start,
    Neighbour,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::Memory,
        Self::Growth,
        Self::Renewed,
        Self::Stalls,
        Self::Failover,
        Self::Start,
        Self::Neighbour,
    ];

    /// The name of its rows, what `--only` is looked for in, and about how many seconds it takes
    /// when it is quick and when it is whole.
    const fn facts(self) -> (&'static str, &'static str, [u64; 2]) {
        match self {
            Self::Memory => ("memory", "memory per held lease", [15, 100]),
            Self::Growth => ("growth", "CPU per pair while leases are held", [10, 110]),
            Self::Renewed => ("renewed", "pairs beside leases that are renewed", [25, 85]),
            Self::Stalls => ("stalls", "stalls with many leases", [25, 155]),
            Self::Failover => ("failover", "fail-over", [45, 215]),
            Self::Start => ("start", "start", [25, 60]),
            Self::Neighbour => ("neighbour", "beside a busy neighbour", [8, 60]),
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        self.facts().1
    }

    pub(crate) const fn expected(self, quick: bool) -> Duration {
        let [brief, whole] = self.facts().2;
        Duration::from_secs(if quick { brief } else { whole })
    }
}

/// How much to measure, and of whom.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) paxoslease: PathBuf,
    /// Those who are not asked for are not started.
    pub(crate) sides: Vec<Side>,
    /// Fewer rounds, fewer leases.
    pub(crate) quick: bool,
}

/// All that was measured. What was not asked for is empty.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) memory: Vec<memory::Row>,
    pub(crate) growth: Vec<growth::Row>,
    pub(crate) renewed: Vec<renewed::Row>,
    pub(crate) stalls: Vec<stalls::Row>,
    pub(crate) failover: Vec<failover::Row>,
    pub(crate) start: Vec<start::Row>,
    pub(crate) neighbour: Vec<neighbour::Row>,
}

impl Figures {
    /// Takes the parts that were not measured from an earlier run. Says which these are.
    pub(crate) fn complete_from(&mut self, earlier: &Self) -> Result<Vec<Part>> {
        let (mut own, earlier) = (serde_json::to_value(&*self)?, serde_json::to_value(earlier)?);
        let mut missing = Vec::new();
        for part in Part::ALL {
            let (name, ..) = part.facts();
            if own[name].as_array().is_none_or(Vec::is_empty) {
                own[name] = earlier[name].clone();
                missing.push(part);
            }
        }
        *self = serde_json::from_value(own)?;
        Ok(missing)
    }
}

/// Where a measurement says what it is doing, for people.
pub(crate) type Told<'a> = &'a dyn Fn(&str);

/// Measures a part, into `figures`. One that fails leaves no rows.
pub(crate) fn measure(
    plan: &Plan,
    part: Part,
    figures: &mut Figures,
    told: Told<'_>,
) -> Result<()> {
    match part {
        Part::Memory => memory::measure(plan, told).map(|rows| figures.memory = rows),
        Part::Growth => growth::measure(plan, told).map(|rows| figures.growth = rows),
        Part::Renewed => renewed::measure(plan, told).map(|rows| figures.renewed = rows),
        Part::Stalls => stalls::measure(plan, told).map(|rows| figures.stalls = rows),
        Part::Failover => failover::measure(plan, told).map(|rows| figures.failover = rows),
        Part::Start => start::measure(plan, told).map(|rows| figures.start = rows),
        Part::Neighbour => neighbour::measure(plan, told).map(|rows| figures.neighbour = rows),
    }
}

impl Plan {
    fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Those of `wanted` that are asked for.
    fn among(&self, wanted: &[Side]) -> Vec<Side> {
        wanted.iter().copied().filter(|side| self.sides.contains(side)).collect()
    }

    /// Starts a service; of ours, with this as the longest lease.
    fn start(&self, side: Side, max_lease: Duration) -> Result<Box<dyn Service>> {
        if side.is_ours() {
            Ok(Box::new(self.start_ours(side, max_lease)?))
        } else {
            side.start(&self.paxoslease)
        }
    }

    /// A cell of ours whose metrics can be read.
    fn start_ours(&self, side: Side, max_lease: Duration) -> Result<Ours> {
        Ours::start(self.settings_of_ours(side, max_lease))
    }

    fn settings_of_ours(&self, side: Side, max_lease: Duration) -> OursSettings {
        let max_lease = format!("{}ms", max_lease.as_millis());
        let mut settings = side.settings_of_ours(&self.paxoslease);
        settings.options.extend(["--max-lease".to_owned(), max_lease]);
        settings.has_http = true;
        settings
    }
}

/// Pairs in a closed loop, as elsewhere on the page.
fn pairs(in_flight: u32, span: Duration) -> Load {
    let pairs = peers::pairs(in_flight, CONNECTIONS, Extent::Lasting(span));
    Load { names: "pairs/".to_owned(), ..pairs }
}

/// Takes so many leases of 23-byte names that nobody has taken yet, and leaves them held. The
/// last one cannot be over before all are.
fn fill(service: &dyn Service, series: u32, leases: u32) -> Result<()> {
    let load = Load {
        workload: Workload::Fill,
        extent: Extent::Count(u64::from(leases)),
        ttl: HELD_FOR,
        names: format!("held/series/{series:02}"),
        ..pairs(FILL_IN_FLIGHT.min(leases), HELD_FOR)
    };
    let filled = service.run(&load, Target::One)?;
    ensure!(
        filled.operations == u64::from(leases),
        "{} of {leases} leases taken: {}",
        filled.operations,
        filled.last_error.unwrap_or_default()
    );
    Ok(())
}

/// What all members ran so far.
fn cpu(service: &dyn Service) -> Result<Duration> {
    service.members().iter().map(Process::cpu).sum()
}

fn millis(span: Duration) -> f64 {
    crate::figures::rounded(span.as_secs_f64() * 1e3)
}
