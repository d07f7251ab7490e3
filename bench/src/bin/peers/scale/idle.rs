//! The processor time of a service without clients, after a short load.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::peers::{Service, Target};
use paxoslease_rig::Process;
use paxoslease_rig::clock::{now, sleep};
use serde::{Deserialize, Serialize};

use super::{ScalePlan, pairs};
use crate::figures::rounded;
use crate::side::Side;

const SIDES: [Side; 3] = [Side::Redis, Side::Ours, Side::OursBlocking];
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

/// All services are idle at the same time.
pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<IdleRow>> {
    let mut idle = Vec::new();
    for side in plan.among(&SIDES) {
        let service = plan.start(side, MAX_LEASE)?;
        service.run(&pairs(IN_FLIGHT, LOADED_FOR), Target::Spread)?;
        idle.push((side, service));
    }
    sleep(SETTLES_FOR);
    let ran = |service: &dyn Service| -> Result<Vec<Duration>> {
        service.members().iter().map(Process::run_time).collect()
    };
    let before = idle.iter().map(|(_, service)| ran(&**service)).collect::<Result<Vec<_>>>()?;
    let began_at = now();
    sleep(plan.pick(QUICK_SPAN, SPAN));
    let span = began_at.elapsed();
    let row = |((side, service), before): (&(Side, Box<dyn Service>), Vec<Duration>)| {
        let share = |(after, before): (Duration, Duration)| {
            rounded(100.0 * after.saturating_sub(before).div_duration_f64(span))
        };
        let percent = ran(&**service)?.into_iter().zip(before).map(share).collect();
        Ok(IdleRow { side: *side, percent })
    };
    idle.iter().zip(before).map(row).collect()
}
