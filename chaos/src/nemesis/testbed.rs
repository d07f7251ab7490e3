//! The network, the nodes and the clients of one run, their active faults, and the log.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Fault, conditions};
use crate::cell::Cell;
use crate::client_processes::ClientProcesses;
use crate::log::{EventKind, Log, Nanos, Phase, now};
use crate::network::{Network, Place};

/// How many more files a node can open with few files: enough for one write, not for clients.
const FILES_LEFT: u64 = 1;
const BYTES_LEFT: u64 = 16 * 1024;

/// The shortest stall that is logged: some timeouts of a node are as short.
const STALL: Duration = Duration::from_millis(500);

pub struct Testbed {
    pub network: Box<dyn Network>,
    pub cell: Cell,
    pub clients: ClientProcesses,
    pub log: Log,
    pub places: Vec<Place>,
    /// The active faults.
    pub broken: BTreeMap<Step, Fault>,
    /// When the harness last ran, to notice stalls of the machine.
    pub ran_at: Nanos,
}

/// The id of a fault in the log, and the index of a step in its round.
pub type Step = (u64, usize);

impl Testbed {
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
        let nodes = fault.nodes(&self.places);
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

    fn start(&mut self, node: u16) -> Result<()> {
        self.cell.start(node, &*self.network, &mut self.log)
    }

    fn stop(&mut self, nodes: &[u16]) -> Result<()> {
        nodes.iter().try_for_each(|id| self.cell.ask_to_stop(*id))?;
        nodes.iter().try_for_each(|id| self.cell.await_stop(*id, &mut self.log))
    }
}

impl Fault {
    fn begin(&self, testbed: &mut Testbed) -> Result<()> {
        match self {
            Self::Kill(nodes) => {
                nodes.iter().try_for_each(|id| testbed.cell.kill(*id, &mut testbed.log))
            }
            Self::Stop(nodes) => testbed.stop(nodes),
            Self::Roll { node, upgrade } => {
                testbed.stop(&[*node])?;
                if *upgrade {
                    testbed.cell.upgrade(*node);
                }
                Ok(())
            }
            Self::Pause(nodes) => nodes.iter().try_for_each(|id| testbed.cell.pause(*id, true)),
            Self::PauseClient(client) => testbed.clients.pause(*client, true),
            Self::KillClient(client) => testbed.clients.kill(*client),
            Self::Cut(_)
            | Self::Flap(_)
            | Self::Lose { .. }
            | Self::Delay { .. }
            | Self::Distance { .. } => testbed.set_weather(),
            Self::Clock { node, ppm } => {
                testbed.stop(&[*node])?;
                testbed.cell.set_clock(*node, Some(*ppm));
                testbed.start(*node)
            }
            Self::Reload(node) => testbed.cell.reload(*node),
            Self::FullDisk(node) => testbed.cell.disk(*node).map_or(Ok(()), |disk| disk.fill(true)),
            Self::ReadOnly(node) => {
                testbed.cell.disk(*node).map_or(Ok(()), |disk| disk.protect(true))
            }
            Self::FewFiles(node) => testbed.cell.limit_files(*node, FILES_LEFT),
            Self::LittleMemory(node) => testbed.cell.limit_memory(*node, BYTES_LEFT),
        }
    }

    fn end(&self, testbed: &mut Testbed) -> Result<()> {
        match self {
            Self::Kill(nodes) | Self::Stop(nodes) => {
                nodes.iter().try_for_each(|id| testbed.start(*id))
            }
            Self::Roll { node, .. } => testbed.start(*node),
            Self::Pause(nodes) => nodes.iter().try_for_each(|id| testbed.cell.pause(*id, false)),
            Self::PauseClient(client) => testbed.clients.pause(*client, false),
            Self::KillClient(client) => testbed.clients.start(*client, &*testbed.network),
            Self::Cut(_)
            | Self::Flap(_)
            | Self::Lose { .. }
            | Self::Delay { .. }
            | Self::Distance { .. } => testbed.set_weather(),
            Self::Clock { node, .. } => {
                testbed.stop(&[*node])?;
                testbed.cell.set_clock(*node, None);
                testbed.start(*node)
            }
            Self::Reload(_) => Ok(()),
            Self::FullDisk(node) => {
                testbed.cell.disk(*node).map_or(Ok(()), |disk| disk.fill(false))
            }
            Self::ReadOnly(node) => {
                testbed.cell.disk(*node).map_or(Ok(()), |disk| disk.protect(false))
            }
            Self::FewFiles(node) | Self::LittleMemory(node) => {
                testbed.cell.unlimit(*node, &mut testbed.log)?;
                // The node may have died of the limit.
                testbed.start(*node)
            }
        }
    }
}
