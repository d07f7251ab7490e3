//! What is going to happen in a world, in order of true time. What is due at the same instant
//! happens in the order it was decided.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use super::At;
use super::network::{EndId, PipeId};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Happening {
    /// A shard's thread takes a turn.
    Turn { host: usize, shard: usize },
    /// A shard that may go is gone.
    Left { host: usize, shard: usize },
    /// A wish to connect arrives.
    Dialled(PipeId),
    /// The answer to such a wish arrives.
    Answered(PipeId),
    /// What travels to an end arrives there.
    Arrives(EndId),
    /// An end learns that the other has read so much.
    Room(EndId, usize),
    /// An end learns that the other is gone.
    Reset(EndId),
    /// The disk is done with a write of that run of a host.
    Written { host: usize, run: u64 },
    /// A lease of a host that was killed may have run out.
    Lapsed { host: usize },
}

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(At, u64, Happening)>>,
    serial: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: At, happening: Happening) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, happening)));
    }

    pub(crate) fn next_at(&self) -> Option<At> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(At, Happening)> {
        self.heap.pop().map(|Reverse((at, _, happening))| (at, happening))
    }
}
