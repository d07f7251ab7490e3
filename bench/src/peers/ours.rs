//! A cell of up to three nodes of ours, each a process of its own.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use paxoslease_client::Tls;
use paxoslease_load::{Extent, Plan, Report, Secret};

use super::{Service, Target, addresses, connected, grant_one, pairs, started, version_of};
use paxoslease_rig::{Certificates, Folder, Process, free_ports, paxoslease_beside_this};

const NODES_MAX: usize = 3;
/// In the folder of a cell with tokens.
const CONFIG: &str = "access.toml";
const TOKEN: &str = "benchmark";
/// Allows the token everything.
const ACCESS: &str = r#"cell = "default"
[[access]]
token_sha256 = "0e89820860c342f2c7ec694d144023b10301c2accdd078cb5167a06d0c3d5bcc"
names = ["*"]
may = ["acquire", "read", "admin"]
"#;

/// How PaxosLease nodes are started.
#[derive(Clone, Debug)]
pub struct OursSettings {
    /// Options of `paxoslease serve`.
    pub options: Vec<String>,
    /// At most three.
    pub nodes: usize,
    /// Whether nodes listen for RESP, which all loads use.
    pub has_clients: bool,
    /// Whether nodes listen for HTTP, which has the metrics.
    pub has_http: bool,
    /// The value of `--tls-clients`; `None` if nodes do not even use TLS with each other.
    pub tls: Option<&'static str>,
    /// Whether clients need a token.
    pub has_tokens: bool,
}

impl OursSettings {
    /// The default settings of a user, which include HTTP, and these options.
    pub fn new(options: &str) -> Self {
        let options = options.split_whitespace().map(str::to_owned).collect();
        let (has_clients, has_http, tls, has_tokens) = (true, true, None, false);
        Self { options, nodes: NODES_MAX, has_clients, has_http, tls, has_tokens }
    }
}

#[derive(Debug)]
pub struct Ours {
    settings: OursSettings,
    binary: PathBuf,
    peers: Vec<u16>,
    clients: Vec<u16>,
    http: Vec<u16>,
    certificates: Option<Certificates>,
    nodes: Vec<Process>,
    folder: Folder,
}

impl Ours {
    /// Starts a cell and waits until every node serves.
    pub fn start(settings: OursSettings) -> Result<Self> {
        let (binary, folder) = (paxoslease_beside_this()?, Folder::new("cell")?);
        let nodes = settings.nodes;
        let ports = || anyhow::Ok(free_ports::<NODES_MAX>()?[..nodes].to_vec());
        let (peers, clients, http) = (ports()?, ports()?, ports()?);
        let make = || Certificates::make(&binary, "default", nodes, folder.join("certs"));
        let certificates = settings.tls.is_some().then(make).transpose()?;
        if settings.has_tokens {
            std::fs::write(folder.join(CONFIG), ACCESS)?;
        }
        let none = Vec::new();
        started(
            Self { settings, binary, peers, clients, http, certificates, nodes: none, folder },
            nodes,
        )
    }

    pub fn endpoints(&self) -> Vec<String> {
        addresses(&self.clients)
    }

    pub fn peer_endpoints(&self) -> Vec<String> {
        addresses(&self.peers)
    }

    /// Trusts the nodes, and has no certificate. `None` if they do not use TLS.
    pub fn tls(&self) -> Result<Option<Tls>> {
        let made = self.certificates.as_ref();
        Ok(made.map(|made| Tls::from_ca_file(made.authority())).transpose()?)
    }

    /// With what the nodes require of clients.
    fn secured(&self, plan: Plan) -> Result<Plan> {
        let is_encrypted = self.settings.tls.is_some_and(|clients| clients != "off");
        let token = self.settings.has_tokens.then(|| Secret(TOKEN.to_owned()));
        Ok(Plan { tls: self.tls()?.filter(|_| is_encrypted), token, ..plan })
    }
}

impl Service for Ours {
    fn version(&self) -> Result<String> {
        let text = version_of(&self.binary)?;
        Ok(text.split_whitespace().nth(1).context("no version")?.to_owned())
    }

    fn settings(&self) -> String {
        let mut chosen = Vec::new();
        if !self.settings.options.is_empty() {
            chosen.push(self.settings.options.join(" "));
        }
        if !self.settings.has_http {
            chosen.push("--listen-http off".to_owned());
        }
        if let Some(clients) = self.settings.tls {
            chosen.push(format!("TLS between nodes, --tls-clients {clients}"));
        }
        if self.settings.has_tokens {
            chosen.push("an entry of [[access]]".to_owned());
        }
        if chosen.is_empty() { "defaults".to_owned() } else { chosen.join("; ") }
    }

    fn members(&self) -> &[Process] {
        &self.nodes
    }

    fn members_mut(&mut self) -> &mut Vec<Process> {
        &mut self.nodes
    }

    fn spawn(&self, node: usize) -> Result<Process> {
        let mut command = Command::new(&self.binary);
        // It stops when its stdin is closed, so that no node outlives a killed benchmark.
        command.args(["serve", "--with-parent"]).args(&self.settings.options);
        command.args(["--node", &(node + 1).to_string()]);
        let (clients, http) = (&self.endpoints()[node], &self.http_endpoints()[node]);
        let OursSettings { has_clients, has_http, .. } = self.settings;
        command.args(["--listen-clients", if has_clients { clients } else { "off" }]);
        command.args(["--listen-http", if has_http { http } else { "off" }]);
        for (peer, address) in (1..).zip(self.peer_endpoints()) {
            command.args(["--peer", &format!("{peer}={address}")]);
        }
        command.arg("--data-dir").arg(self.folder.join((node + 1).to_string()));
        if let (Some(certificates), Some(clients)) = (&self.certificates, self.settings.tls) {
            certificates.add_options(&mut command, node + 1, clients);
        }
        if self.settings.has_tokens {
            command.arg("--config").arg(self.folder.join(CONFIG));
            command.args(self.certificates.is_none().then_some("--peers-out-of-reach"));
        }
        let is_new = self.nodes.get(node).is_none();
        command.args(is_new.then_some("--new-cell"));
        Process::spawn(command, &self.folder.join(format!("{}.log", node + 1)))
    }

    fn probe(&self, node: usize) -> Result<()> {
        if !self.settings.has_clients {
            return Ok(TcpStream::connect(&self.http_endpoints()[node]).map(drop)?);
        }
        let plan = connected(&pairs(1, 1, Extent::Count(1)), addresses(&self.clients[node..=node]));
        grant_one(self.secured(plan)?)
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
        Ok(paxoslease_load::run(&self.secured(plan)?, &mut |_| {})?)
    }

    fn http_endpoints(&self) -> Vec<String> {
        addresses(&self.http)
    }

    /// There is no leader. The first member is the one of [`Target::One`], so it stays alive.
    fn first_to_kill(&self) -> Result<Option<usize>> {
        Ok(self.nodes.len().checked_sub(1))
    }
}
