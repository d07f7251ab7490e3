//! The network, the nodes and the clients of one run, their active faults, and the log.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use paxoslease_rig::Process;

use super::{ClientFault, Fault, NodeFault, conditions};
use crate::cell::Cell;
use crate::client_processes::ClientProcesses;
use crate::log::{EventKind, Log, Nanos, Phase, now};
use crate::network::{Interface, Network, Place};
use crate::store::Store;

/// How many more files a node can open with few files: enough for one write, not for clients.
const FILES_LEFT: u64 = 1;
const BYTES_LEFT: u64 = 16 * 1024;

/// The shortest stall that is logged: some timeouts of a node are as short.
const STALL: Duration = Duration::from_millis(500);

pub struct Testbed {
    pub network: Box<dyn Network>,
    pub cell: Cell,
    pub clients: ClientProcesses,
    pub store: Store,
    pub log: Log,
    pub places: Vec<Place>,
    /// The active faults.
    pub broken: BTreeMap<Step, Fault>,
    /// Whether other nodes than the first ones may be members. Which nodes a majority needs is not
    /// known then.
    pub members_change: bool,
    /// Commands of administrators that may still run.
    pub commands: Vec<Process>,
    /// When the harness last ran, to notice stalls of the machine.
    pub ran_at: Nanos,
}

/// The id of a fault in the log, and the index of a step in its round.
pub type Step = (u64, usize);

impl Testbed {
    /// Starts all nodes and clients.
    pub fn start_all(&mut self) -> Result<()> {
        for id in self.cell.ids() {
            self.cell.start(id, &*self.network, &mut self.log)?;
        }
        for id in self.clients.ids() {
            self.clients.start(id, &*self.network)?;
        }
        self.ran_at = now();
        Ok(())
    }

    /// Logs a fault, then begins it.
    pub fn begin(&mut self, step: Step, fault: &Fault) -> Result<()> {
        self.note(step.0, fault, Phase::Begin)?;
        self.broken.insert(step, fault.clone());
        let begun = fault.begin(self);
        self.ran_at = now();
        begun.with_context(|| format!("{}, {}", fault.kind(), fault.whom()))
    }

    /// Ends a fault, then logs it.
    pub fn end(&mut self, step: Step) -> Result<()> {
        let Some(fault) = self.broken.remove(&step) else { return Ok(()) };
        let ended = fault.end(self);
        self.ran_at = now();
        ended.with_context(|| format!("the end of {}, {}", fault.kind(), fault.whom()))?;
        self.note(step.0, &fault, Phase::End)
    }

    fn note(&mut self, id: u64, fault: &Fault, phase: Phase) -> Result<()> {
        let (what, whom) = (fault.kind().to_owned(), fault.whom());
        let mut nodes = fault.nodes(&self.places);
        if self.members_change && !nodes.is_empty() {
            nodes = self.cell.ids().collect();
        }
        Ok(self.log.write(EventKind::Fault { id, what, whom, nodes, phase })?)
    }

    /// Logs a stall of the machine: if the harness did not run for long, neither did nodes and
    /// clients, and no timeout means anything. The harness calls this again and again while it
    /// waits.
    pub fn note_stall(&mut self, to: Nanos) -> Result<()> {
        let from = std::mem::replace(&mut self.ran_at, to);
        if Duration::from_nanos(to.saturating_sub(from)) < STALL {
            return Ok(());
        }
        Ok(self.log.write_at(to, EventKind::Stalled { from })?)
    }

    fn set_weather(&mut self) -> Result<()> {
        self.network.set(&conditions(self.broken.values(), &self.places))
    }

