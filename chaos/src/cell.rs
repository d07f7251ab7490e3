//! The nodes as processes: started, killed, stopped, paused and started again, each with its data
//! folder and its log.
//!
//! Owns what each node is started with and whether it should be running, so that a process that is
//! gone although nobody ended it is noticed. Deliberately lacks what is broken when: that is for
//! [`crate::nemesis`].

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_rig::{Certificates, Process, clock};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

pub use disk::{Disk, remove_leftovers, unmount_all};

use crate::log::{Log, NodeState, What};
use crate::network::{Door, Network, Place};
use crate::traces;

/// What the cell is called, also by its certificates.
pub(crate) const CELL: &str = "chaos";

/// How long a node may take to stop when it is asked to.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How often something is looked at that has no other way to tell.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What all nodes are started with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary `paxoslease`.
    pub binary: PathBuf,
    /// What a rolling upgrade puts in its place.
    pub upgrade: Option<PathBuf>,
    /// How many nodes.
    pub nodes: u16,
    /// The longest lease.
    pub max_lease: Duration,
    /// How far the cell allows clocks to be off.
    pub drift_ppm: u32,
    /// How far each clock is off from the start; nodes without a figure are right.
    pub clocks_ppm: Vec<i64>,
    /// A safety rule that is off.
    pub without_rule: Option<String>,
    /// Whether nodes have no data folder.
    pub is_diskless: bool,
    /// What nodes show each other, unless they speak in clear.
    pub certificates: Option<Arc<Certificates>>,
    /// Where data folders and logs go.
    pub folder: PathBuf,
}

struct Node {
    process: Option<Process>,
    disk: Option<Disk>,
    log: PathBuf,
    binary: PathBuf,
    ppm: i64,
    is_new: bool,
    /// Whether it is meant to be running.
    should_run: bool,
    /// Whether a fault may end it, which is then no bug.
    may_die: bool,
    /// What a limit was before a fault lowered it.
    limited: Option<(Resource, Rlimit)>,
}

/// The cell.
pub struct Cell {
    setup: Setup,
    nodes: Vec<Node>,
    bugs: Vec<String>,
}

