//! The nodes as processes: starts, kills, stops and pauses them, each with its data folder and log.
//!
//! Knows whether each node should run, so that it notices a node that ended by itself. Deliberately
//! lacks the faults: those are in [`crate::nemesis`].

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_rig::{Certificates, Process, clock};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};

pub(crate) use disk::quietly;
pub use disk::{Disk, remove_leftovers, unmount_all};

use crate::log::{EventKind, Log, NodeState};
use crate::network::{Interface, Network, Place};
use crate::run::RunOptions;
use crate::traces;

pub(crate) const CELL: &str = "chaos";

/// How long a node may take to stop after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(20);
/// The interval of polling.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Node {
    process: Option<Process>,
    disk: Option<Disk>,
    log: PathBuf,
    binary: PathBuf,
    ppm: i64,
    is_new: bool,
    /// Whether the harness expects it to run.
    should_run: bool,
    /// Whether a fault may end it. If not, its end is a bug.
    may_die: bool,
    /// The limit from before a fault lowered it.
    limited: Option<(Resource, Rlimit)>,
}

pub struct Cell {
    options: RunOptions,
    /// `None` for nodes without TLS.
    certificates: Option<Certificates>,
    nodes: Vec<Node>,
    bugs: Vec<String>,
}

impl Cell {
    /// Makes the folders and starts nothing.
    pub fn new(options: &RunOptions, certificates: Option<Certificates>) -> Result<Self> {
        let logs = options.folder.join("nodes");
        fs::create_dir_all(&logs)?;
        fs::create_dir_all(traces::folder(&options.folder))?;
        let mut nodes = Vec::new();
        for id in 1..=options.plan.nodes {
            let data = options.folder.join(format!("data-{id}"));
            let disk = if options.is_diskless { None } else { Some(Disk::new(&data)?) };
            nodes.push(Node {
                disk,
                log: logs.join(format!("{id}.log")),
                binary: options.paxoslease.clone(),
                ppm: options.clocks_ppm(),
                is_new: true,
                ..Node::default()
            });
        }
        Ok(Self { options: options.clone(), certificates, nodes, bugs: Vec::new() })
    }

    fn node(&mut self, id: u16) -> &mut Node {
        &mut self.nodes[usize::from(id) - 1]
    }

