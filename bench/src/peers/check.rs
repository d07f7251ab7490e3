//! Whether a service does what is about to be measured: a fast answer to a question that nobody
//! asked is worth nothing. Run against the real thing, before any figure is taken.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_load::{Extent, Plan, Report, Workload};

use super::{Service, Target, pairs};

const OPERATIONS: u64 = 40;
const NAMES: u32 = 8;
/// As short as every service lets a lease be.
const TTL: Duration = Duration::from_secs(4);

/// Takes, renews, hands over and gives back a few leases, and makes sure that what is held by one
/// load is held against another.
pub fn check(service: &dyn Service) -> Result<()> {
    checked(service).with_context(|| format!("{} does not do what it should", service.name()))
}

fn checked(service: &dyn Service) -> Result<()> {
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
