//! A loop that never sleeps takes one core: what the cell with the defaults and the one that never
//! spins reach then, and how far the loop comes beside each. The two take turns.
//!
//! Without a rate, the faster cell also does more work, and takes the time for it from the loop. So
//! the loop is compared at fixed rates, where both cells do the same work.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::cores::Neighbour;
use paxoslease_bench::peers::{Load, Service};
use paxoslease_rig::clock::{now, sleep, thread_time};
use serde::{Deserialize, Serialize};

use super::ScalePlan;
use crate::case::{Case, What};
use crate::figures::rounded;
use crate::side::Side;

/// The loads, and their operations per second; `None` begins one when another ends.
const LOADS: [(Case, Option<f64>); 6] = [
    (Case::new(What::Pairs, 1), None),
    (Case::new(What::Pairs, 64), None),
    (Case::new(What::Pairs, 512), None),
    (Case::new(What::Handovers, 16), None),
    (Case::new(What::Pairs, 64), Some(1_000.0)),
    (Case::new(What::Pairs, 64), Some(20_000.0)),
];
const MAX_LEASE: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(1);
const QUICK_SPAN: Duration = Duration::from_millis(250);
const WARMUP: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NeighbourRow {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) rate: Option<f64>,
    pub(crate) blocking: Beside,
    pub(crate) ours: Beside,
}

/// One cell beside the loop, by round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// Operations of the cell.
    pub(crate) per_second: Vec<f64>,
    /// Of the load generator, per operation.
    pub(crate) load_cpu_us: Vec<f64>,
    /// Steps of the loop, as a share of what it does alone.
    pub(crate) neighbour: Vec<f64>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<NeighbourRow>> {
    let blocking = plan.start(Side::OursBlocking, MAX_LEASE)?;
    let ours = plan.start(Side::Ours, MAX_LEASE)?;
    let span = plan.pick(QUICK_SPAN, SPAN);
    let neighbour = Neighbour::start()?;
    let (_, alone) = stepping(&neighbour, || {
        sleep(span);
        Ok(())
    })?;
    let mut rows: Vec<NeighbourRow> = LOADS
        .map(|(case, rate)| {
            let (blocking, ours) = Default::default();
            NeighbourRow { case, rate, blocking, ours }
        })
        .into();
    for round in 0..plan.pick(1, 3) {
        for row in &mut rows {
            eprintln!("{}, beside a busy neighbour", row.case);
            let load = Load { rate: row.rate, ..row.case.load(span, WARMUP) };
            // Every other round begins with the other.
            for turn in 0..2 {
                let (service, figures) = if (round + turn) % 2 == 0 {
                    (&blocking, &mut row.blocking)
                } else {
                    (&ours, &mut row.ours)
                };
                figures.add(&**service, row.case, &load, &neighbour, alone)?;
            }
        }
    }
    Ok(rows)
}

impl Beside {
    fn add(
        &mut self,
        service: &dyn Service,
        case: Case,
        load: &Load,
        neighbour: &Neighbour,
        alone: f64,
    ) -> Result<()> {
        let cpu = thread_time();
        let (loaded, steps) = stepping(neighbour, || service.run(load, case.target()))?;
        let share = loaded.seconds / (loaded.seconds + load.warmup.as_secs_f64());
        let cpu = (thread_time() - cpu).mul_f64(share / loaded.operations.max(1) as f64);
        self.per_second.push(rounded(loaded.per_second));
        self.load_cpu_us.push(rounded(cpu.as_secs_f64() * 1e6));
        self.neighbour.push(rounded(steps / alone));
        Ok(())
    }
}

/// The steps of the loop per second while something happens.
fn stepping<T>(neighbour: &Neighbour, happens: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let (began_at, before) = (now(), neighbour.steps());
    let result = happens()?;
    let steps = (neighbour.steps() - before) as f64;
    Ok((result, steps / began_at.elapsed().as_secs_f64()))
}
