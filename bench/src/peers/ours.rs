//! A cell of three nodes of ours, each a process of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use paxoslease_load::{Dialect, Plan, Report};

use super::{Service, Target, await_service, connected, version_of};
use paxoslease_rig::{Certificates, Folder, Process, free_ports, paxoslease_beside_this};

const NODES: usize = 3;

/// How nodes of ours are started.
#[derive(Clone, Debug)]
pub struct OursSettings {
    /// The binary `paxoslease`; `None` for the one beside the program that runs.
    pub binary: Option<PathBuf>,
    /// How many shards; `None` for one per core, as is the default.
    pub shards: Option<u16>,
    /// How long threads look for work before they sleep, such as `50us`; not at all by default.
    pub spin: Option<String>,
    /// Further options of `paxoslease serve`, such as `--limit` and `leases=10000000`.
    pub options: Vec<String>,
    /// Whether nodes listen for HTTP, where their metrics are.
    pub has_http: bool,
    /// Whether nodes speak TLS with each other; clients come in clear.
    pub has_tls: bool,
}

impl OursSettings {
    /// The options that differ from the defaults.
    fn chosen(&self) -> Vec<String> {
        let shards = self.shards.map(|shards| ["--shards".to_owned(), shards.to_string()]);
        let spin = self.spin.clone().map(|spin| ["--spin".to_owned(), spin]);
        let chosen = shards.into_iter().chain(spin).flatten();
        chosen.chain(self.options.iter().cloned()).collect()
    }

    /// What a user has who sets nothing. Metrics are on then, and have to have a port.
    pub fn shipped() -> Self {
        Self { shards: None, has_http: true, ..Self::default() }
    }
}

impl Default for OursSettings {
    /// One shard, so that a node is one thread.
    fn default() -> Self {
        let (spin, options) = (None, Vec::new());
        Self { binary: None, shards: Some(1), spin, options, has_http: false, has_tls: false }
    }
}

/// A cell of three nodes.
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
        let binary = settings.binary.clone().map_or_else(paxoslease_beside_this, Ok)?;
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

    /// Where clients reach each node.
    pub fn endpoints(&self) -> Vec<String> {
        self.clients.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Where each node answers HTTP, if it does.
    pub fn http_endpoints(&self) -> Vec<String> {
        self.http.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// Where each node listens for its peers.
    pub fn peer_endpoints(&self) -> Vec<String> {
        self.peers.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// What its nodes show each other, if they speak TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    fn log(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.log", node + 1))
    }

    fn command(&self, node: usize) -> Command {
        let mut command = Command::new(&self.binary);
        // It stops when its stdin is closed: no node outlives a benchmark that was killed.
        command.args(["serve", "--with-parent"]).args(self.settings.chosen());
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
    fn name(&self) -> &'static str {
        "PaxosLease"
    }

    fn version(&self) -> Result<String> {
        let text = version_of(&self.binary)?;
        Ok(text.split_whitespace().nth(1).context("no version")?.to_owned())
    }

    fn settings(&self) -> String {
        let mut chosen = self.settings.chosen();
        if !self.settings.has_http {
            chosen.push("--listen-http off".to_owned());
        }
        if chosen.is_empty() { "defaults".to_owned() } else { chosen.join(" ") }
    }

    fn members(&self) -> &[Process] {
        &self.nodes
    }

    fn run(&self, plan: &Plan, target: Target) -> Result<Report> {
        let mut endpoints = self.endpoints();
        if target == Target::One {
            endpoints.truncate(1);
        }
        Ok(paxoslease_load::run(&connected(plan, endpoints), &mut |_| {})?)
    }

    /// Nobody leads, so one is as good as another; the first is left alone because it is the one
    /// that [`Target::One`] speaks to.
    fn first_to_kill(&self) -> Result<Option<usize>> {
        Ok(Some(NODES - 1))
    }

    fn restart(&mut self, member: usize) -> Result<()> {
        self.nodes[member].kill()?;
        self.nodes[member] = Process::spawn(self.command(member), &self.log(member))?;
        self.await_node(member)
    }
}
