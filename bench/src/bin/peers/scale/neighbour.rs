//! A loop that never sleeps takes one core: whether threads that spin when idle are then slower
//! than threads that sleep. The two take turns.

use std::time::Duration;

use anyhow::{Context, Result};
use paxoslease_bench::cores::{self, Busy};
use serde::{Deserialize, Serialize};

use super::ScalePlan;
use crate::case::{Case, What};
use crate::figures::rounded;
use crate::side::Side;

const CASES: [Case; 4] = [
    Case::new(What::Pairs, 1),
    Case::new(What::Pairs, 64),
    Case::new(What::Pairs, 512),
    Case::new(What::Handovers, 16),
];
const MAX_LEASE: Duration = Duration::from_secs(60);
const SPAN: Duration = Duration::from_secs(1);
const QUICK_SPAN: Duration = Duration::from_millis(250);
const WARMUP: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NeighbourRow {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// Operations per second of threads that sleep when idle.
    pub(crate) blocking: Vec<f64>,
    /// Operations per second of threads that spin when idle.
    pub(crate) spinning: Vec<f64>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<NeighbourRow>> {
    let blocking = plan.start(Side::Ours, MAX_LEASE)?;
    let spinning = plan.start(Side::OursSpinning, MAX_LEASE)?;
    let taken = *cores::all().last().context("cannot tell which cores there are")?;
    let neighbour = Busy::sharing(taken)?;
    let mut rows: Vec<NeighbourRow> =
        CASES.map(|case| NeighbourRow { case, blocking: Vec::new(), spinning: Vec::new() }).into();
    for round in 0..plan.pick(1, 4) {
        for row in &mut rows {
            eprintln!("{}, beside a busy neighbour", row.case);
            let load = row.case.load(plan.pick(QUICK_SPAN, SPAN), WARMUP);
            // Every other round begins with the other.
            for turn in 0..2 {
                let (service, figures) = if (round + turn) % 2 == 0 {
                    (&blocking, &mut row.blocking)
                } else {
                    (&spinning, &mut row.spinning)
                };
                figures.push(rounded(service.run(&load, row.case.target())?.per_second));
            }
        }
    }
    neighbour.check()?;
    Ok(rows)
}
