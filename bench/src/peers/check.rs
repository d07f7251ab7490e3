//! Checks that a running service grants, renews, hands over and releases leases correctly. Runs
//! before any measurement, against the real service.

use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_load::{Extent, Plan, Report, Workload};

use super::{Service, Target, pairs};

const OPERATIONS: u64 = 40;
const NAMES: u32 = 8;
/// The shortest ttl of all services.
const TTL: Duration = Duration::from_secs(4);

/// Runs a few operations of each kind, and checks that a lease of one load excludes another load.
pub fn check(service: &dyn Service) -> Result<()> {
    for target in [Target::One, Target::Spread] {
        let workloads = [Workload::Pairs, Workload::Renew { leases: NAMES }, Workload::Handover];
        for workload in workloads {
            let loaded = run(service, workload, target, "check/", OPERATIONS)?;
            ensure!(
                loaded.operations == OPERATIONS && loaded.failures() == 0,
                "{workload:?} came to {} of {OPERATIONS}, {} failures: {:?}",
                loaded.operations,
                loaded.failures(),
                loaded.last_error
            );
        }
    }
    let held = run(service, Workload::Fill, Target::One, "held/", u64::from(NAMES))?;
    ensure!(held.operations == u64::from(NAMES), "only {} leases were taken", held.operations);
    let mixed = Workload::Mixed { hot_names: NAMES, hot_share: 1.0 };
    let others = run(service, mixed, Target::Spread, "held/", OPERATIONS)?;
    let (taken, failures) = (others.operations, others.failures());
    ensure!(taken == 0, "{taken} leases were granted although another holds them");
    ensure!(failures == 0, "{failures} failures: {:?}", others.last_error);
    Ok(())
}

fn run(
    service: &dyn Service,
    workload: Workload,
    target: Target,
    names: &str,
    count: u64,
) -> Result<Report> {
    let plan = pairs(6, 3, Extent::Count(count));
    service.run(&Plan { workload, ttl: TTL, names: names.to_owned(), ..plan }, target)
}