    /// Begins to change the members, through whichever node answers. The change may be refused.
    fn set_members(&mut self, nodes: &[u16]) -> Result<()> {
        self.commands.retain(|command| command.ended().is_ok_and(|status| status.is_none()));
        let mut command = self.network.command(Place::Clients(1), self.cell.binary());
        command.args(["members", "set", "--yes", "--detach", "--endpoint"]);
        let endpoints = self.cell.ids().map(|id| self.network.address(id, Interface::Clients));
        command.arg(endpoints.collect::<Vec<_>>().join(","));
        let member = |id: &u16| format!("{id}={}", self.network.address(*id, Interface::Peers));
        command.args(nodes.iter().map(member));
        self.commands.push(Process::spawn(command, &self.cell.folder().join("members.log"))?);
        Ok(())
    }

    fn stop(&mut self, nodes: &[u16]) -> Result<()> {
        nodes.iter().try_for_each(|id| self.cell.ask_to_stop(*id))?;
        nodes.iter().try_for_each(|id| self.cell.await_stop(*id, &mut self.log))
    }
}

impl Fault {
    fn begin(&self, testbed: &mut Testbed) -> Result<()> {
        match self {
            Self::Nodes(fault, nodes) => fault.begin(nodes, testbed),
            Self::Client(ClientFault::Pause, client) => testbed.clients.pause(*client, true),
            Self::Client(ClientFault::Kill, client) => testbed.clients.kill(*client),
            Self::Network(_) => testbed.set_weather(),
            Self::Members(nodes) => testbed.set_members(nodes),
        }
    }

    fn end(&self, testbed: &mut Testbed) -> Result<()> {
        match self {
            Self::Nodes(fault, nodes) => fault.end(nodes, testbed),
            Self::Client(ClientFault::Pause, client) => testbed.clients.pause(*client, false),
            Self::Client(ClientFault::Kill, client) => {
                testbed.clients.start(*client, &*testbed.network)
            }
            Self::Network(_) => testbed.set_weather(),
            Self::Members(_) => Ok(()),
        }
    }
}

impl NodeFault {
    fn begin(self, nodes: &[u16], testbed: &mut Testbed) -> Result<()> {
        if matches!(self, Self::Stop | Self::Roll { .. } | Self::Clock { .. }) {
            testbed.stop(nodes)?;
        }
        let Testbed { cell, log, .. } = testbed;
        nodes.iter().try_for_each(|&id| match self {
            Self::Kill => cell.kill(id, log),
            Self::Stop | Self::Roll { upgrade: false } => Ok(()),
            Self::Roll { upgrade: true } => {
                cell.upgrade(id);
                Ok(())
            }
            Self::Pause => cell.pause(id, true),
            Self::Clock { ppm } => {
                cell.set_clock(id, Some(ppm));
                cell.start(id, &*testbed.network, log)
            }
            Self::Reload => cell.reload(id),
            Self::FullDisk => cell.disk(id).map_or(Ok(()), |disk| disk.fill(true)),
            Self::ReadOnly => cell.disk(id).map_or(Ok(()), |disk| disk.protect(true)),
            Self::FewFiles => cell.limit_files(id, FILES_LEFT),
            Self::LittleMemory => cell.limit_memory(id, BYTES_LEFT),
        })
    }

    fn end(self, nodes: &[u16], testbed: &mut Testbed) -> Result<()> {
        if matches!(self, Self::Clock { .. }) {
            testbed.stop(nodes)?;
        }
        let Testbed { cell, log, .. } = testbed;
        nodes.iter().try_for_each(|&id| {
            match self {
                Self::Pause => return cell.pause(id, false),
                Self::Reload => return Ok(()),
                Self::FullDisk => return cell.disk(id).map_or(Ok(()), |disk| disk.fill(false)),
                Self::ReadOnly => return cell.disk(id).map_or(Ok(()), |disk| disk.protect(false)),
                Self::Kill | Self::Stop | Self::Roll { .. } => {}
                Self::Clock { .. } => cell.set_clock(id, None),
                // The node may have died of the limit.
                Self::FewFiles | Self::LittleMemory => cell.unlimit(id, log)?,
            }
            cell.start(id, &*testbed.network, log)
        })
    }
}
