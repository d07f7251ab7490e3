//! What the load generator of the product can speak to: our own nodes, and Redis.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use paxoslease_load::{Dialect, Extent, Plan, Workload};

use super::{Load, Loaded};
use paxoslease_rig::clock::{now, sleep};

/// How long anything may take to come up; a JVM beside two others on a busy machine takes some.
pub(super) const READY_MAX: Duration = Duration::from_secs(60);

/// Puts the load on these endpoints, connections to each in turn.
pub(super) fn run(load: &Load, dialect: Dialect, endpoints: &[String]) -> Result<Loaded> {
    let mut plan = Plan::new(endpoints, load.workload);
    plan.dialect = dialect;
    plan.connections = load.connections.min(load.in_flight);
    plan.in_flight = load.in_flight;
    plan.extent = load.extent;
    plan.ttl = load.ttl;
    plan.names.clone_from(&load.names);
    plan.warmup = load.warmup;
    let report = paxoslease_load::run(&plan, &mut |_| {})?;
    Ok(Loaded {
        operations: report.operations,
        per_second: report.per_second,
        failures: report.failures(),
        longest_gap: Duration::from_secs_f64(report.longest_gap_ms / 1e3),
        last_error: report.last_error,
        latency: report.whole_nanos,
        shares: report.shares,
    })
}

/// Waits until a lease can be taken and released there.
pub(super) fn await_service(endpoint: &str, dialect: Dialect) -> Result<()> {
    let mut plan = Plan::new([endpoint], Workload::Pairs);
    (plan.dialect, plan.extent, plan.warmup) = (dialect, Extent::Count(1), Duration::ZERO);
    (plan.in_flight, plan.connections) = (1, 1);
    // A cell may be told to grant nothing longer.
    (plan.names, plan.ttl) = ("ready/".to_owned(), Duration::from_millis(500));
    await_until(endpoint, || match paxoslease_load::run(&plan, &mut |_| {}) {
        Ok(report) if report.operations == 1 => Ok(()),
        Ok(report) => bail!(report.last_error.unwrap_or_default()),
        Err(error) => Err(error.into()),
    })
}

/// Asks again and again until it is well.
pub(super) fn await_until<T>(what: &str, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let began_at = now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if began_at.elapsed() >= READY_MAX => {
                return Err(error.context(format!("{what} did not come up")));
            }
            Err(_) => sleep(Duration::from_millis(1)),
        }
    }
}

/// What a program prints on these arguments.
pub(super) fn printed(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} does not say its version");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
