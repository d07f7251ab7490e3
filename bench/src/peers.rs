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

use anyhow::{Context, Result, ensure};
use paxoslease_load::{Extent, Plan, Report, Workload};
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

    fn members_mut(&mut self) -> &mut Vec<Process>;

    /// Starts the process of a member, for the first time or again.
    fn spawn(&self, member: usize) -> Result<Process>;

    /// Fails until a member serves.
    fn probe(&self, member: usize) -> Result<()>;

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
    fn restart(&mut self, member: usize) -> Result<()> {
        self.members()[member].kill()?;
        let process = self.spawn(member)?;
        self.members_mut()[member] = process;
        self.await_member(member)
    }

    fn await_member(&self, member: usize) -> Result<()> {
        let began_at = now();
        while let Err(error) = self.probe(member) {
            if began_at.elapsed() >= READY_MAX {
                let logs: String = self.members().iter().map(Process::log_tail).collect();
                return Err(error.context(format!("member {member} did not start: {logs}")));
            }
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Starts all members of a service and waits until each serves.
fn started<S: Service>(mut service: S, members: usize) -> Result<S> {
    for member in 0..members {
        let process = service.spawn(member)?;
        service.members_mut().push(process);
    }
    (0..members).try_for_each(|member| service.await_member(member))?;
    Ok(service)
}

fn addresses(ports: &[u16]) -> Vec<String> {
    ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
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

/// Acquires and releases a lease, in a plan with one endpoint.
fn grant_one(plan: Plan) -> Result<()> {
    // Shorter than the `max_lease` of any cell here.
    let ttl = Duration::from_millis(500);
    let plan = Plan { ttl, names: "ready/".to_owned(), ..plan };
    let report = paxoslease_load::run(&plan, &mut |_| {})?;
    ensure!(report.operations == 1, report.last_error.unwrap_or_default());
    Ok(())
}

/// The output of `--version`.
fn version_of(program: impl AsRef<std::ffi::OsStr>) -> Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    ensure!(output.status.success(), "{name} --version failed");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
