//! Lease services that people use, as real cells of processes on loopback, put under the same
//! load by the same engine, `paxoslease-load`. Here is what only benchmarks need: how services are
//! started, and the protocols of those that do not speak RESP.

mod check;
mod etcd;
mod ours;
#[cfg(test)]
mod play;
mod redis;
mod redlock;
mod zookeeper;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use paxoslease_load::{Dialect, Extent, Plan, Report, Workload};
use paxoslease_rig::clock::{now, sleep};
use paxoslease_rig::{Folder, Process};

/// What is asked of a service; its endpoints are not looked at.
pub use paxoslease_load::Plan as Load;

pub use self::check::check;
pub use self::etcd::Etcd;
pub use self::ours::{Ours, OursSettings};
pub use self::redis::{Persistence, Redis};
pub use self::redlock::Redlock;
pub use self::zookeeper::{ZooKeeper, ZooKeeperSettings};

/// How long anything may take to come up; a JVM beside two others on a busy machine takes some.
const READY_MAX: Duration = Duration::from_secs(60);

/// How long the servers of others may be silent: longer than an election takes on a busy machine.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A service whose processes run. Loads can be put on it, also several at once from threads of
/// their own, and while a member dies.
pub trait Service: Sync {
    /// What errors call it, such as `Redlock`.
    fn name(&self) -> &'static str;

    /// What its program calls its version.
    fn version(&self) -> Result<String>;

    /// In what its settings differ from the defaults, for the page.
    fn settings(&self) -> String;

    /// Its members, in order. One that was killed stays in its place.
    fn members(&self) -> &[Process];

    /// Puts a load on it and waits for the end. The plan's endpoints are replaced by its own, and
    /// the connections are those to each server that a client would speak to.
    fn run(&self, plan: &Plan, target: Target) -> Result<Report>;

    /// The member whose death hurts most: the leader where there is one. `None` where the death
    /// of one is the death of all.
    fn first_to_kill(&self) -> Result<Option<usize>>;

    /// Starts a member that was killed and waits until it serves.
    fn restart(&mut self, member: usize) -> Result<()>;
}

/// Which members a load goes to, where that is the client's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All connections to the same one.
    One,
    /// Connections to every one in turn.
    Spread,
}

/// Where a service that logs before it answers puts its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// On the disk where temporary files are, with every sync it asks for.
    Disk,
    /// On a file system in memory, where a sync costs nothing: as fast as it gets without giving
    /// up its protocol, but what was promised dies with the machine.
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

/// A load of pairs in a closed loop, for a service to put its endpoints in.
pub fn pairs(in_flight: u32, connections: u32, extent: Extent) -> Plan {
    Plan {
        in_flight,
        connections: connections.min(in_flight),
        extent,
        warmup: Duration::ZERO,
        ..Plan::new([""; 0], Workload::Pairs)
    }
}

/// The plan with these endpoints.
fn connected(plan: &Plan, endpoints: impl Into<Vec<String>>) -> Plan {
    Plan { endpoints: endpoints.into(), ..plan.clone() }
}

/// Waits until a lease can be taken and released there.
fn await_service(endpoint: &str, dialect: Dialect) -> Result<()> {
    let mut plan = connected(&pairs(1, 1, Extent::Count(1)), [endpoint.to_owned()]);
    // A cell may be told to grant nothing longer.
    (plan.dialect, plan.ttl) = (dialect, Duration::from_millis(500));
    plan.names = "ready/".to_owned();
    await_until(endpoint, || match paxoslease_load::run(&plan, &mut |_| {}) {
        Ok(report) if report.operations == 1 => Ok(()),
        Ok(report) => bail!(report.last_error.unwrap_or_default()),
        Err(error) => Err(error.into()),
    })
}

/// Asks again and again until there is no error.
fn await_until<T>(what: &str, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
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

/// What a program prints when it is asked for its version.
fn version_of(program: impl AsRef<std::ffi::OsStr>) -> Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    ensure!(output.status.success(), "{name} does not say its version");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
