//! Millions of leases, acquired, renewed, released, acquired again and left to expire in a closed
//! loop, and whether a shard stalls meanwhile.
//!
//! A stall shows in two ways: as a long pass of a shard's event loop, which the node measures since
//! its start, and as a slow answer to a probe, whose pairs are due at fixed times at all nodes.
//! Both contain the time that other processes took. So the same load on few leases comes first, for
//! comparison.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use paxoslease_bench::peers::{Ours, Service as _};
use paxoslease_load::{Extent, LoadError, Progress, Report, Workload};
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

use super::renewed::Latency;
use super::{ScalePlan, metric, millis, start_ours};
use crate::figures::rounded;
use crate::side::Side;

/// The longest pass of an event loop since the start.
const LONGEST_TURN: &str = "paxoslease_turn_seconds_max";
const LEASES: u32 = 5_000_000;
const QUICK_LEASES: u32 = 1_000_000;
const FEW_LEASES: u32 = 1_000;
const FEW_FOR: Duration = Duration::from_secs(5);
const QUICK_FEW_FOR: Duration = Duration::from_secs(2);
const IN_FLIGHT: u32 = 512;
const MAX_LEASE: Duration = Duration::from_secs(600);
/// Longer than it takes to acquire all leases.
const EXPIRES_AFTER: Duration = Duration::from_secs(25);
const QUICK_EXPIRES_AFTER: Duration = Duration::from_secs(6);
/// How long the sweep of the expired leases takes.
const SWEEPS_FOR: Duration = Duration::from_secs(10);
const QUICK_SWEEPS_FOR: Duration = Duration::from_secs(3);
const PROBES_PER_SECOND: f64 = 1000.0;
/// More than are due in a tenth of a second.
const PROBES_MAX: u32 = 102;
const NODES: u32 = 3;
const WINDOW: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// The same load on few leases.
    Few,
    Taking,
    Renewing,
    GivingBack,
    TakingAgain,
    Expiring,
}

/// The phase of a load, set by its thread.
type Current = Mutex<Option<Phase>>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StallsRow {
    pub(crate) phase: Phase,
    pub(crate) leases: u32,
    pub(crate) seconds: f64,
    /// The longest pass of each node's event loop since its start.
    pub(crate) longest_turn_ms: Vec<f64>,
    pub(crate) probe: Latency,
    pub(crate) failures: u64,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<StallsRow>> {
    if !plan.sides.contains(&Side::Ours) {
        return Ok(Vec::new());
    }
    let cell = start_ours(Side::Ours, MAX_LEASE)?;
    let leases = plan.pick(QUICK_LEASES, LEASES);
    let mut probe =
        Probe { cell: &cell, rows: Vec::new(), began_at: now(), nanos: Histogram::new(3)? };

    eprintln!("few leases under load");
    let mut load = load_on(&cell, Workload::Renew { leases: FEW_LEASES });
    load.extent = Extent::Lasting(plan.pick(QUICK_FEW_FOR, FEW_FOR));
    probe.during(FEW_LEASES, |phase| run(&load, phase, [Phase::Few; 3]))?;

    eprintln!("{leases} leases taken, renewed, given back");
    let mut load = load_on(&cell, Workload::Renew { leases });
    (load.extent, load.names) = (Extent::Count(u64::from(leases)), "held/series/00".to_owned());
    let phases = [Phase::Taking, Phase::Renewing, Phase::GivingBack];
    probe.during(leases, |phase| run(&load, phase, phases))?;

    eprintln!("{leases} leases taken and left to expire");
    let mut load = load_on(&cell, Workload::Fill);
    (load.extent, load.names) = (Extent::Count(u64::from(leases)), "held/series/01".to_owned());
    load.ttl = plan.pick(QUICK_EXPIRES_AFTER, EXPIRES_AFTER);
    probe.during(leases, |phase| {
        let report = run(&load, phase, [Phase::TakingAgain; 3])?;
        *phase.lock().expect("no thread panics") = Some(Phase::Expiring);
        sleep(load.ttl + plan.pick(QUICK_SWEEPS_FOR, SWEEPS_FOR));
        Ok(report)
    })?;
    Ok(probe.rows)
}

fn load_on(cell: &Ours, workload: Workload) -> paxoslease_load::Plan {
    let mut load = paxoslease_load::Plan::new([cell.endpoints().swap_remove(0)], workload);
    (load.ttl, load.in_flight, load.warmup) = (MAX_LEASE, IN_FLIGHT, Duration::ZERO);
    load
}

/// Runs a load and stores its phase: acquire, measure, release.
fn run(
    load: &paxoslease_load::Plan,
    phase: &Current,
    [taking, counting, giving_back]: [Phase; 3],
) -> Result<Report, LoadError> {
    paxoslease_load::run(load, &mut |Progress { doing, .. }| {
        let doing = match doing {
            "giving back" => giving_back,
            "measuring" => counting,
            _ => taking,
        };
        *phase.lock().expect("no thread panics") = Some(doing);
    })
}

/// Puts a steady load on all nodes, and keeps the results by phase.
struct Probe<'a> {
    cell: &'a Ours,
    rows: Vec<StallsRow>,
    /// Of the last row.
    began_at: Instant,
    nanos: Histogram<u64>,
}

impl Probe<'_> {
    /// Probes while another thread runs a load and stores its phase.
    fn during(
        &mut self,
        leases: u32,
        happens: impl FnOnce(&Current) -> Result<Report, LoadError> + Send,
    ) -> Result<()> {
        let phase = Mutex::new(None);
        thread::scope(|scope| {
            let happening = scope.spawn(|| happens(&phase));
            while !happening.is_finished() {
                let current = *phase.lock().expect("no thread panics");
                match current {
                    Some(phase) => self.window(phase, leases)?,
                    None => sleep(Duration::from_millis(1)),
                }
            }
            let report = happening.join().ok().context("the load panicked")??;
            let last_error = report.last_error.as_deref().unwrap_or_default();
            ensure!(report.failures() == 0, "the load itself failed: {last_error}");
            Ok(())
        })
    }

    /// Probes for one window, which belongs to the phase in which it begins.
    fn window(&mut self, phase: Phase, leases: u32) -> Result<()> {
        if self.rows.last().is_none_or(|row| row.phase != phase) {
            (self.began_at, self.nanos) = (now(), Histogram::new(3)?);
            let (probe, longest_turn_ms) = (Latency::of(&self.nanos), Vec::new());
            let (seconds, failures) = (0.0, 0);
            let row = StallsRow { phase, leases, seconds, longest_turn_ms, probe, failures };
            self.rows.push(row);
        }
        let mut probe = paxoslease_load::Plan::new(self.cell.endpoints(), Workload::Pairs);
        (probe.rate, probe.names) = (Some(PROBES_PER_SECOND), "probe/".to_owned());
        (probe.extent, probe.warmup) = (Extent::Lasting(WINDOW), Duration::ZERO);
        (probe.in_flight, probe.connections) = (PROBES_MAX, NODES);
        let report = paxoslease_load::run(&probe, &mut |_| {})?;
        self.nanos.add(&report.whole_nanos)?;
        let turns = self.cell.http_endpoints();
        let turns = turns.iter().map(|http| metric(http, LONGEST_TURN).map(millis));
        let row = self.rows.last_mut().expect("just pushed, if there was none");
        row.longest_turn_ms = turns.collect::<Result<_>>()?;
        row.probe = Latency::of(&self.nanos);
        row.failures += report.failures();
        row.seconds = rounded(self.began_at.elapsed().as_secs_f64());
        Ok(())
    }
}
