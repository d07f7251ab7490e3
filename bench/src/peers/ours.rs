//! A cell of three nodes of ours, each a process of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use paxoslease_load::{Dialect, Plan, Report};

use super::{Service, Target, await_service, connected, version_of};
use paxoslease_rig::{Certificates, Folder, Process, free_ports, paxoslease_beside_this};

const NODES: usize = 3;

/// How PaxosLease nodes are started.
#[derive(Clone, Debug)]
pub struct OursSettings {
    /// Options of `paxoslease serve`.
    pub options: Vec<String>,
    /// Whether nodes listen for HTTP, which has the metrics.
    pub has_http: bool,
    /// Whether nodes use TLS with each other. Clients do not.
    pub has_tls: bool,
}

impl OursSettings {
    /// Nodes with these options, and one shard each, so that a node is one thread.
    pub fn single(options: &str) -> Self {
        let options = format!("--shards 1 {options}");
        let options = options.split_whitespace().map(str::to_owned).collect();
        Self { options, has_http: false, has_tls: false }
    }

    /// The default settings of a user, which include HTTP.
    pub fn shipped() -> Self {
        Self { options: Vec::new(), has_http: true, has_tls: false }
    }
}

#[derive(Debug)]
pub struct Ours {
    settings: OursSettings,
    binary: PathBuf,
    peers: [u16; NODES],
    clients: [u16; NODES],
    http: [u16; NODES],
    certificates: Option<Certificates>,
    nodes: Vec<Process>,
    folder: Folder,
}

impl Ours {
    /// Starts a cell and waits until every node serves.
    pub fn start(settings: OursSettings) -> Result<Self> {
        let binary = paxoslease_beside_this()?;
        let folder = Folder::new("cell")?;
        let (peers, clients, http) = (free_ports()?, free_ports()?, free_ports()?);
        let make = || Certificates::make(&binary, "default", NODES, folder.join("certs"));
        let certificates = settings.has_tls.then(make).transpose()?;
        let nodes = Vec::new();
        let mut cell = Self { settings, binary, peers, clients, http, certificates, nodes, folder };
        for node in 0..NODES {
            let mut command = cell.command(node);
            command.arg("--new-cell");
            let process = Process::spawn(command, &cell.log(node))?;
            cell.nodes.push(process);
        }
        for node in 0..NODES {
            cell.await_node(node)?;
        }
        Ok(cell)
    }

    pub fn endpoints(&self) -> Vec<String> {
        addresses(&self.clients)
    }

    pub fn peer_endpoints(&self) -> Vec<String> {
        addresses(&self.peers)
    }

    /// The certificates of the nodes, if they use TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    fn log(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.log", node + 1))
    }

    fn command(&self, node: usize) -> Command {
        let mut command = Command::new(&self.binary);
        // It stops when its stdin is closed, so that no node outlives a killed benchmark.
        command.args(["serve", "--with-parent"]).args(&self.settings.options);
        command.args(["--node", &(node + 1).to_string()]);
        command.args(["--listen-clients", &format!("127.0.0.1:{}", self.clients[node])]);
        let http = format!("127.0.0.1:{}", self.http[node]);
        command.args(["--listen-http", if self.settings.has_http { &http } else { "off" }]);
        for (peer, port) in (1..).zip(self.peers) {
            command.args(["--peer", &format!("{peer}=127.0.0.1:{port}")]);
        }
        command.arg("--data-dir").arg(self.folder.join((node + 1).to_string()));
        if let Some(certificates) = &self.certificates {
            certificates.add_options(&mut command, node + 1, "off");
        }
        command
    }

    fn await_node(&mut self, node: usize) -> Result<()> {
        await_service(&self.endpoints()[node], Dialect::Paxoslease)
            .with_context(|| self.nodes.iter().map(Process::log_tail).collect::<String>())
    }
}

impl Service for Ours {
    fn version(&self) -> Result<String> {
        let text = version_of(&self.binary)?;
        Ok(text.split_whitespace().nth(1).context("no version")?.to_owned())
    }

    fn settings(&self) -> String {
        let mut chosen = self.settings.options.clone();
        if !self.settings.has_http {
            chosen.push("--listen-http off".to_owned());
        }
        if chosen.is_empty() { "defaults".to_owned() } else { chosen.join(" ") }
    }

    fn members(&self) -> &[Process] {
        &self.nodes
    }

    fn run(&self, plan: &Plan, target: Target) -> Result<Report> {
        let mut plan = connected(plan, self.endpoints());
        match target {
            Target::One => plan.endpoints.truncate(1),
            Target::Spread => {}
            Target::Member(member) => {
                plan.endpoints.rotate_left(member);
                plan.connections = 1;
            }
        }
        Ok(paxoslease_load::run(&plan, &mut |_| {})?)
    }

    fn http_endpoints(&self) -> Vec<String> {
        addresses(&self.http)
    }

    /// There is no leader. The first member is the one of [`Target::One`], so it stays alive.
    fn first_to_kill(&self) -> Result<Option<usize>> {
        Ok(Some(NODES - 1))
    }

    fn restart(&mut self, member: usize) -> Result<()> {
        self.nodes[member].kill()?;
        self.nodes[member] = Process::spawn(self.command(member), &self.log(member))?;
        self.await_node(member)
    }
}

fn addresses(ports: &[u16]) -> Vec<String> {
    ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
}
