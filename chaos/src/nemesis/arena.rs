//! Where faults happen: the network, the nodes and the clients of one run, what is broken in them
//! now, and the log of it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Fault, weather};
use crate::cell::Cell;
use crate::crowd::Crowd;
use crate::log::{Log, Nanos, Phase, What, now};
use crate::network::{Network, Place};

/// How many files a node can still open when there are few: enough for one write, not for clients.
const FILES_LEFT: u64 = 1;
/// How many bytes a node can still have when there is little memory.
const BYTES_LEFT: u64 = 16 * 1024;

/// A pause of the machine that is worth a word: some of a node's own time limits are as short.
const STALL: Duration = Duration::from_millis(500);

/// Everything that can be broken.
pub struct Arena {
    /// Who hears whom.
    pub network: Box<dyn Network>,
    /// The nodes.
    pub cell: Cell,
    /// The clients.
    pub crowd: Crowd,
    /// What happens to all of them.
    pub log: Log,
    /// All places of the network.
    pub places: Vec<Place>,
    /// What is broken now: the id it has in the log, and which step of that it is.
    pub broken: BTreeMap<Step, Fault>,
    /// When we ourselves ran last, as far as we waited and did nothing that takes long.
    pub ran_at: Nanos,
}

/// The id of a fault in the log, and the place of one step of it in its round.
pub type Step = (u64, usize);

impl Arena {
    /// Breaks something, which is written down just before.
    ///
    /// # Errors
    /// When it cannot be broken: the harness is at fault, or the machine.
    pub fn begin(&mut self, step: Step, fault: &Fault) -> Result<()> {
        self.note(step.0, fault, Phase::Begin)?;
        self.broken.insert(step, fault.clone());
        let begun = fault.begin(self);
        self.ran_at = now();
        begun.with_context(|| format!("{}, {}", fault.kind(), fault.whom()))
    }

    /// Mends it again, which is written down just after.
    ///
    /// # Errors
    /// When a node does not do what it is asked to, or the machine does not.
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
        Ok(self.log.write(What::Fault { id, what, whom, nodes, phase })?)
    }

    /// What nobody drew and nobody can mend: when we ourselves, who only slept a moment or wrote a
    /// line, did not get to run for long, neither did nodes and clients, and no time limit means
    /// anything. To be called over and over while nothing else is done.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn note_stall(&mut self, to: Nanos) -> Result<()> {
        let from = std::mem::replace(&mut self.ran_at, to);
        if Duration::from_nanos(to.saturating_sub(from)) < STALL {
            return Ok(());
        }
        Ok(self.log.write_at(to, What::Stalled { from })?)
    }

    fn set_weather(&mut self) -> Result<()> {
        self.network.set(&weather(self.broken.values(), &self.places))
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
    fn begin(&self, arena: &mut Arena) -> Result<()> {
        match self {
            Self::Kill(nodes) => {
                nodes.iter().try_for_each(|id| arena.cell.kill(*id, &mut arena.log))
            }
            Self::Stop(nodes) => arena.stop(nodes),
            Self::Roll { node, upgrade } => {
                arena.stop(&[*node])?;
                if *upgrade {
                    arena.cell.upgrade(*node);
                }
                Ok(())
            }
            Self::Pause(nodes) => nodes.iter().try_for_each(|id| arena.cell.pause(*id, true)),
            Self::PauseClient(client) => arena.crowd.pause(*client, true),
            Self::KillClient(client) => arena.crowd.kill(*client),
            Self::Cut(_)
            | Self::Flap(_)
            | Self::Lose { .. }
            | Self::Delay { .. }
            | Self::Distance { .. } => arena.set_weather(),
            Self::Clock { node, ppm } => {
                arena.stop(&[*node])?;
                arena.cell.set_clock(*node, Some(*ppm));
                arena.start(*node)
            }
            Self::Reload(node) => arena.cell.reload(*node),
            Self::FullDisk(node) => arena.cell.disk(*node).map_or(Ok(()), |disk| disk.fill(true)),
            Self::ReadOnly(node) => {
                arena.cell.disk(*node).map_or(Ok(()), |disk| disk.protect(true))
            }
            Self::FewFiles(node) => arena.cell.limit_files(*node, FILES_LEFT),
            Self::LittleMemory(node) => arena.cell.limit_memory(*node, BYTES_LEFT),
        }
    }

    fn end(&self, arena: &mut Arena) -> Result<()> {
        match self {
            Self::Kill(nodes) | Self::Stop(nodes) => {
                nodes.iter().try_for_each(|id| arena.start(*id))
            }
            Self::Roll { node, .. } => arena.start(*node),
            Self::Pause(nodes) => nodes.iter().try_for_each(|id| arena.cell.pause(*id, false)),
            Self::PauseClient(client) => arena.crowd.pause(*client, false),
            Self::KillClient(client) => arena.crowd.start(*client, &*arena.network),
            Self::Cut(_)
            | Self::Flap(_)
            | Self::Lose { .. }
            | Self::Delay { .. }
            | Self::Distance { .. } => arena.set_weather(),
            Self::Clock { node, .. } => {
                arena.stop(&[*node])?;
                arena.cell.set_clock(*node, None);
                arena.start(*node)
            }
            Self::Reload(_) => Ok(()),
            Self::FullDisk(node) => arena.cell.disk(*node).map_or(Ok(()), |disk| disk.fill(false)),
            Self::ReadOnly(node) => {
                arena.cell.disk(*node).map_or(Ok(()), |disk| disk.protect(false))
            }
            Self::FewFiles(node) | Self::LittleMemory(node) => {
                arena.cell.unlimit(*node, &mut arena.log)?;
                // It may have died for want of memory; one that did not is left alone.
                arena.start(*node)
            }
        }
    }
}