    pub fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.options.plan.nodes
    }

    /// Whether every data folder can be filled and write-protected.
    pub fn has_disks(&self) -> bool {
        self.nodes.iter().all(|node| node.disk.as_ref().is_some_and(Disk::can_break))
    }

    pub fn binary(&self) -> &Path {
        &self.options.paxoslease
    }

    pub fn folder(&self) -> &Path {
        &self.options.folder
    }

    pub const fn has_tls(&self) -> bool {
        self.certificates.is_some()
    }

    pub fn disk(&mut self, id: u16) -> Option<&mut Disk> {
        self.node(id).disk.as_mut()
    }

    /// Starts a node, unless it runs.
    pub fn start(&mut self, id: u16, network: &dyn Network, log: &mut Log) -> Result<()> {
        let Self { options, certificates, nodes, .. } = self;
        let node = &mut nodes[usize::from(id) - 1];
        if node.process.is_some() {
            return Ok(());
        }
        let mut command = network.command(Place::Node(id), &node.binary);
        command.args(["serve", "--with-parent", "--cell", CELL, "--node", &id.to_string()]);
        // A node that may become a member later knows the first members, and itself.
        let first = 1..=options.plan.members;
        let is_first = first.contains(&id);
        for peer in first.chain((!is_first).then_some(id)) {
            let address = network.address(peer, Interface::Peers);
            command.args(["--peer", &format!("{peer}={address}")]);
        }
        command.args(["--listen-peers", &network.address(id, Interface::Peers)]);
        command.args(["--listen-clients", &network.address(id, Interface::Clients)]);
        command.args(["--listen-http", &network.address(id, Interface::Http)]);
        command.args(["--max-lease", &format!("{}ms", options.plan.max_lease.as_millis())]);
        command.args(["--clock-drift-ppm", &options.drift_ppm().to_string()]);
        if let Some(certificates) = certificates {
            certificates.add_options(&mut command, id.into(), "off");
        }
        // A variable, because an older binary may not know the option.
        command.env("PAXOSLEASE_NODE_INSECURE_PLAINTEXT", "true");
        command.env("PAXOSLEASE_CLOCK_PPM", node.ppm.to_string());
        if options.has_traces {
            command.env(traces::FOLDER, traces::folder(&options.folder));
        }
        command.envs(options.without_rule.as_ref().map(|rule| ("PAXOSLEASE_WITHOUT_RULE", rule)));
        if let Some(disk) = &node.disk {
            command.arg("--data-dir").arg(disk.path());
            if node.is_new && is_first {
                command.arg("--new-cell");
            }
        }
        node.is_new = false;
        node.process = Some(Process::spawn(command, &node.log)?);
        node.should_run = true;
        log.write(EventKind::Node { id, state: NodeState::Started })?;
        Ok(())
    }

    pub fn kill(&mut self, id: u16, log: &mut Log) -> Result<()> {
        let node = self.node(id);
        node.should_run = false;
        if let Some(process) = node.process.take() {
            process.kill()?;
            log.write(EventKind::Node { id, state: NodeState::Killed })?;
        }
        Ok(())
    }

    /// Sends SIGTERM, without waiting.
    pub fn ask_to_stop(&mut self, id: u16) -> Result<()> {
        self.node(id).should_run = false;
        self.signal(id, Signal::TERM)
    }

    /// Waits until a node has stopped after SIGTERM. If it does not stop, or fails, that is a bug.
    pub fn await_stop(&mut self, id: u16, log: &mut Log) -> Result<()> {
        let Some(process) = self.node(id).process.take() else { return Ok(()) };
        let mut waited = Duration::ZERO;
        let status = loop {
            match process.ended()? {
                None if waited < STOP_MAX => clock::sleep(POLL_INTERVAL),
                status => break status,
            }
            waited += POLL_INTERVAL;
        };
        match status {
            Some(status) if status.success() => {
                log.write(EventKind::Node { id, state: NodeState::Stopped })?;
            }
            Some(status) => {
                let said = process.log_tail();
                let bug = format!("node {id} did not stop cleanly: {status}; its log ends: {said}");
                self.bugs.push(bug);
                log.write(EventKind::Node { id, state: NodeState::Died })?;
            }
            None => {
                self.bugs.push(format!("node {id} did not stop within {STOP_MAX:?}"));
                process.kill()?;
                log.write(EventKind::Node { id, state: NodeState::Killed })?;
            }
        }
        Ok(())
    }

    pub fn pause(&mut self, id: u16, paused: bool) -> Result<()> {
        self.signal(id, if paused { Signal::STOP } else { Signal::CONT })
    }

    /// Makes a node read certificates and tokens again.
    pub fn reload(&mut self, id: u16) -> Result<()> {
        self.signal(id, Signal::HUP)
    }

    fn signal(&mut self, id: u16, signal: Signal) -> Result<()> {
        self.node(id).process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Sets the rate error for the next start; `None` for the initial one.
    pub fn set_clock(&mut self, id: u16, ppm: Option<i64>) {
        self.node(id).ppm = ppm.unwrap_or_else(|| self.options.clocks_ppm());
    }

    /// Switches to the other binary for the next start.
    pub fn upgrade(&mut self, id: u16) {
        let RunOptions { paxoslease, upgrade, .. } = self.options.clone();
        let node = self.node(id);
        if let Some(upgrade) = upgrade {
            node.binary = if node.binary == paxoslease { upgrade } else { paxoslease };
        }
    }

    /// Limits the open files to the current number and `more`.
    pub fn limit_files(&mut self, id: u16, more: u64) -> Result<()> {
        let Some(process) = self.running(id) else { return Ok(()) };
        let open = process.open_files()? as u64;
        self.limit(id, Resource::Nofile, open + more)
    }

    /// Limits the memory to the current size and `more` bytes. The node may die of it.
    pub fn limit_memory(&mut self, id: u16, more: u64) -> Result<()> {
        let Some(process) = self.running(id) else { return Ok(()) };
        let used = process.data()?;
        self.node(id).may_die = true;
        self.limit(id, Resource::Data, used + more)
    }

    fn limit(&mut self, id: u16, resource: Resource, most: u64) -> Result<()> {
        let limit = Rlimit { current: Some(most), maximum: getrlimit(resource).maximum };
        self.node(id).limited = self.set_limit(id, resource, limit)?;
        Ok(())
    }

    /// Removes a limit. The caller restarts a node that died of it.
    pub fn unlimit(&mut self, id: u16, log: &mut Log) -> Result<()> {
        // From here on, its end is a bug again.
        self.look(log)?;
        self.node(id).may_die = false;
        if let Some((resource, before)) = self.node(id).limited.take() {
            self.set_limit(id, resource, before)?;
        }
        Ok(())
    }

    /// Sets a limit and returns the previous one; `None` if the process has ended.
    fn set_limit(
        &mut self,
        id: u16,
        resource: Resource,
        limit: Rlimit,
    ) -> Result<Option<(Resource, Rlimit)>> {
        let Some(process) = self.running(id) else { return Ok(None) };
        match prlimit(Some(process.pid()), resource, limit) {
            Ok(before) => Ok(Some((resource, before))),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error).context("cannot limit a node"),
        }
    }

    fn running(&mut self, id: u16) -> Option<&Process> {
        let process = self.node(id).process.as_ref();
        process.filter(|process| process.ended().is_ok_and(|status| status.is_none()))
    }

    /// Finds nodes that ended by themselves. That is a bug, unless an active fault allows it.
    pub fn look(&mut self, log: &mut Log) -> Result<()> {
        for (id, node) in (1..).zip(&mut self.nodes) {
            let Some(process) = &node.process else { continue };
            let Some(status) = process.ended()? else { continue };
            if !node.should_run {
                continue;
            }
            log.write(EventKind::Node { id, state: NodeState::Died })?;
            if !node.may_die {
                let said = process.log_tail();
                self.bugs
                    .push(format!("node {id} ended by itself: {status}; its log ends: {said}"));
            }
            node.process = None;
            node.should_run = false;
        }
        Ok(())
    }

    /// What nodes did wrong: ended by themselves, did not stop, panicked.
    pub fn bugs(&self) -> Result<Vec<String>> {
        let mut bugs = self.bugs.clone();
        for (id, node) in (1..).zip(&self.nodes) {
            let log = if node.log.exists() { fs::read(&node.log)? } else { Vec::new() };
            let log = String::from_utf8_lossy(&log);
            for line in log.lines().filter(|line| line.contains("panicked at")) {
                bugs.push(format!("node {id} panicked: {line}"));
            }
        }
        Ok(bugs)
    }
}
