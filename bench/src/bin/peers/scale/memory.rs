//! The resident memory of a held lease in each member, less the memory after a small load. Garbage
//! and history of a service count, too. A service that fails loses its own figures only.

use anyhow::{Result, ensure};
use paxoslease_bench::peers::{Load, Service, Target};
use paxoslease_load::{Extent, Workload};
use paxoslease_rig::Process;
use serde::{Deserialize, Serialize};

use super::{HELD_FOR, ScalePlan, fill, pairs};
use crate::figures::rounded;
use crate::side::Side;

const MANY: [u32; 3] = [100_000, 1_000_000, 10_000_000];
const QUICK_FEW: [u32; 1] = [10_000];
/// The sides with ten million leases.
const MOST: [Side; 2] = [Side::Ours, Side::Redis];
/// They need minutes and gigabytes where others need seconds.
const FEWEST: [Side; 2] = [Side::ZooKeeper, Side::Etcd];
const SIDES: [Side; 5] = [Side::Redis, Side::Redlock, Side::Ours, Side::ZooKeeper, Side::Etcd];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemoryRow {
    pub(crate) side: Side,
    pub(crate) leases: u32,
    /// Per lease, in every member. Empty if that was not measured.
    pub(crate) bytes: Vec<f64>,
    /// Why it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<MemoryRow>> {
    measure_each(plan, |side, steps, rows| measure_side(plan, side, steps, rows))
}

/// The numbers of leases to hold, each more than the one before.
fn steps(side: Side, is_quick: bool) -> &'static [u32] {
    if FEWEST.contains(&side) && is_quick {
        &QUICK_FEW
    } else if FEWEST.contains(&side) || is_quick {
        &MANY[..1]
    } else if MOST.contains(&side) {
        &MANY
    } else {
        &MANY[..2]
    }
}

/// Fails if no side was measured.
fn measure_each(
    plan: &ScalePlan,
    measure: impl Fn(Side, &[u32], &mut Vec<MemoryRow>) -> Result<()>,
) -> Result<Vec<MemoryRow>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        let (steps, rows_before) = (steps(side, plan.quick), rows.len());
        if let Err(error) = measure(side, steps, &mut rows) {
            eprintln!("{}: {error:#}", side.title());
            let leases = steps[rows.len() - rows_before];
            let problem = Some(format!("{error:#}"));
            rows.push(MemoryRow { side, leases, bytes: Vec::new(), problem });
        }
    }
    let is_measured = |row: &MemoryRow| row.problem.is_none();
    ensure!(rows.is_empty() || rows.iter().any(is_measured), "no service was measured");
    Ok(rows)
}

fn measure_side(
    plan: &ScalePlan,
    side: Side,
    steps: &[u32],
    rows: &mut Vec<MemoryRow>,
) -> Result<()> {
    let service = plan.start(side, HELD_FOR)?;
    settle(&*service)?;
    let before = resident(&*service)?;
    let mut held = 0;
    for (series, leases) in (0..).zip(steps) {
        eprintln!("{}: {leases} leases held", side.title());
        fill(&*service, series, leases - held)?;
        held = *leases;
        let after = resident(&*service)?;
        let each = before
            .iter()
            .zip(after)
            .map(|(before, after)| rounded((after as f64 - *before as f64) / f64::from(held)));
        rows.push(MemoryRow { side, leases: held, bytes: each.collect(), problem: None });
    }
    Ok(())
}

/// Allocates buffers by a load on few names.
fn settle(service: &dyn Service) -> Result<()> {
    let workload = Workload::Renew { leases: super::FILL_IN_FLIGHT };
    let extent = Extent::Count(u64::from(20 * super::FILL_IN_FLIGHT));
    let load = Load { workload, extent, ..pairs(super::FILL_IN_FLIGHT, HELD_FOR) };
    service.run(&load, Target::One).map(drop)
}

fn resident(service: &dyn Service) -> Result<Vec<u64>> {
    service.members().iter().map(Process::rss).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    const SLOW: &str = "9000 of 100000 leases taken";

    fn measured(sides: &[Side], slow: &[Side]) -> Result<Vec<(Side, u32, Option<String>)>> {
        let plan = ScalePlan { sides: sides.to_vec(), quick: false };
        let rows = measure_each(&plan, |side, steps, rows| {
            // A slow side takes the leases of every step except the last.
            let is_slow = slow.contains(&side);
            for leases in &steps[..steps.len() - usize::from(is_slow)] {
                rows.push(MemoryRow { side, leases: *leases, bytes: vec![1.0], problem: None });
            }
            if is_slow {
                bail!(SLOW);
            }
            Ok(())
        });
        Ok(rows?.into_iter().map(|row| (row.side, row.leases, row.problem)).collect())
    }

    #[test]
    fn a_service_that_is_too_slow_loses_its_own_figure_only() {
        let sides = [Side::Redlock, Side::ZooKeeper, Side::Etcd];
        let rows = measured(&sides, &[Side::Redlock, Side::Etcd]).expect("some were measured");
        let [few, many, _] = MANY;
        let slow = || Some(SLOW.to_owned());
        let expected = [
            (Side::Redlock, few, None),
            (Side::Redlock, many, slow()),
            (Side::ZooKeeper, few, None),
            (Side::Etcd, few, slow()),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_part_fails_if_no_service_was_measured() {
        measured(&[Side::Etcd], &[Side::Etcd]).expect_err("nothing to show");
        assert_eq!(measured(&[], &[]).expect("nothing was asked for"), []);
    }
}
