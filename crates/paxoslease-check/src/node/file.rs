//! The file of a node with its registers of durable names (protocol section 10, K11 and K12).
//!
//! Writes reach the disk one after the other, each at some later step, and a crash keeps any of
//! those that were first. The time of the file stands still while the node is down.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use paxoslease_core::{DurableRegister, DurableValue, DurableWrite, Instant, Name};

/// What a node finds at its next start, and what it may find in addition.
#[derive(Clone, Default, Debug)]
pub(super) struct File {
    registers: Vec<DurableRegister>,
    /// When the last write that reached the disk was handed over.
    time: Instant,
    queue: VecDeque<Pending>,
}

#[derive(Clone, Debug)]
struct Pending {
    sequence: u64,
    write: DurableWrite,
    at: Instant,
}

impl File {
    pub(super) fn push(&mut self, now: Instant, sequence: u64, write: DurableWrite) {
        self.queue.push_back(Pending { sequence, write, at: now });
    }

    /// The number of writes under way.
    pub(super) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// The next write reaches the disk. Returns its number.
    pub(super) fn sync(&mut self) -> Option<u64> {
        let Pending { sequence, write, at } = self.queue.pop_front()?;
        self.time = at;
        match write {
            DurableWrite::Register(register) => {
                self.registers.retain(|known| known.name() != register.name());
                self.registers.push(register);
                self.registers.sort_by(|one, other| one.name().cmp(&other.name()));
            }
            DurableWrite::Forget(label) => {
                self.registers.retain(|known| known.name() != label.name());
            }
            DurableWrite::Clear => self.registers.clear(),
            DurableWrite::Tick => {}
        }
        Some(sequence)
    }

    /// The next `kept` writes have reached the disk, the others have not. The file time goes on
    /// from the last write, or as if there was one just now if it `is_exact`.
    pub(super) fn end(&mut self, now: Instant, kept: u8, is_exact: bool) {
        for _ in 0..kept {
            self.sync();
        }
        self.queue.clear();
        let late = if is_exact { now } else { self.time };
        for register in &mut self.registers {
            if let DurableValue::Held { ends_at, .. } = &mut register.value
                && *ends_at < Instant::MAX
            {
                *ends_at = ends_at.after(now.since(late));
            }
        }
        self.time = now;
    }

    /// Whether the file time decides when a lease ends.
    pub(super) fn has_ends(&self) -> bool {
        let pending = self.queue.iter().filter_map(|pending| match &pending.write {
            DurableWrite::Register(register) => Some(register),
            DurableWrite::Forget(_) | DurableWrite::Clear | DurableWrite::Tick => None,
        });
        self.registers.iter().chain(pending).any(has_end)
    }

    pub(super) fn registers(&self) -> impl Iterator<Item = &DurableRegister> {
        self.registers.iter()
    }

    pub(super) fn register(&self, name: Name<'_>) -> Option<&DurableRegister> {
        self.registers.iter().find(|register| register.name() == name)
    }
}

fn has_end(register: &DurableRegister) -> bool {
    matches!(register.value, DurableValue::Held { ends_at, .. } if ends_at < Instant::MAX)
}

impl Hash for File {
    /// Without the numbers of the writes, and without times that decide nothing.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.registers.hash(hasher);
        let has_ends = self.has_ends();
        has_ends.then_some(self.time).hash(hasher);
        for Pending { write, at, .. } in &self.queue {
            (write, has_ends.then_some(at)).hash(hasher);
        }
    }
}
