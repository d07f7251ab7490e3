//! Ten million leases: taken, renewed, given back, taken again and left to expire, in a closed
//! loop, and whether a shard stalls meanwhile.
//!
//! A stall shows in two ways: as a long turn of a shard's loop, by the node's own measurement since
//! its start, and as a slow answer to a probe, whose pairs are due at fixed times at all nodes.
//! Both contain what other processes took of the cores, so the same load over few leases comes
//! first: what that has, too, is not due to the many.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use paxoslease_bench::peers::Ours;
use paxoslease_load::{Extent, LoadError, Progress, Report, Workload};
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

use super::renewed::Latency;
use super::{Plan, Told, metrics, millis};
use crate::figures::rounded;
use crate::side::Side;

const LEASES: u32 = 10_000_000;
const QUICK_LEASES: u32 = 1_000_000;
const FEW_LEASES: u32 = 1_000;
const FEW_FOR: Duration = Duration::from_secs(5);
const QUICK_FEW_FOR: Duration = Duration::from_secs(2);
const IN_FLIGHT: u32 = 512;
/// Nothing expires but what is to.
const MAX_LEASE: Duration = Duration::from_secs(600);
/// Longer than it takes to take them all.
const EXPIRES_AFTER: Duration = Duration::from_secs(45);
const QUICK_EXPIRES_AFTER: Duration = Duration::from_secs(6);
/// In which what expired is looked at and forgotten, a little at a time.
const SWEEPS_FOR: Duration = Duration::from_secs(10);
const QUICK_SWEEPS_FOR: Duration = Duration::from_secs(3);
const PROBES_PER_SECOND: f64 = 1000.0;
/// More than can be due while an answer takes a tenth of a second.
const PROBES_MAX: u32 = 102;
const NODES: u32 = 3;
const WINDOW: Duration = Duration::from_secs(2);
/// No phase has this number.
const NOT_YET: u8 = u8::MAX;

/// What happens to the leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// An equal load over few leases.
    Few,
    Taking,
    Renewing,
    GivingBack,
    TakingAgain,
    Expiring,
}

impl Phase {
    const ALL: [Self; 6] = [
        Self::Few,
        Self::Taking,
        Self::Renewing,
        Self::GivingBack,
        Self::TakingAgain,
        Self::Expiring,
    ];
}

/// One phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) phase: Phase,
    pub(crate) leases: u32,
    pub(crate) seconds: f64,
    /// Of each node, the longest since its start.
    pub(crate) longest_turn_ms: Vec<f64>,
    /// Of the probe.
    pub(crate) probe: Latency,
    pub(crate) failures: u64,
}

pub(super) fn measure(plan: &Plan, told: Told<'_>) -> Result<Vec<Row>> {
    if !plan.sides.contains(&Side::Ours) {
        return Ok(Vec::new());
    }
    let cell = plan.start_ours(Side::Ours, MAX_LEASE)?;
    let leases = plan.pick(QUICK_LEASES, LEASES);
    let mut probe = Probe { cell: &cell, seen: Vec::new() };

    told("few leases under load");
    let mut load = load_on(&cell, Workload::Renew { leases: FEW_LEASES });
    load.extent = Extent::Lasting(plan.pick(QUICK_FEW_FOR, FEW_FOR));
    probe.during(FEW_LEASES, |phase| run(&load, phase, [Phase::Few; 3]))?;

    told(&format!("{leases} leases taken, renewed, given back"));
    let mut load = load_on(&cell, Workload::Renew { leases });
    (load.extent, load.names) = (Extent::Count(u64::from(leases)), "held/series/00".to_owned());
    let phases = [Phase::Taking, Phase::Renewing, Phase::GivingBack];
    probe.during(leases, |phase| run(&load, phase, phases))?;

    told(&format!("{leases} leases taken and left to expire"));
    let mut load = load_on(&cell, Workload::Fill);
    (load.extent, load.names) = (Extent::Count(u64::from(leases)), "held/series/01".to_owned());
    load.ttl = plan.pick(QUICK_EXPIRES_AFTER, EXPIRES_AFTER);
    probe.during(leases, |phase| {
        let report = run(&load, phase, [Phase::TakingAgain; 3])?;
        phase.store(Phase::Expiring as u8, Ordering::Relaxed);
        sleep(load.ttl + plan.pick(QUICK_SWEEPS_FOR, SWEEPS_FOR));
        Ok(report)
    })?;
    Ok(probe.seen.into_iter().map(Seen::row).collect())
}

