//! The service under test, a cell of three processes or a Redis server, and the faults of a cell.

use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_rig::{Folder, Process, clock, free_ports, redis_server};
use paxoslease_sim::Rng;

use super::model::Service;
use super::run::{Faults, LinearOptions};
use crate::log::{Nanos, now};
use crate::nemesis::{Fault, NodeFault, Testbed};
use crate::network::Interface;
use crate::run::{RunOptions, prepare};
use crate::schedule::Plan;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a service may take until it serves.
const READY_MAX: Duration = Duration::from_secs(60);
const NODES: u16 = 3;
/// The longest time for which a node is away, in milliseconds.
const AWAY_MAX: u64 = 1500;

pub(super) struct Running {
    kind: Kind,
    pub(super) endpoints: Vec<String>,
    pub(super) faults: u64,
}

enum Kind {
    Cell(Box<Testbed>),
    /// Dropped in this order.
    Redis {
        _process: Process,
        _folder: Folder,
    },
}

impl Running {
    pub(super) fn start(options: &LinearOptions) -> Result<Self> {
        match &options.paxoslease {
            Some(paxoslease) => {
                let plan = Plan::new(options.seed, NODES, options.max_lease);
                let options = RunOptions {
                    plan,
                    paxoslease: paxoslease.clone(),
                    on_loopback: true,
                    folder: options.folder.clone(),
                    ..RunOptions::default()
                };
                Self::cell(&options)
            }
            None => {
                let (folder, [port]) = (Folder::new("redis")?, free_ports()?);
                let process = redis_server(port, folder.path())?;
                let endpoints = vec![format!("127.0.0.1:{port}")];
                let kind = Kind::Redis { _process: process, _folder: folder };
                Ok(Self { kind, endpoints, faults: 0 })
            }
        }
    }

    fn cell(options: &RunOptions) -> Result<Self> {
        let (mut testbed, _) = prepare(options)?;
        let mut endpoints = Vec::new();
        for id in testbed.cell.ids() {
            testbed.cell.start(id, &*testbed.network, &mut testbed.log)?;
            endpoints.push(testbed.network.address(id, Interface::Clients));
        }
        Ok(Self { kind: Kind::Cell(Box::new(testbed)), endpoints, faults: 0 })
    }

    pub(super) const fn model(&self) -> Service {
        match self.kind {
            Kind::Cell(_) => Service::CELL,
            Kind::Redis { .. } => Service::REDIS,
        }
    }

    /// Waits until every endpoint grants a lease.
    pub(super) fn await_ready(&mut self) -> Result<()> {
        let began_at = clock::now();
        for endpoint in self.endpoints.clone() {
            while let Err(error) = grant_one(&endpoint) {
                self.look()?;
                if began_at.elapsed() >= READY_MAX {
                    return Err(error).context(format!("{endpoint} did not get ready"));
                }
                clock::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::Cell(testbed) => testbed.cell.look(&mut testbed.log),
            Kind::Redis { .. } => Ok(()),
        }
    }

    pub(super) fn bugs(&self) -> Result<Vec<String>> {
        match &self.kind {
            Kind::Cell(testbed) => testbed.cell.bugs(),
            Kind::Redis { .. } => Ok(Vec::new()),
        }
    }

    /// Breaks one node after another, each healed before the next, until the run is over.
    pub(super) fn disturb(
        &mut self,
        options: &LinearOptions,
        ends_at: Nanos,
        is_over: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (fault, rest) = match options.faults {
            Faults::None => return self.wait(ends_at, is_over),
            // A killed node votes again when its quarantine is over.
            Faults::Kill => (NodeFault::Kill, options.max_lease + options.max_lease / 2),
            Faults::Pause => (NodeFault::Pause, Duration::from_millis(500)),
        };
        let mut rng = Rng::new(options.seed, 0xfa17);
        while now() < ends_at && !is_over() {
            let node = (self.faults % u64::from(NODES)) as u16 + 1;
            let step = (self.faults + 1, 0);
            self.wait(ends_at.min(now() + nanos(rest + rng.millis(0, 500))), is_over)?;
            let Kind::Cell(testbed) = &mut self.kind else { return Ok(()) };
            testbed.begin(step, &Fault::Nodes(fault, vec![node]))?;
            self.faults += 1;
            self.wait(now() + nanos(rng.millis(100, AWAY_MAX)), is_over)?;
            let Kind::Cell(testbed) = &mut self.kind else { return Ok(()) };
            testbed.end(step)?;
        }
        self.wait(ends_at, is_over)
    }

    fn wait(&mut self, until: Nanos, is_over: &dyn Fn() -> bool) -> Result<()> {
        while now() < until && !is_over() {
            self.look()?;
            clock::sleep(POLL_INTERVAL.min(Duration::from_nanos(until.saturating_sub(now()))));
        }
        Ok(())
    }
}

fn nanos(span: Duration) -> Nanos {
    span.as_nanos() as u64
}

fn grant_one(endpoint: &str) -> redis::RedisResult<()> {
    let mut connection = redis::Client::open(format!("redis://{endpoint}/"))?
        .get_connection_with_timeout(Duration::from_secs(1))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let key = format!("ready/{endpoint}");
    redis::cmd("SET").arg(key).arg("ready").arg("NX").arg("PX").arg(100).exec(&mut connection)
}
