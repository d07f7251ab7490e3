//! Redis servers that hand out locks with `SET NX PX` and a script that compares before it deletes:
//! one alone, or several without knowledge of each other for Redlock. What a server grants is gone
//! when it dies.

use anyhow::{Context, Result};
use paxoslease_load::{Dialect, Extent, Plan, Report, run_with};

use super::redlock::Redlock;
use super::{Service, Target, addresses, connected, grant_one, pairs, started, version_of};
use paxoslease_rig::{Folder, Process, free_ports, redis_server};

/// One server, or the servers of Redlock, without persistence.
#[derive(Debug)]
pub struct Redis {
    ports: Vec<u16>,
    processes: Vec<Process>,
    folder: Folder,
}

impl Redis {
    /// Starts the servers and waits until each serves. Several servers are for Redlock.
    pub fn start<const SERVERS: usize>() -> Result<Self> {
        let (ports, folder) = (free_ports::<SERVERS>()?.to_vec(), Folder::new("redis")?);
        started(Self { ports, processes: Vec::new(), folder }, SERVERS)
    }

    pub fn endpoints(&self) -> Vec<String> {
        addresses(&self.ports)
    }

    fn is_redlock(&self) -> bool {
        self.ports.len() > 1
    }
}

impl Service for Redis {
    fn version(&self) -> Result<String> {
        let text = version_of("redis-server")?;
        let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
        Ok(version.context("no version")?.to_owned())
    }

    fn settings(&self) -> String {
        let redlock = "; every operation to all at once, decided by the first majority";
        let more = if self.is_redlock() { redlock } else { " (--save \"\" --appendonly no)" };
        format!("no persistence{more}")
    }

    fn members(&self) -> &[Process] {
        &self.processes
    }

    fn members_mut(&mut self) -> &mut Vec<Process> {
        &mut self.processes
    }

    fn spawn(&self, member: usize) -> Result<Process> {
        let data = self.folder.join(member.to_string());
        std::fs::create_dir_all(&data)?;
        redis_server(self.ports[member], &data)
    }

    fn probe(&self, member: usize) -> Result<()> {
        let plan =
            connected(&pairs(1, 1, Extent::Count(1)), addresses(&self.ports[member..=member]));
        grant_one(Plan { dialect: Dialect::Redis, ..plan })
    }

    fn run(&self, plan: &Plan, _: Target) -> Result<Report> {
        let plan = Plan { dialect: Dialect::Redis, ..connected(plan, self.endpoints()) };
        Ok(if self.is_redlock() {
            run_with(&plan, Redlock::new(&plan), &mut |_| {})?
        } else {
            paxoslease_load::run(&plan, &mut |_| {})?
        })
    }

    fn first_to_kill(&self) -> Result<Option<usize>> {
        Ok(self.is_redlock().then_some(0))
    }
}
