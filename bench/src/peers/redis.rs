//! Redis servers that hand out locks with `SET NX PX` and a script that compares before it deletes:
//! one alone, or several without knowledge of each other for Redlock. What a server grants is gone
//! when it dies.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use paxoslease_load::{Dialect, Plan, Report, run_with};

use super::redlock::Redlock;
use super::{Service, Target, await_service, connected, version_of};
use paxoslease_rig::{Folder, Process, free_ports};

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
        let mut redis = Self { ports, processes: Vec::new(), folder };
        for member in 0..SERVERS {
            std::fs::create_dir(redis.data(member))?;
            redis.processes.push(redis.spawn(member)?);
        }
        (0..SERVERS).try_for_each(|member| redis.await_member(member))?;
        Ok(redis)
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    fn is_redlock(&self) -> bool {
        self.ports.len() > 1
    }

    fn data(&self, member: usize) -> PathBuf {
        self.folder.join(member.to_string())
    }

    fn spawn(&self, member: usize) -> Result<Process> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.ports[member].to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(self.data(member));
        Process::spawn(command, &self.data(member).join("log"))
            .context("is redis-server installed? On Debian: apt-get install redis-server")
    }

    fn await_member(&self, member: usize) -> Result<()> {
        await_service(&self.endpoints()[member], Dialect::Redis)
            .with_context(|| self.processes[member].log_tail())
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

    fn restart(&mut self, member: usize) -> Result<()> {
        self.processes[member].kill()?;
        self.processes[member] = self.spawn(member)?;
        self.await_member(member)
    }
}
