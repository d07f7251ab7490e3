//! The processes that are compared, and how they are started.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use paxoslease_bench::clock::{now, sleep};
use paxoslease_bench::process::{Folder, Process, free_ports, paxoslease_beside_this};
use paxoslease_load::{Dialect, Extent, Plan, Workload};

const NODES: u16 = 3;
const READY_MAX: Duration = Duration::from_secs(30);

/// Something that is put under load.
pub(crate) trait Server {
    fn processes(&self) -> &[Process];

    /// How long its processes ran so far.
    fn cpu(&self) -> Result<Duration> {
        self.processes().iter().map(Process::cpu).sum()
    }
}

/// One Redis server without persistence.
pub(crate) struct Redis {
    pub(crate) endpoint: String,
    process: [Process; 1],
    _folder: Folder,
}

impl Redis {
    pub(crate) fn start() -> Result<Self> {
        let folder = Folder::new("redis")?;
        let [port] = free_ports()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder.path());
        let process = [Process::spawn(command, &folder.join("log"))
            .context("is redis-server installed? On Debian: apt-get install redis-server")?];
        let endpoint = format!("127.0.0.1:{port}");
        let server = Self { endpoint, process, _folder: folder };
        await_service(&server.endpoint, Dialect::Redis)?;
        Ok(server)
    }
}

impl Server for Redis {
    fn processes(&self) -> &[Process] {
        &self.process
    }
}

/// Three nodes of ours.
pub(crate) struct Cell {
    /// Of node 1, 2 and 3, for clients.
    pub(crate) endpoints: Vec<String>,
    nodes: Vec<Process>,
    _folder: Folder,
}

impl Cell {
    pub(crate) fn start(binary: Option<PathBuf>, spin: &str) -> Result<Self> {
        let binary = binary.map_or_else(paxoslease_beside_this, Ok)?;
        let folder = Folder::new("cell")?;
        let peers: [u16; NODES as usize] = free_ports()?;
        let clients: [u16; NODES as usize] = free_ports()?;
        let mut nodes = Vec::new();
        for node in 1..=NODES {
            let mut command = Command::new(&binary);
            // It stops when its stdin is closed: no node outlives a benchmark that was killed.
            command.args(["serve", "--with-parent", "--new-cell", "--shards", "1"]);
            command.args(["--spin", spin]);
            command.args(["--node", &node.to_string(), "--listen-http", "off"]);
            let client = clients[usize::from(node) - 1];
            command.args(["--listen-clients", &format!("127.0.0.1:{client}")]);
            for (peer, port) in (1..).zip(peers) {
                command.args(["--peer", &format!("{peer}=127.0.0.1:{port}")]);
            }
            command.arg("--data-dir").arg(folder.join(node.to_string()));
            let log = folder.join(format!("{node}.log"));
            nodes.push(Process::spawn(command, &log)?);
        }
        let endpoints: Vec<String> =
            clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let cell = Self { endpoints, nodes, _folder: folder };
        for endpoint in &cell.endpoints {
            await_service(endpoint, Dialect::Paxoslease)
                .with_context(|| cell.nodes.iter().map(Process::said).collect::<String>())?;
        }
        Ok(cell)
    }
}

impl Server for Cell {
    fn processes(&self) -> &[Process] {
        &self.nodes
    }
}

/// Waits until a lease can be taken and released there.
fn await_service(endpoint: &str, dialect: Dialect) -> Result<()> {
    let began_at = now();
    let mut plan = Plan::new([endpoint], Workload::Pairs);
    (plan.dialect, plan.extent, plan.warmup) = (dialect, Extent::Count(1), Duration::ZERO);
    (plan.in_flight, plan.connections) = (1, 1);
    loop {
        let problem = match paxoslease_load::run(&plan, &mut |_| {}) {
            Ok(report) if report.operations == 1 => return Ok(()),
            Ok(report) => report.last_error.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        if began_at.elapsed() >= READY_MAX {
            bail!("{endpoint} did not come up: {problem}");
        }
        sleep(Duration::from_millis(10));
    }
}
