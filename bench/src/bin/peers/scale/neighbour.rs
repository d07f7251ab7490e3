//! One core is taken by a loop that never sleeps: whether threads that look for work before they
//! sleep are then worse off than threads that sleep at once. The two take turns.

use std::time::Duration;

use anyhow::{Context, Result};
use paxoslease_bench::cores::{self, Busy, Want};
use serde::{Deserialize, Serialize};

use super::{Plan, Told};
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

/// One load, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// Operations per second of threads that sleep at once.
    pub(crate) blocking: Vec<f64>,
    /// And of those that look for work first.
    pub(crate) spinning: Vec<f64>,
}

pub(super) fn measure(plan: &Plan, told: Told<'_>) -> Result<Vec<Row>> {
    let blocking = plan.start(Side::Ours, MAX_LEASE)?;
    let spinning = plan.start(Side::OursSpinning, MAX_LEASE)?;
    let taken = *cores::all().last().context("cannot tell which cores there are")?;
    let neighbour = Busy::on(taken, Want::Share)?;
    let mut rows: Vec<Row> =
        CASES.map(|case| Row { case, blocking: Vec::new(), spinning: Vec::new() }).into();
    for round in 0..plan.pick(1, 4) {
        for row in &mut rows {
            told(&format!("{}, beside a busy neighbour", row.case));
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
