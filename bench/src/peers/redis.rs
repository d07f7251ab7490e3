//! One Redis server that hands out locks the usual way, with `SET NX PX` and a script that
//! compares before it deletes. It asks nobody, and what it grants is gone when it dies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use paxoslease_load::{Dialect, Plan, Report};

use super::{Service, Target, await_service, connected, version_of};
use paxoslease_rig::{Folder, Process, free_ports};

/// What a Redis server writes to its disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Nothing: the fastest.
    Nothing,
    /// Snapshots now and then, by a child process, as is the default.
    Snapshots,
}

/// One Redis server.
#[derive(Debug)]
pub struct Redis {
    server: [RedisServer; 1],
    persistence: Persistence,
    process: [Process; 1],
    _folder: Folder,
}

impl Redis {
    /// Starts a server and waits until it serves.
    pub fn start(persistence: Persistence) -> Result<Self> {
        let folder = Folder::new("redis")?;
        let [port] = free_ports()?;
        let server = RedisServer::new(folder.path(), port, persistence)?;
        let process = [server.spawn()?];
        server.await_service(&process[0])?;
        Ok(Self { server: [server], persistence, process, _folder: folder })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.server[0].endpoint
    }
}

impl Service for Redis {
    fn name(&self) -> &'static str {
        match self.persistence {
            Persistence::Nothing => "Redis",
            Persistence::Snapshots => "Redis with snapshots",
        }
    }

    fn version(&self) -> Result<String> {
        version()
    }

    fn settings(&self) -> String {
        match self.persistence {
            Persistence::Nothing => "no persistence (--save \"\" --appendonly no)".to_owned(),
            Persistence::Snapshots => "defaults".to_owned(),
        }
    }

    fn members(&self) -> &[Process] {
        &self.process
    }

    fn run(&self, plan: &Plan, _: Target) -> Result<Report> {
        let plan =
            Plan { dialect: Dialect::Redis, ..connected(plan, [self.endpoint().to_owned()]) };
        Ok(paxoslease_load::run(&plan, &mut |_| {})?)
    }

    fn first_to_kill(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    fn restart(&mut self, member: usize) -> Result<()> {
        self.process[member].kill()?;
        self.process[member] = self.server[member].spawn()?;
        self.server[member].await_service(&self.process[member])
    }
}

/// How one Redis server is started, once or again.
#[derive(Debug)]
pub(super) struct RedisServer {
    pub(super) endpoint: String,
    port: u16,
    folder: PathBuf,
    persistence: Persistence,
}

impl RedisServer {
    /// It keeps its things in a folder of its own within this one.
    pub(super) fn new(parent: &Path, port: u16, persistence: Persistence) -> Result<Self> {
        let folder = parent.join(port.to_string());
        std::fs::create_dir(&folder)?;
        Ok(Self { endpoint: format!("127.0.0.1:{port}"), port, folder, persistence })
    }

    pub(super) fn spawn(&self) -> Result<Process> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
        if self.persistence == Persistence::Nothing {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        command.arg("--dir").arg(&self.folder);
        Process::spawn(command, &self.folder.join("log"))
            .context("is redis-server installed? On Debian: apt-get install redis-server")
    }

    pub(super) fn await_service(&self, process: &Process) -> Result<()> {
        await_service(&self.endpoint, Dialect::Redis).with_context(|| process.log_tail())
    }
}

/// What the installed server calls its version.
pub(super) fn version() -> Result<String> {
    let text = version_of("redis-server")?;
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(version.context("no version")?.to_owned())
}
