//! The turns of nodes that want the same name (protocol section 7). Hints, all of it: losing one
//! costs time only.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{Ballot, Instant, NodeId};

/// How long a freed name is kept for the nodes that waited, at most.
const TURNS_MAX: Duration = Duration::from_secs(3);
/// How often a node may leave its turn to others before it loses its place: it may be gone.
const TURNS_MISSED_MAX: u8 = 3;
/// How many nodes can wait for a name.
const NODES_MAX: usize = 4096;

/// The nodes that want a name.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Wanted {
    /// The nodes that were turned away, in the order of their turns.
    queue: Vec<Place>,
    /// The name was freed: these nodes go first.
    first: Vec<NodeId>,
    /// When other nodes may try as well.
    first_until: Instant,
}

/// A node's place in the queue for a name. All acceptors see the same ballots, so that they agree
/// on the order even if they turned the nodes away in different orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    ballot: Ballot,
    node: NodeId,
    turns_missed: u8,
}

impl Wanted {
    /// Until when other nodes have their turn before this one.
    pub(super) fn others_until(&self, now: Instant, node: NodeId) -> Option<Instant> {
        let is_later = now < self.first_until && !self.first.contains(&node);
        is_later.then_some(self.first_until)
    }

    /// The name was freed: the nodes that were turned away from it, in the order of their turns;
    /// none if only the node that freed it wants it. See [`super::Acceptor::turns`].
    pub(super) fn freed(
        &mut self,
        now: Instant,
        from: NodeId,
        waits_here: Option<NodeId>,
        turn_span: Duration,
    ) -> Vec<NodeId> {
        if self.is_done(from) {
            return Vec::new();
        }
        let turns: Vec<NodeId> = self.queue.iter().map(|place| place.node).collect();
        // A round that was undone, or a Release that was repeated, ends no turn.
        if now >= self.first_until
            && let Some(first) = self.queue.first_mut()
        {
            first.turns_missed += 1;
            if first.turns_missed >= TURNS_MISSED_MAX {
                self.queue.remove(0);
            }
        }
        let count = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        let span = turn_span.saturating_mul(2).saturating_mul(count).min(TURNS_MAX);
        self.first_until = now.after(span);
        self.first.clone_from(&turns);
        for node in waits_here.into_iter().chain([from]) {
            self.enqueue(node, self.last());
        }
        turns
    }

    /// A node had its turn.
    pub(super) fn had_its_turn(&mut self, node: NodeId) {
        self.queue.retain(|place| place.node != node);
        self.first_until = Instant::ZERO;
    }

    /// Whether no node except this one waits.
    pub(super) fn is_done(&self, from: NodeId) -> bool {
        self.queue.iter().all(|place| place.node == from)
    }

    /// Adds a node that was turned away. A node that waits already keeps its place.
    pub(super) fn enqueue(&mut self, node: NodeId, ballot: Ballot) {
        if self.queue.len() < NODES_MAX && !self.queue.iter().any(|place| place.node == node) {
            let at = self.queue.partition_point(|place| place.ballot <= ballot);
            self.queue.insert(at, Place { ballot, node, turns_missed: 0 });
        }
    }

    fn last(&self) -> Ballot {
        self.queue.last().map_or(Ballot::ZERO, |last| last.ballot)
    }
}
