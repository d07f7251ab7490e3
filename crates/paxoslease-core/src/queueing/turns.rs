//! The order in which nodes get a name that was freed, as one acceptor keeps it (protocol
//! section 7).
//!
//! A node that was rejected because of a live lease queues here. A queue that is lost costs time
//! and fairness, never safety.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::storage::Slot;
use crate::{Ballot, Instant, NodeId};

/// The most names with a queue, and the most nodes in one queue.
const QUEUES_MAX: usize = 4096;
/// The longest time for which a freed name is reserved for the nodes in its queue.
const RESERVED_MAX: Duration = Duration::from_secs(3);
/// A node that missed this many turns loses its place: it may be gone.
const TURNS_MISSED_MAX: u8 = 3;

/// Queues of nodes, by the slot of the name that they want.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Turns {
    by_slot: BTreeMap<Slot, NodeQueue>,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
struct NodeQueue {
    places: Vec<Place>,
    /// The nodes that a freed name is reserved for, until `reserved_until`.
    reserved_for: Vec<NodeId>,
    reserved_until: Instant,
}

/// A node's place in a queue. All acceptors see the same ballots, so they agree on the order even
/// if they rejected the nodes in different orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    ballot: Ballot,
    node: NodeId,
    turns_missed: u8,
}

impl NodeQueue {
    fn enqueue(&mut self, node: NodeId, ballot: Ballot) {
        if self.places.len() < QUEUES_MAX && !self.places.iter().any(|place| place.node == node) {
            let at = self.places.partition_point(|place| place.ballot <= ballot);
            self.places.insert(at, Place { ballot, node, turns_missed: 0 });
        }
    }

    /// Whether no other node than `node` waits.
    fn only_has(&self, node: NodeId) -> bool {
        self.places.iter().all(|place| place.node == node)
    }

    fn last(&self) -> Ballot {
        self.places.last().map_or(Ballot::ZERO, |last| last.ballot)
    }
}

impl Turns {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    /// Queues a node that was rejected, unless it has a place already.
    pub(crate) fn on_rejected(&mut self, slot: Slot, node: NodeId, ballot: Ballot) {
        if self.by_slot.len() < QUEUES_MAX || self.by_slot.contains_key(&slot) {
            self.by_slot.entry(slot).or_default().enqueue(node, ballot);
        }
    }

    /// The node `from` freed a name. Returns the nodes in its queue, in the order of their turns.
    ///
    /// A node keeps its place until a proposal of it is accepted or it has missed several turns.
    /// `from` may want the name again, and goes to the end, even if another client of it was
    /// rejected meanwhile; where no other node waits, the queue is dropped. A node that waits at
    /// this acceptor gets a place for the next time, even if only other acceptors rejected it. The
    /// name is reserved for twice `turn_span` per node, and for at most three quarters of
    /// `request_timeout`: no request is answered "no quorum" because of that.
    pub(crate) fn on_freed(
        &mut self,
        now: Instant,
        slot: Slot,
        from: NodeId,
        waits_here: Option<NodeId>,
        turn_span: Duration,
        request_timeout: Duration,
    ) -> Vec<NodeId> {
        let Some(queue) = self.by_slot.get_mut(&slot) else { return Vec::new() };
        if queue.only_has(from) {
            self.by_slot.remove(&slot);
            return Vec::new();
        }
        // The Release of a lost round, or a repeated Release, ends no node's turn.
        let ends_turn = now >= queue.reserved_until;
        if ends_turn {
            queue.places.retain(|place| place.node != from);
        }
        let turns: Vec<NodeId> = queue.places.iter().map(|place| place.node).collect();
        if ends_turn && let Some(first) = queue.places.first_mut() {
            first.turns_missed += 1;
            if first.turns_missed >= TURNS_MISSED_MAX {
                queue.places.remove(0);
            }
        }
        let count = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let span = turn_span.saturating_mul(2).saturating_mul(count);
        let span_max = RESERVED_MAX.min(request_timeout * 3 / 4);
        queue.reserved_until = now.after(span.min(span_max));
        queue.reserved_for.clone_from(&turns);
        for node in waits_here.into_iter().chain([from]) {
            queue.enqueue(node, queue.last());
        }
        if queue.only_has(from) {
            self.by_slot.remove(&slot);
        }
        turns
    }

    /// Until when a freed name is reserved for other nodes than `node`.
    pub(crate) fn reserved_until(&self, now: Instant, slot: Slot, node: NodeId) -> Option<Instant> {
        let queue = self.by_slot.get(&slot)?;
        let is_reserved = now < queue.reserved_until && !queue.reserved_for.contains(&node);
        is_reserved.then_some(queue.reserved_until)
    }

    /// The acceptor accepted a proposal of `node`, which has had its turn.
    pub(crate) fn on_accepted(&mut self, slot: Slot, node: NodeId) {
        if let Some(queue) = self.by_slot.get_mut(&slot) {
            queue.places.retain(|place| place.node != node);
            queue.reserved_until = Instant::ZERO;
            if queue.only_has(node) {
                self.by_slot.remove(&slot);
            }
        }
    }

    /// The name in a slot is reclaimed.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.by_slot.remove(&slot);
    }
}
