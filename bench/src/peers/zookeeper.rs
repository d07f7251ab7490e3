//! An ensemble of three ZooKeeper servers, and ephemeral nodes as locks.
//!
//! A pair creates a node that lives as long as its session, and deletes it. A renewal is a ping,
//! which renews all nodes of a session: there is no other kind. A waiting client follows
//! ZooKeeper's own recipe: a sequential node, and a watch on the node before. The ensemble bounds
//! the session timeout: two to twenty of its ticks.

mod client;
mod jute;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use paxoslease_load::{Plan, Report, run_with};

use self::client::ZooKeeperClient;
use super::{Service, Storage, Target, addresses, connected, started};
use paxoslease_rig::{Folder, Process, free_ports};

const SERVERS: usize = 3;
/// The path of the Debian package.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const CONFIGURATION: &str = "/etc/zookeeper/conf";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// The heap limit of ZooKeeper's own script.
const HEAP: &str = "1000m";
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An ensemble of three servers.
#[derive(Debug)]
pub struct ZooKeeper {
    storage: Storage,
    /// Those for clients, then two of each server for its peers.
    ports: [u16; 3 * SERVERS],
    servers: Vec<Process>,
    folder: Folder,
}

impl ZooKeeper {
    /// Starts an ensemble and waits until every server leads or follows.
    pub fn start(storage: Storage) -> Result<Self> {
        let is_installed = Path::new(JAR).exists();
        ensure!(is_installed, "no {JAR}; on Debian: apt-get install zookeeper");
        let (folder, ports) = (storage.folder("zookeeper")?, free_ports()?);
        started(Self { storage, ports, servers: Vec::new(), folder }, SERVERS)
    }

    fn configuration(&self, server: usize, data: &Path) -> String {
        let peers: String = (1..)
            .zip(self.ports[SERVERS..].chunks(2))
            .map(|(peer, ports)| format!("server.{peer}=127.0.0.1:{}:{}\n", ports[0], ports[1]))
            .collect();
        // The first three are the defaults. The limits of connections per address and the port for
        // administration would get in the way.
        format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\n\
             clientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n{peers}",
            data.display(),
            self.ports[server],
        )
    }

    /// The status of a server, once it is part of the ensemble.
    fn status(&self, server: usize) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[server]))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"srvr")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        ensure!(text.contains("Mode:"), "it does not serve: {text}");
        Ok(text)
    }

    fn leader(&self) -> Result<usize> {
        let leads =
            |server: &usize| self.status(*server).is_ok_and(|text| text.contains("Mode: leader"));
        (0..SERVERS).find(leads).context("there is no leader")
    }
}

impl Service for ZooKeeper {
    fn version(&self) -> Result<String> {
        let status = self.status(self.leader()?)?;
        let version = status.split(": ").nth(1).context("no version")?;
        Ok(version.split(['-', ',']).next().unwrap_or_default().to_owned())
    }

    fn settings(&self) -> String {
        let storage = self.storage.text();
        format!("{storage}, -Xmx{HEAP}, maxClientCnxns=0; sessions last 4 to 40 s")
    }

    fn members(&self) -> &[Process] {
        &self.servers
    }

    fn members_mut(&mut self) -> &mut Vec<Process> {
        &mut self.servers
    }

    fn spawn(&self, server: usize) -> Result<Process> {
        let folder = self.folder.join(server.to_string());
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("myid"), (server + 1).to_string())?;
        fs::write(folder.join("zoo.cfg"), self.configuration(server, &folder))?;
        let mut command = Command::new("java");
        command.arg(format!("-Xmx{HEAP}"));
        command.args(["-cp", &format!("{CONFIGURATION}:{JAR}")]);
        command.arg("-Dzookeeper.root.logger=WARN,CONSOLE");
        command.arg(MAIN).arg(folder.join("zoo.cfg"));
        Process::spawn(command, &folder.join("log")).context("is a Java runtime installed?")
    }

    fn probe(&self, server: usize) -> Result<()> {
        self.status(server).map(drop)
    }

    /// [`Target::One`] is the leader.
    fn run(&self, plan: &Plan, target: Target) -> Result<Report> {
        let first = match target {
            Target::One => self.leader()?,
            Target::Spread | Target::Member(_) => 0,
        };
        let plan = connected(plan, addresses(&self.ports[..SERVERS]));
        Ok(run_with(&plan, ZooKeeperClient::new(&plan, first, target), &mut |_| {})?)
    }

    fn first_to_kill(&self) -> Result<Option<usize>> {
        self.leader().map(Some)
    }
}
