//! How a shard sees itself and its cell: what it publishes, and whether the node is ready.

use paxoslease_core::{Ballot, Instant, MemberSet, NodeId, WaitedName};
use paxoslease_holder::{Membership, Quarantine, QueuedName};

use super::Driver;
use super::counters::publish_peer;
use crate::board::{QUEUED_NAMES_MAX, ShardStatus};

/// A status looks at this many names with waiters.
const QUEUED_NAMES_SEEN_MAX: usize = 10_000;

impl Driver {
    /// Whether this node votes, if it is a member, can begin rounds, and reaches a majority that
    /// votes, itself included.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        let is_quarantined = !self.shard.quarantine_remaining(now).is_zero();
        !is_quarantined && self.shard.ballot_problem().is_none() && self.has_quorum(now)
    }

    /// Whether members that vote, and are connected, are a quorum.
    pub(super) fn has_quorum(&self, now: Instant) -> bool {
        let cell = self.shard.config().cell;
        let own = self.shard.quarantine_remaining(now).is_zero();
        let own = own.then_some(self.peers.identity.node);
        let voting = self.peers.voting(now).chain(own).filter_map(|node| cell.member(node));
        self.has_members() && cell.is_quorum(voting.fold(MemberSet::EMPTY, MemberSet::with))
    }

    /// What acquires of this process wait for, if no majority votes and a line of the log is due:
    /// one at once, and one every ten seconds.
    pub(super) fn next_wait_to_log(&mut self, now: Instant) -> Option<String> {
        if self.has_quorum(now) || !self.is_acquiring() {
            return None;
        }
        self.waits.again(now)?;
        let cell = self.shard.config().cell;
        let own = cell.member(self.peers.identity.node).and_then(|_| self.quarantine(now));
        let own = own.map(|Quarantine { remaining, has_record }| {
            let left = remaining.as_secs_f64();
            if has_record {
                format!("this node was restarted and votes in {left:.0} s")
            } else {
                format!(
                    "this node has no record and votes in {left:.0} s; if this cell never ran \
                     before, start each node with new_cell(true)"
                )
            }
        });
        let peers = self.peers.status(now).into_iter().filter_map(|peer| {
            let (node, left) = (peer.node, peer.quarantine_remaining.as_secs_f64());
            match peer.up {
                false => Some(format!("node {node} is not connected")),
                true if left > 0.0 => Some(format!("node {node} votes in {left:.0} s")),
                true => None,
            }
        });
        Some(own.into_iter().chain(peers).collect::<Vec<_>>().join("; "))
    }

    pub(super) fn tell_ready_waiters(&mut self, now: Instant) {
        if !self.ready_waiters.is_empty() && self.is_ready(now) {
            for reply in self.ready_waiters.drain(..) {
                // The caller may have left.
                let _gone = reply.send(());
            }
        }
    }

    pub(super) fn publish(&mut self, now: Instant) {
        self.counters.publish(&self.shard);
        if self.peers.identity.shard.index() == 0 {
            for (peer, reach) in self.peers.reaches() {
                publish_peer(peer.get(), reach);
            }
            self.board.publish_write_times();
        }
        self.show(now);
    }

    /// Reports the status of this shard to the other threads of the node.
    pub(super) fn show(&self, now: Instant) {
        self.board.show(now, self.shard_index(), self.status(now));
    }

    pub(crate) const fn epoch(&self) -> u32 {
        self.peers.identity.cell.epoch()
    }

    /// The epoch, and where clients reach the members of both sets, as far as this node knows.
    pub(crate) fn member_addresses(&self) -> (u32, Vec<&str>) {
        let cell = &self.shard.config().cell;
        let members: &[NodeId] = match self.membership() {
            // Its list only says whom it may ask for the members.
            Membership::Blank => &[],
            _ => cell.members(),
        };
        let addresses = members.iter().filter_map(|node| self.peers.client_address(*node));
        (cell.epoch(), addresses.collect())
    }

    pub(super) fn status(&self, now: Instant) -> ShardStatus {
        let counters_left = Ballot::COUNTER_LIMIT.saturating_sub(self.shard.counter());
        let cell = self.shard.config().cell;
        let durable = self.shard.durable_counts();
        ShardStatus {
            members: cell.nodes(cell.old_set()).map(NodeId::get).collect(),
            membership: self.membership(),
            epoch: cell.epoch(),
            change: self.change_status(now),
            quarantine_remaining: self.shard.quarantine_remaining(now),
            peers: self.peers.status(now),
            leases: self.shard.entries() as u64,
            acceptor_bytes: self.shard.acceptor_bytes() as u64,
            durable: (durable.registers - durable.free) as u64,
            durable_unsettled: durable.unsettled as u64,
            durable_free: durable.free as u64,
            waiters: self.shard.waiters() as u64,
            waiting: self.waiting(),
            rates: self.counters.rates,
            ready: self.is_ready(now),
            longest_turn: self.longest_turn,
            guards: self.guards.len() as u64,
            rounds_in_flight: self.shard.rounds().count() as u64,
            ballots_remaining_ratio: counters_left as f64 / Ballot::COUNTER_LIMIT as f64,
            ballot_problem: self.shard.ballot_problem().map(|problem| problem.to_string()),
            ..ShardStatus::default()
        }
    }

    /// Some of the names that requests here wait for.
    fn waiting(&self) -> Vec<QueuedName> {
        let mut wanted: Vec<_> = self.shard.waited_names().take(QUEUED_NAMES_SEEN_MAX).collect();
        wanted.sort_by_key(|waited| std::cmp::Reverse(waited.waiters));
        wanted.truncate(QUEUED_NAMES_MAX);
        let describe = |waited: WaitedName<'_>| QueuedName {
            name: waited.name.to_string(),
            waiters: waited.waiters as u64,
            holder: waited.held_by.map(|by| by.label.holder().to_string()),
            fence: waited.held_by.map(|by| by.tenure.fence()),
        };
        wanted.into_iter().map(describe).collect()
    }
}
