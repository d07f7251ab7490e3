//! The processor time of a service without clients, after a short load.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::peers::Target;
use paxoslease_rig::Process;
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

use super::{ScalePlan, pairs};
use crate::figures::rounded;
use crate::side::Side;

const SIDES: [Side; 5] = [Side::Redis, Side::Ours, Side::OursBlocking, Side::ZooKeeper, Side::Etcd];
const MAX_LEASE: Duration = Duration::from_secs(60);
const IN_FLIGHT: u32 = 64;
const LOADED_FOR: Duration = Duration::from_millis(500);
/// Until the service has finished what the load left.
const SETTLES_FOR: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_secs(10);
const QUICK_SPAN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct IdleRow {
    pub(crate) side: Side,
    /// Of one core, for every member.
    pub(crate) percent: Vec<f64>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<IdleRow>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        eprintln!("{}: idle", side.title());
        let service = plan.start(side, MAX_LEASE)?;
        service.run(&pairs(IN_FLIGHT, LOADED_FOR), Target::Spread)?;
        sleep(SETTLES_FOR);
        let ran = || service.members().iter().map(Process::run_time).collect::<Result<Vec<_>>>();
        let (began_at, before) = (now(), ran()?);
        sleep(plan.pick(QUICK_SPAN, SPAN));
        let (after, span) = (ran()?, began_at.elapsed());
        let share = |(before, after): (&Duration, Duration)| {
            rounded(100.0 * after.saturating_sub(*before).div_duration_f64(span))
        };
        rows.push(IdleRow { side, percent: before.iter().zip(after).map(share).collect() });
    }
    Ok(rows)
}
