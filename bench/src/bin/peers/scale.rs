//! Services with many leases, and with faults: leases held, renewed and expiring, a killed member,
//! a start, a busy neighbour.
//!
//! Each part starts its own processes, measures in its own rounds and returns rows for the page.

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
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::failover::{Clients, MAX_LEASE as FAILOVER_MAX_LEASE, TTL as FAILOVER_TTL};
pub(crate) use self::memory::MemoryRow;
pub(crate) use self::renewed::Latency;
pub(crate) use self::stalls::Phase;
pub(crate) use self::start::{After, MAX_LEASE as START_MAX_LEASE};
use crate::side::Side;

/// Longer than any run.
const HELD_FOR: Duration = Duration::from_secs(3600);
const FILL_IN_FLIGHT: u32 = 512;
const CONNECTIONS: u32 = 4;
const READY_MAX: Duration = Duration::from_secs(60);

/// One kind of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The field of its rows in [`ScaleFigures`].
    key: &'static str,
    /// What `--only` matches.
    pub(crate) title: &'static str,
    measure: fn(&ScalePlan) -> Result<Value>,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::new("memory", "memory per held lease", |plan| rows(memory::measure(plan))),
        Self::new("growth", "CPU per pair while leases are held", |p| rows(growth::measure(p))),
        Self::new("renewed", "pairs beside leases that are renewed", |p| rows(renewed::measure(p))),
        Self::new("stalls", "stalls with many leases", |plan| rows(stalls::measure(plan))),
        Self::new("failover", "fail-over", |plan| rows(failover::measure(plan))),
        Self::new("start", "start", |plan| rows(start::measure(plan))),
        Self::new("neighbour", "beside a busy neighbour", |plan| rows(neighbour::measure(plan))),
    ];

    const fn new(
        key: &'static str,
        title: &'static str,
        measure: fn(&ScalePlan) -> Result<Value>,
    ) -> Self {
        Self { key, title, measure }
    }

    /// Adds its rows to the figures; none if it fails.
    pub(crate) fn measure(&self, plan: &ScalePlan, figures: &mut ScaleFigures) -> Result<()> {
        let mut all = serde_json::to_value(&*figures)?;
        all[self.key] = (self.measure)(plan)?;
        *figures = serde_json::from_value(all)?;
        Ok(())
    }
}

fn rows<R: Serialize>(rows: Result<Vec<R>>) -> Result<Value> {
    Ok(serde_json::to_value(rows?)?)
}

#[derive(Clone, Debug)]
pub(crate) struct ScalePlan {
    pub(crate) paxoslease: PathBuf,
    pub(crate) sides: Vec<Side>,
    pub(crate) quick: bool,
}

/// The rows of each part; empty if it was not measured.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct ScaleFigures {
    pub(crate) memory: Vec<memory::MemoryRow>,
    pub(crate) growth: Vec<growth::GrowthRow>,
    pub(crate) renewed: Vec<renewed::RenewedRow>,
    pub(crate) stalls: Vec<stalls::StallsRow>,
    pub(crate) failover: Vec<failover::FailoverRow>,
    pub(crate) start: Vec<start::StartRow>,
    pub(crate) neighbour: Vec<neighbour::NeighbourRow>,
}

impl ScaleFigures {
    /// Takes the parts that were not measured from an earlier run, and returns their titles.
    pub(crate) fn complete_from(&mut self, earlier: &Self) -> Result<Vec<&'static str>> {
        let (mut own, earlier) = (serde_json::to_value(&*self)?, serde_json::to_value(earlier)?);
        let mut missing = Vec::new();
        for Part { key, title, .. } in Part::ALL {
            if own[key].as_array().is_none_or(Vec::is_empty) {
                own[key] = earlier[key].clone();
                missing.push(title);
            }
        }
        *self = serde_json::from_value(own)?;
        Ok(missing)
    }
}

impl ScalePlan {
    fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    fn among(&self, wanted: &[Side]) -> Vec<Side> {
        wanted.iter().copied().filter(|side| self.sides.contains(side)).collect()
    }

    /// Starts a service. `max_lease` is for PaxosLease only.
    fn start(&self, side: Side, max_lease: Duration) -> Result<Box<dyn Service>> {
        if side.is_ours() {
            Ok(Box::new(self.start_ours(side, max_lease)?))
        } else {
            side.start(&self.paxoslease)
        }
    }

    /// A PaxosLease cell with metrics.
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

fn pairs(in_flight: u32, span: Duration) -> Load {
    let pairs = peers::pairs(in_flight, CONNECTIONS, Extent::Lasting(span));
    Load { names: "pairs/".to_owned(), ..pairs }
}

/// Acquires this many leases of 23-byte names and leaves them held. None expires during a run.
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

/// Repeats a load on all members until none of its operations fails.
fn await_success(service: &dyn Service, load: &Load, pause: Duration) -> Result<()> {
    let began_at = now();
    while !service.run(load, Target::Spread).is_ok_and(|loaded| loaded.failures() == 0) {
        ensure!(began_at.elapsed() < READY_MAX, "{} does not serve", service.name());
        sleep(pause);
    }
    Ok(())
}

/// Waits until a PaxosLease node votes.
fn await_vote(http: &str) -> Result<()> {
    let began_at = now();
    while !metrics::quarantine(http)?.is_zero() {
        ensure!(began_at.elapsed() < READY_MAX, "{http} does not vote");
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn cpu(service: &dyn Service) -> Result<Duration> {
    service.members().iter().map(Process::cpu).sum()
}

fn millis(span: Duration) -> f64 {
    crate::figures::rounded(span.as_secs_f64() * 1e3)
}
