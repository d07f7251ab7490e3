//! What one shard contributes to the status of its node.

use std::time::Duration;

use paxoslease_core::Ballot;
use paxoslease_holder::{PeerStatus, QueuedName, Rates};

/// How many names with waiters a status shows.
pub(crate) const QUEUED_NAMES_MAX: usize = 20;

/// The status of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardStatus {
    pub(crate) ready: bool,
    pub(crate) longest_turn: Duration,
    pub(crate) quarantine_remaining: Duration,
    pub(crate) peers: Vec<PeerStatus>,
    pub(crate) leases: u64,
    pub(crate) acceptor_bytes: u64,
    pub(crate) waiters: u64,
    pub(crate) waiting: Vec<QueuedName>,
    pub(crate) rates: Rates,
    pub(crate) guards: u64,
    pub(crate) rounds_in_flight: u64,
    /// The highest ballot counter.
    pub(crate) counter: u64,
    pub(crate) ballot_problem: Option<String>,
}

impl ShardStatus {
    pub(crate) fn ballots_remaining_ratio(&self) -> f64 {
        let left = Ballot::COUNTER_LIMIT.saturating_sub(self.counter);
        left as f64 / Ballot::COUNTER_LIMIT as f64
    }

    /// Joins what two shards of a node say.
    pub(crate) fn join(mut self, other: Self) -> Self {
        self.quarantine_remaining = self.quarantine_remaining.max(other.quarantine_remaining);
        self.ready &= other.ready;
        self.longest_turn = self.longest_turn.max(other.longest_turn);
        self.leases += other.leases;
        self.acceptor_bytes += other.acceptor_bytes;
        self.waiters += other.waiters;
        self.waiting.extend(other.waiting);
        self.waiting.sort_by_key(|queued| std::cmp::Reverse(queued.waiters));
        self.waiting.truncate(QUEUED_NAMES_MAX);
        self.rates.acquires += other.rates.acquires;
        self.rates.renewals += other.rates.renewals;
        self.rates.releases += other.rates.releases;
        self.guards += other.guards;
        self.rounds_in_flight += other.rounds_in_flight;
        self.counter = self.counter.max(other.counter);
        self.ballot_problem = self.ballot_problem.or(other.ballot_problem);
        for theirs in other.peers {
            match self.peers.iter_mut().find(|ours| ours.node == theirs.node) {
                Some(ours) => {
                    ours.up &= theirs.up;
                    ours.rtt = ours.rtt.max(theirs.rtt);
                    ours.quarantine_remaining =
                        ours.quarantine_remaining.max(theirs.quarantine_remaining);
                    ours.problem = ours.problem.take().or(theirs.problem);
                }
                None => self.peers.push(theirs),
            }
        }
        self
    }
}
