//! Many leases, each renewed at a third of its ttl, while other clients acquire and release at a
//! rate. The latency of a pair counts from when it was due, so that it includes stalls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use paxoslease_bench::peers::Redis;
use paxoslease_load::{Dialect, Extent, Report, Workload};
use paxoslease_rig::clock::{process_time, sleep};
use serde::{Deserialize, Serialize};

use super::{HELD_FOR, ScalePlan, start_ours};
use crate::figures::rounded;
use crate::side::Side;

const LEASES: u32 = 1_000_000;
const QUICK_LEASES: u32 = 100_000;
const TTL: Duration = Duration::from_secs(30);
const PAIRS_PER_SECOND: f64 = 10_000.0;
const WARMUP: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Redis, Side::Ours];
/// How much longer the renewals last than the pairs.
const AROUND: Duration = Duration::from_secs(3);
const IN_FLIGHT: u32 = 512;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RenewedRow {
    pub(crate) side: Side,
    pub(crate) leases: u32,
    pub(crate) ttl_ms: u64,
    pub(crate) renewals_due_per_second: f64,
    pub(crate) renewals_per_second: f64,
    pub(crate) pairs_due_per_second: f64,
    pub(crate) pairs_per_second: f64,
    pub(crate) pairs_alone_per_second: f64,
    /// Of a pair without the renewals.
    pub(crate) alone: Latency,
    /// Of a pair during the renewals.
    pub(crate) beside: Latency,
    /// Of the load generator per operation: without the renewals, and during them.
    #[serde(default)]
    pub(crate) load_cpu_us: Option<[f64; 2]>,
    pub(crate) failures: u64,
}

/// From the due time to the reply.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_9_us: f64,
    pub(crate) max_us: f64,
}

impl Latency {
    pub(super) fn of(nanos: &Histogram<u64>) -> Self {
        let at = |quantile| rounded(nanos.value_at_quantile(quantile) as f64 / 1e3);
        Self { p50_us: at(0.5), p99_us: at(0.99), p99_9_us: at(0.999), max_us: at(1.0) }
    }
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<RenewedRow>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        eprintln!("{}: many leases renewed, pairs beside", side.title());
        let measured = if side.is_ours() {
            let cell = start_ours(side, HELD_FOR)?;
            row(plan, side, Dialect::Paxoslease, &cell.endpoints()[0])
        } else {
            let redis = Redis::start::<1>()?;
            row(plan, side, Dialect::Redis, &redis.endpoints()[0])
        };
        rows.push(measured?);
    }
    Ok(rows)
}

fn row(plan: &ScalePlan, side: Side, dialect: Dialect, endpoint: &str) -> Result<RenewedRow> {
    let leases = plan.pick(QUICK_LEASES, LEASES);
    let span = Duration::from_secs(plan.pick(1, 8));
    let load = |workload, rate| {
        let mut load = paxoslease_load::Plan::new([endpoint], workload);
        (load.dialect, load.ttl, load.rate) = (dialect, TTL, Some(rate));
        (load.in_flight, load.connections) = (IN_FLIGHT, super::CONNECTIONS);
        load
    };
    let mut pairs = load(Workload::Pairs, PAIRS_PER_SECOND);
    (pairs.extent, pairs.warmup) = (Extent::Lasting(span), WARMUP);
    pairs.names = "pairs/".to_owned();
    let before = process_time();
    let alone = paxoslease_load::run(&pairs, &mut |_| {})?;
    let load_cpu_alone = process_time() - before;

    let due = 3.0 * f64::from(leases) / TTL.as_secs_f64();
    let mut renewals = load(Workload::Renew { leases }, due);
    (renewals.extent, renewals.warmup) = (Extent::Lasting(span + AROUND), WARMUP);
    renewals.names = "held/series/00".to_owned();
    let (renewed, beside, load_cpu_beside) = at_once(&renewals, &pairs)?;
    // The processor time includes the warm-up.
    let each = |cpu: Duration, per_second: f64| {
        let operations = per_second * (WARMUP + span).as_secs_f64();
        rounded(cpu.as_secs_f64() * 1e6 / operations)
    };
    let load_cpu_us = [
        each(load_cpu_alone, alone.per_second),
        each(load_cpu_beside, beside.per_second + renewed.per_second),
    ];
    Ok(RenewedRow {
        side,
        leases,
        ttl_ms: TTL.as_millis() as u64,
        renewals_due_per_second: rounded(due),
        renewals_per_second: rounded(renewed.per_second),
        pairs_due_per_second: PAIRS_PER_SECOND,
        pairs_per_second: rounded(beside.per_second),
        pairs_alone_per_second: rounded(alone.per_second),
        alone: Latency::of(&alone.whole_nanos),
        beside: Latency::of(&beside.whole_nanos),
        load_cpu_us: Some(load_cpu_us),
        failures: renewed.failures() + beside.failures(),
    })
}

/// Begins the pairs when the other load renews its leases. Returns both reports, and the processor
/// time of both loads while the pairs ran.
fn at_once(
    renewals: &paxoslease_load::Plan,
    pairs: &paxoslease_load::Plan,
) -> Result<(Report, Report, Duration)> {
    let is_renewing = AtomicBool::new(false);
    thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            paxoslease_load::run(renewals, &mut |progress| {
                is_renewing.fetch_or(progress.doing == "measuring", Ordering::Relaxed);
            })
        });
        while !is_renewing.load(Ordering::Relaxed) && !renewing.is_finished() {
            sleep(Duration::from_millis(10));
        }
        let before = process_time();
        let beside = paxoslease_load::run(pairs, &mut |_| {});
        let cpu = process_time() - before;
        let renewed = renewing.join().ok().context("the load panicked")?;
        let (renewed, beside) = (renewed?, beside?);
        ensure!(renewed.operations > 0, "nothing was renewed");
        Ok((renewed, beside, cpu))
    })
}
