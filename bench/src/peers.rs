//! Lease services as real processes on loopback, under the same load by the same engine,
//! `paxoslease-load`: how each service is started, and the protocols of those without RESP.

mod check;
mod etcd;
mod ours;
mod redis;
mod redlock;
mod zookeeper;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use paxoslease_load::{Dialect, Extent, Plan, Report, Workload};
use paxoslease_rig::clock::{now, sleep};
use paxoslease_rig::{Folder, Process};

/// The load on a service, which sets its own endpoints.
pub use paxoslease_load::Plan as Load;

pub use self::check::check;
pub use self::etcd::Etcd;
pub use self::ours::{Ours, OursSettings};
pub use self::redis::Redis;
pub use self::zookeeper::ZooKeeper;

/// How long a service may take to start: a JVM on a busy machine takes long.
const READY_MAX: Duration = Duration::from_secs(60);

/// How long peers may be silent: longer than an election on a busy machine.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A running service. Several threads may put loads on it, also while a member dies.
pub trait Service: Sync {
    fn version(&self) -> Result<String>;

    /// The settings that differ from the defaults, for the page.
    fn settings(&self) -> String;

    /// Its members. A killed one stays in its place.
    fn members(&self) -> &[Process];

    /// Runs a load with the service's own endpoints. The plan's connections are per server that a
    /// client uses.
    fn run(&self, plan: &Plan, target: Target) -> Result<Report>;

    /// The member to kill: the leader, if there is one. `None` if there is one member only.
    fn first_to_kill(&self) -> Result<Option<usize>>;

    /// The HTTP addresses of its members, for the metrics of PaxosLease.
    fn http_endpoints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Restarts a member and waits until it serves.
    fn restart(&mut self, member: usize) -> Result<()>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    One,
    Spread,
    /// One connection to this member, and to the next one when it dies. PaxosLease only.
    Member(usize),
}

/// Where a service with a log keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// On the disk of temporary files, synced.
    Disk,
    /// On a file system in memory, where a sync is free and the log is lost with the machine.
    Memory,
}

impl Storage {
    fn folder(self, what: &str) -> Result<Folder> {
        match self {
            Self::Disk => Folder::new(what),
            Self::Memory => Folder::in_memory(what),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Disk => "log synced to disk, as is the default",
            Self::Memory => "log on tmpfs, lost with the machine",
        }
    }
}

/// A load of pairs in a closed loop, without endpoints.
pub fn pairs(in_flight: u32, connections: u32, extent: Extent) -> Plan {
    Plan {
        in_flight,
        connections: connections.min(in_flight),
        extent,
        warmup: Duration::ZERO,
        ..Plan::new([""; 0], Workload::Pairs)
    }
}

fn connected(plan: &Plan, endpoints: impl Into<Vec<String>>) -> Plan {
    Plan { endpoints: endpoints.into(), ..plan.clone() }
}

/// Waits until the server grants and releases a lease.
fn await_service(endpoint: &str, dialect: Dialect) -> Result<()> {
    let mut plan = connected(&pairs(1, 1, Extent::Count(1)), [endpoint.to_owned()]);
    // Shorter than the `max_lease` of any cell here.
    (plan.dialect, plan.ttl) = (dialect, Duration::from_millis(500));
    plan.names = "ready/".to_owned();
    await_until(endpoint, || match paxoslease_load::run(&plan, &mut |_| {}) {
        Ok(report) if report.operations == 1 => Ok(()),
        Ok(report) => bail!(report.last_error.unwrap_or_default()),
        Err(error) => Err(error.into()),
    })
}

/// Calls a function until it succeeds.
fn await_until<T>(what: &str, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let began_at = now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if began_at.elapsed() >= READY_MAX => {
                return Err(error.context(format!("{what} did not start")));
            }
            Err(_) => sleep(Duration::from_millis(1)),
        }
    }
}

/// The output of `--version`.
fn version_of(program: impl AsRef<std::ffi::OsStr>) -> Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    ensure!(output.status.success(), "{name} --version failed");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