impl Cell {
    /// Folders and logs; nothing runs yet.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub fn new(setup: Setup) -> Result<Self> {
        let logs = setup.folder.join("nodes");
        fs::create_dir_all(&logs)?;
        fs::create_dir_all(traces::folder(&setup.folder))?;
        let mut nodes = Vec::new();
        for id in 1..=setup.nodes {
            let data = setup.folder.join(format!("data-{id}"));
            let disk = if setup.is_diskless { None } else { Some(Disk::new(&data)?) };
            nodes.push(Node {
                process: None,
                disk,
                log: logs.join(format!("{id}.log")),
                binary: setup.binary.clone(),
                ppm: setup.clocks_ppm.get(usize::from(id) - 1).copied().unwrap_or(0),
                is_new: true,
                should_run: false,
                may_die: false,
                limited: None,
            });
        }
        Ok(Self { setup, nodes, bugs: Vec::new() })
    }

    fn node(&mut self, id: u16) -> &mut Node {
        &mut self.nodes[usize::from(id) - 1]
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.setup.nodes
    }

    /// Whether every node has a data folder that can be broken.
    #[must_use]
    pub fn has_disks(&self) -> bool {
        self.nodes.iter().all(|node| node.disk.as_ref().is_some_and(Disk::can_break))
    }

    /// Whether nodes speak TLS with each other.
    #[must_use]
    pub const fn has_tls(&self) -> bool {
        self.setup.certificates.is_some()
    }

    /// Where a node keeps what must survive.
    pub fn disk(&mut self, id: u16) -> Option<&mut Disk> {
        self.node(id).disk.as_mut()
    }

    /// Starts a node; one that runs is left alone.
    ///
    /// # Errors
    /// When the binary cannot be started.
    pub fn start(&mut self, id: u16, network: &dyn Network, log: &mut Log) -> Result<()> {
        let setup = self.setup.clone();
        let node = self.node(id);
        if node.process.is_some() {
            return Ok(());
        }
        let mut command = network.command(Place::Node(id), &node.binary);
        command.args(["serve", "--with-parent", "--cell", CELL, "--node", &id.to_string()]);
        for peer in 1..=setup.nodes {
            let address = network.address(Place::Node(id), peer, Door::Peers);
            command.args(["--peer", &format!("{peer}={address}")]);
        }
        command.args(["--listen-peers", &network.listen(id, Door::Peers)]);
        command.args(["--listen-clients", &network.listen(id, Door::Clients)]);
        command.args(["--listen-http", &network.listen(id, Door::Http)]);
        command.args(["--max-lease", &format!("{}ms", setup.max_lease.as_millis())]);
        command.args(["--clock-drift-ppm", &setup.drift_ppm.to_string()]);
        if let Some(certificates) = &setup.certificates {
            certificates.add_options(&mut command, id.into(), "off");
        }
        // A variable, because a binary to upgrade from may not know the option.
        command.env("PAXOSLEASE_INSECURE_PLAINTEXT", "true");
        command.env("PAXOSLEASE_CLOCK_PPM", node.ppm.to_string());
        command.env(traces::FOLDER, traces::folder(&setup.folder));
        if let Some(rule) = &setup.without_rule {
            command.env("PAXOSLEASE_WITHOUT_RULE", rule);
        }
        if let Some(disk) = &node.disk {
            command.arg("--data-dir").arg(disk.path());
            if node.is_new {
                command.arg("--new-cell");
            }
        }
        node.is_new = false;
        node.process = Some(Process::spawn(command, &node.log)?);
        node.should_run = true;
        log.write(What::Node { id, state: NodeState::Started })?;
        Ok(())
    }

    /// Kills a node.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn kill(&mut self, id: u16, log: &mut Log) -> Result<()> {
        let node = self.node(id);
        node.should_run = false;
        if let Some(process) = node.process.take() {
            process.kill()?;
            log.write(What::Node { id, state: NodeState::Killed })?;
        }
        Ok(())
    }

    /// Asks a node to stop, without waiting for it.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn ask_to_stop(&mut self, id: u16) -> Result<()> {
        let node = self.node(id);
        node.should_run = false;
        node.process.as_ref().map_or(Ok(()), |process| process.signal(Signal::TERM))
    }

    /// Waits until a node that was asked to stop has. That it does not, or not well, is a bug.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn await_stop(&mut self, id: u16, log: &mut Log) -> Result<()> {
        let Some(process) = self.node(id).process.take() else { return Ok(()) };
        let mut waited = Duration::ZERO;
        let status = loop {
            match process.ended()? {
                None if waited < STOP_MAX => clock::sleep(LOOK_EVERY),
                status => break status,
            }
            waited += LOOK_EVERY;
        };
        match status {
            Some(status) if status.success() => {
                log.write(What::Node { id, state: NodeState::Stopped })?;
            }
            Some(status) => {
                let said = process.log_tail();
                self.bugs.push(format!("node {id} did not stop well: {status}; it said: {said}"));
                log.write(What::Node { id, state: NodeState::Died })?;
            }
            None => {
                self.bugs.push(format!("node {id} did not stop within {STOP_MAX:?}"));
                process.kill()?;
                log.write(What::Node { id, state: NodeState::Killed })?;
            }
        }
        Ok(())
    }

    /// Lets a node stand still, or go on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn pause(&mut self, id: u16, paused: bool) -> Result<()> {
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        self.node(id).process.as_ref().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Has a node read certificates and tokens again.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn reload(&mut self, id: u16) -> Result<()> {
        self.node(id).process.as_ref().map_or(Ok(()), |process| process.signal(Signal::HUP))
    }

    /// What a node's clock is off by when it is started next.
    pub fn set_clock(&mut self, id: u16, ppm: Option<i64>) {
        let ppm = ppm.or_else(|| self.setup.clocks_ppm.get(usize::from(id) - 1).copied());
        self.node(id).ppm = ppm.unwrap_or(0);
    }

    /// Which binary a node is started with next: each time the other one.
    pub fn upgrade(&mut self, id: u16) {
        let (first, second) = (self.setup.binary.clone(), self.setup.upgrade.clone());
        let node = self.node(id);
        if let Some(second) = second {
            node.binary = if node.binary == first { second } else { first };
        }
    }

    /// Leaves a node the files and connections it has, and `more`.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn limit_files(&mut self, id: u16, more: u64) -> Result<()> {
        let Some(pid) = self.pid(id) else { return Ok(()) };
        let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))?.count() as u64;
        self.limit(id, pid, Resource::Nofile, open + more)
    }

    /// Leaves a node the memory it has, and `more` bytes. It may die of it.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn limit_memory(&mut self, id: u16, more: u64) -> Result<()> {
        let Some(pid) = self.pid(id) else { return Ok(()) };
        // What can be written to, not what is set aside: heaps set aside far more than they use.
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        let kilobytes: u64 = kilobytes.context("no VmData; has it ended?")?.parse()?;
        self.node(id).may_die = true;
        self.limit(id, pid, Resource::Data, kilobytes * 1024 + more)
    }

    fn limit(&mut self, id: u16, pid: Pid, resource: Resource, most: u64) -> Result<()> {
        let before = getrlimit(resource);
        let limit = Rlimit { current: Some(most), maximum: before.maximum };
        let before = set_limit(pid, resource, limit)?;
        self.node(id).limited = before.map(|before| (resource, before));
        Ok(())
    }

    /// Takes a limit back; a node that died of it is started by whoever calls this.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn unlimit(&mut self, id: u16, log: &mut Log) -> Result<()> {
        // Before its death would be a bug again.
        self.look(log)?;
        let pid = self.pid(id);
        let node = self.node(id);
        node.may_die = false;
        if let (Some((resource, before)), Some(pid)) = (node.limited.take(), pid) {
            set_limit(pid, resource, before)?;
        }
        Ok(())
    }

    fn pid(&mut self, id: u16) -> Option<Pid> {
        let process = self.node(id).process.as_ref()?;
        if process.ended().ok()?.is_some() {
            return None;
        }
        i32::try_from(process.id()).ok().and_then(Pid::from_raw)
    }

    /// Looks for nodes that are gone although nobody ended them. One that a fault may end is left
    /// for the end of that fault to start again; any other is a bug.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn look(&mut self, log: &mut Log) -> Result<()> {
        for (id, node) in (1..).zip(&mut self.nodes) {
            let Some(process) = &node.process else { continue };
            let Some(status) = process.ended()? else { continue };
            if !node.should_run {
                continue;
            }
            log.write(What::Node { id, state: NodeState::Died })?;
            if !node.may_die {
                let said = process.log_tail();
                self.bugs.push(format!("node {id} ended by itself: {status}; it said: {said}"));
            }
            node.process = None;
            node.should_run = false;
        }
        Ok(())
    }

    /// What no node may do and one did: ended by itself, did not stop, panicked.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn bugs(&self) -> Result<Vec<String>> {
        let mut bugs = self.bugs.clone();
        for (id, node) in (1..).zip(&self.nodes) {
            for line in said(&node.log)?.lines().filter(|line| line.contains("panicked at")) {
                bugs.push(format!("node {id} panicked: {line}"));
            }
        }
        Ok(bugs)
    }
}

fn said(log: &Path) -> Result<String> {
    if !log.exists() {
        return Ok(String::new());
    }
    Ok(String::from_utf8_lossy(&fs::read(log)?).into_owned())
}

/// Limits another process, and tells what its limit was. One that ended meanwhile had none.
fn set_limit(pid: Pid, resource: Resource, limit: Rlimit) -> Result<Option<Rlimit>> {
    match prlimit(Some(pid), resource, limit) {
        Ok(before) => Ok(Some(before)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error).context("cannot limit a node"),
    }
}
