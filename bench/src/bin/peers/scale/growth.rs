//! The processor time of a pair while many other leases are held. Each number of leases has its own
//! service, and they take turns, so that a machine that gets slower does not look like growth.

use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_bench::peers::{Service, Target};
use serde::{Deserialize, Serialize};

use super::{HELD_FOR, ScalePlan, cpu, fill, pairs};
use crate::figures::rounded;
use crate::side::Side;

const HELD: [u32; 4] = [1_000, 100_000, 1_000_000, 10_000_000];
const QUICK_POINTS: usize = 2;
const SIDES: [Side; 2] = [Side::Redis, Side::Ours];
const IN_FLIGHT: u32 = 512;
const SPAN: Duration = Duration::from_secs(1);
const WARMUP: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GrowthRow {
    pub(crate) side: Side,
    pub(crate) held: u32,
    /// Processor time of all members per pair, in microseconds.
    pub(crate) cpu_us: Vec<f64>,
    pub(crate) per_second: Vec<f64>,
}

pub(super) fn measure(plan: &ScalePlan) -> Result<Vec<GrowthRow>> {
    let mut rows = Vec::new();
    for side in plan.among(&SIDES) {
        let mut points = Vec::new();
        for held in &HELD[..plan.pick(QUICK_POINTS, HELD.len())] {
            eprintln!("{}: {held} leases held", side.title());
            let service = plan.start(side, HELD_FOR)?;
            fill(&*service, 0, *held)?;
            let row = GrowthRow { side, held: *held, cpu_us: Vec::new(), per_second: Vec::new() };
            points.push((service, row));
        }
        for round in 0..plan.pick(2, 4) {
            let first = round % points.len();
            for turn in 0..points.len() {
                let count = points.len();
                let (service, row) = &mut points[(first + turn) % count];
                eprintln!("{}: pairs beside {} leases", side.title(), row.held);
                row.add(&**service)?;
            }
        }
        rows.extend(points.into_iter().map(|(_, row)| row));
    }
    Ok(rows)
}

impl GrowthRow {
    fn add(&mut self, service: &dyn Service) -> Result<()> {
        service.run(&pairs(IN_FLIGHT, WARMUP), Target::One)?;
        let before = cpu(service)?;
        let loaded = service.run(&pairs(IN_FLIGHT, SPAN), Target::One)?;
        let ran = cpu(service)? - before;
        ensure!(loaded.failures() == 0, "pairs failed: {}", loaded.last_error.unwrap_or_default());
        self.cpu_us.push(rounded(ran.as_secs_f64() * 1e6 / loaded.operations as f64));
        self.per_second.push(rounded(loaded.per_second));
        Ok(())
    }
}