fn load_on(cell: &Ours, workload: Workload) -> paxoslease_load::Plan {
    let mut load = paxoslease_load::Plan::new([cell.endpoints().swap_remove(0)], workload);
    (load.ttl, load.in_flight, load.warmup) = (MAX_LEASE, IN_FLIGHT, Duration::ZERO);
    load
}

/// Runs a load and tells what it is doing: taking, counting, giving back.
fn run(
    load: &paxoslease_load::Plan,
    phase: &AtomicU8,
    [taking, counting, giving_back]: [Phase; 3],
) -> Result<Report, LoadError> {
    paxoslease_load::run(load, &mut |Progress { doing, .. }| {
        let doing = match doing {
            "giving back" => giving_back,
            "measuring" => counting,
            _ => taking,
        };
        phase.store(doing as u8, Ordering::Relaxed);
    })
}

/// Asks all nodes at a steady rate, and keeps what came of it by phase.
struct Probe<'a> {
    cell: &'a Ours,
    seen: Vec<Seen>,
}

/// A phase so far.
struct Seen {
    phase: Phase,
    leases: u32,
    began_at: Instant,
    lasted: Duration,
    longest_turn_ms: Vec<f64>,
    nanos: Histogram<u64>,
    failures: u64,
}

impl Probe<'_> {
    /// Probes while something happens in another thread, which says what.
    fn during(
        &mut self,
        leases: u32,
        happens: impl FnOnce(&AtomicU8) -> Result<Report, LoadError> + Send,
    ) -> Result<()> {
        let phase = AtomicU8::new(NOT_YET);
        thread::scope(|scope| {
            let happening = scope.spawn(|| happens(&phase));
            while !happening.is_finished() {
                match Phase::ALL.get(usize::from(phase.load(Ordering::Relaxed))) {
                    Some(phase) => self.window(*phase, leases)?,
                    None => sleep(Duration::from_millis(1)),
                }
            }
            let report = happening.join().ok().context("the load panicked")??;
            let last_error = report.last_error.as_deref().unwrap_or_default();
            ensure!(report.failures() == 0, "the load itself failed: {last_error}");
            Ok(())
        })
    }

    /// A little of a phase. What begins in one and ends in the next belongs to the first.
    fn window(&mut self, phase: Phase, leases: u32) -> Result<()> {
        if self.seen.last().is_none_or(|seen| seen.phase != phase) {
            self.seen.push(Seen {
                phase,
                leases,
                began_at: now(),
                lasted: Duration::ZERO,
                longest_turn_ms: Vec::new(),
                nanos: Histogram::new(3)?,
                failures: 0,
            });
        }
        let mut probe = paxoslease_load::Plan::new(self.cell.endpoints(), Workload::Pairs);
        (probe.rate, probe.names) = (Some(PROBES_PER_SECOND), "probe/".to_owned());
        (probe.extent, probe.warmup) = (Extent::Lasting(WINDOW), Duration::ZERO);
        (probe.in_flight, probe.connections) = (PROBES_MAX, NODES);
        let report = paxoslease_load::run(&probe, &mut |_| {})?;
        let turns = self.cell.http_endpoints();
        let turns = turns.iter().map(|http| metrics::longest_turn(http).map(millis));
        let seen = self.seen.last_mut().expect("just pushed, if there was none");
        seen.longest_turn_ms = turns.collect::<Result<_>>()?;
        seen.nanos.add(&report.whole_nanos)?;
        seen.failures += report.failures();
        seen.lasted = seen.began_at.elapsed();
        Ok(())
    }
}

impl Seen {
    fn row(self) -> Row {
        Row {
            phase: self.phase,
            leases: self.leases,
            seconds: rounded(self.lasted.as_secs_f64()),
            longest_turn_ms: self.longest_turn_ms,
            probe: Latency::of(&self.nanos),
            failures: self.failures,
        }
    }
}
