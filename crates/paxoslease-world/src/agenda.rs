//! The coming events of a world, in order of true time. Events of the same instant happen in the
//! order in which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use paxoslease_node::simulation::EndId;

use crate::world::At;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Event {
    /// A shard of a node, or a client, takes a turn.
    Turn { host: usize, shard: usize },
    /// A shard that has had its last turn is gone.
    Left { host: usize, shard: usize },
    /// An event of the network.
    Network(NetworkEvent),
    /// The disk has finished a write of this run of a host.
    Written { host: usize, run: u64 },
    /// A lease of a host that was killed may have run out.
    Lapsed { host: usize },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum NetworkEvent {
    /// The request to connect arrives.
    Dialled { pipe: u64 },
    /// The answer to that request arrives.
    Answered { pipe: u64 },
    /// Bytes arrive at an end.
    Arrives(EndId),
    /// An end learns that the other has read this many bytes.
    Room(EndId, usize),
    /// An end learns that the other is gone.
    Reset(EndId),
}

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// The current true time.
    pub(crate) now: At,
    heap: BinaryHeap<Reverse<(At, u64, Event)>>,
    serial: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: At, event: Event) {
        self.serial += 1;
        self.heap.push(Reverse((at, self.serial, event)));
    }

    pub(crate) fn add_in(&mut self, nanos: u64, event: Event) {
        self.add(self.now + nanos, event);
    }

    pub(crate) fn next_at(&self) -> Option<At> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(At, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
