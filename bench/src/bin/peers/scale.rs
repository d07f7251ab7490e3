//! Services with many leases, and with faults: leases held, renewed and expiring, a killed member,
//! a start, a busy neighbour, client libraries.
//!
//! Each part starts its own processes, measures in its own rounds and returns rows for the page.

mod clients;
mod failover;
mod growth;
mod idle;
mod memory;
mod neighbour;
mod renewed;
mod stalls;
mod start;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_bench::http;
use paxoslease_bench::peers::{self, Load, Ours, Service, Target};
use paxoslease_load::{Extent, Workload};
use paxoslease_rig::Process;
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

pub(crate) use self::clients::{AT_ONCE, ClientRow, run_rust_client};
pub(crate) use self::failover::{Clients, MAX_LEASE as FAILOVER_MAX_LEASE, TTL as FAILOVER_TTL};
pub(crate) use self::memory::MemoryRow;
pub(crate) use self::neighbour::Beside;
pub(crate) use self::renewed::Latency;
pub(crate) use self::stalls::Phase;
pub(crate) use self::start::{After, MAX_LEASE as START_MAX_LEASE};
use crate::side::Side;

/// Longer than any run.
const HELD_FOR: Duration = Duration::from_secs(3600);
const FILL_IN_FLIGHT: u32 = 512;
const CONNECTIONS: u32 = 4;
const READY_MAX: Duration = Duration::from_secs(60);

/// Its name in `--only`, and the measurement, which adds its rows to the figures.
type Part = (&'static str, fn(&ScalePlan, &mut ScaleFigures) -> Result<()>);

pub(crate) const PARTS: [Part; 9] = [
    ("memory", |p, all| memory::measure(p).map(|rows| all.memory = rows)),
    ("growth", |p, all| growth::measure(p).map(|rows| all.growth = rows)),
    ("renewed", |p, all| renewed::measure(p).map(|rows| all.renewed = rows)),
    ("stalls", |p, all| stalls::measure(p).map(|rows| all.stalls = rows)),
    ("failover", |p, all| failover::measure(p).map(|rows| all.failover = rows)),
    ("start", |p, all| start::measure(p).map(|rows| all.start = rows)),
    ("clients", |p, all| clients::measure(p).map(|rows| all.clients = rows)),
    ("idle", |p, all| idle::measure(p).map(|rows| all.idle = rows)),
    ("neighbour", |p, all| neighbour::measure(p).map(|rows| all.neighbour = rows)),
];

#[derive(Clone, Debug)]
pub(crate) struct ScalePlan {
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
    pub(crate) clients: Vec<clients::ClientRow>,
    pub(crate) idle: Vec<idle::IdleRow>,
    pub(crate) neighbour: Vec<neighbour::NeighbourRow>,
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
        if side.is_ours() { Ok(Box::new(start_ours(side, max_lease)?)) } else { side.start() }
    }
}

/// A PaxosLease cell with metrics.
fn start_ours(side: Side, max_lease: Duration) -> Result<Ours> {
    let mut settings = side.settings_of_ours();
    let max_lease = format!("{}ms", max_lease.as_millis());
    settings.options.extend(["--max-lease".to_owned(), max_lease]);
    Ours::start(settings)
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
        ensure!(began_at.elapsed() < READY_MAX, "it does not serve");
        sleep(pause);
    }
    Ok(())
}

/// Waits until a PaxosLease node votes.
fn await_vote(http: &str) -> Result<()> {
    let began_at = now();
    while !metric(http, "paxoslease_quarantine_remaining_seconds")?.is_zero() {
        ensure!(began_at.elapsed() < READY_MAX, "{http} does not vote");
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A metric of a PaxosLease node, in seconds.
fn metric(endpoint: &str, metric: &str) -> Result<Duration> {
    let mut page = http::agent().get(format!("http://{endpoint}/metrics")).call()?;
    let text = page.body_mut().read_to_string()?;
    let line = text.lines().find_map(|line| line.strip_prefix(metric));
    let value = line.and_then(|line| line.split_whitespace().last());
    let value = value.with_context(|| format!("no {metric} at {endpoint}"))?;
    Ok(Duration::try_from_secs_f64(value.parse()?)?)
}

fn cpu(service: &dyn Service) -> Result<Duration> {
    service.members().iter().map(Process::cpu).sum()
}

fn millis(span: Duration) -> f64 {
    crate::figures::rounded(span.as_secs_f64() * 1e3)
}
