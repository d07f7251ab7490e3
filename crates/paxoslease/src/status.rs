//! What a node knows of itself and its cell, for people and machines that watch over it. Hints,
//! all of it: a moment old when it is read.

use std::time::Duration;

use paxoslease_core::Ballot;
use serde::{Serialize, Serializer};

use crate::config::Role;

/// A node's view of the cell.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The cell's name.
    pub cell: String,
    /// This node.
    pub node: u16,
    /// What it does in the cell.
    pub role: Role,
    /// The members of the cell.
    pub members: Vec<u16>,
    /// The longest lease this cell grants.
    #[serde(rename = "max_lease_ms", serialize_with = "millis")]
    pub max_lease: Duration,
    /// Whether a majority of members that vote is reachable from here, this node included, and
    /// ballots can be issued: what an acquire needs, as far as this node can tell. Nodes in
    /// quarantine do not count.
    pub ready: bool,
    /// How long this node stays silent still after its restart.
    #[serde(rename = "quarantine_remaining_ms", serialize_with = "millis")]
    pub quarantine_remaining: Duration,
    /// Its peers.
    pub peers: Vec<PeerStatus>,
    /// Names this node's acceptor keeps, idle ones included.
    pub leases: u64,
    /// Heap bytes behind these.
    pub acceptor_bytes: u64,
    /// Requests here that wait for a lease.
    pub waiters: u64,
    /// Some of the names they wait for, the most wanted first.
    pub waiting: Vec<Wanted>,
    /// Leases held by guards of this node.
    pub guards: u64,
    /// Rounds in flight.
    pub rounds_in_flight: u64,
    /// What this node got done for its users lately, per second.
    pub rates: Rates,
    /// The longest a thread of this node took between two looks at its sockets, since the start.
    #[serde(rename = "longest_turn_us", serialize_with = "micros")]
    pub longest_turn: Duration,
    /// How many threads share the names.
    pub shards: u16,
    /// What is wrong with the data folder, if anything.
    pub disk_problem: Option<String>,
    /// Why this node cannot begin rounds, if it cannot.
    pub ballot_problem: Option<String>,
    /// How much of the space of ballot counters is left: 1 for all of it, 0 for none.
    pub ballots_remaining_ratio: f64,
}

/// One peer, as seen from a node.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct PeerStatus {
    /// Which.
    pub node: u16,
    /// Where, for those this node knows an address of.
    pub address: Option<String>,
    /// Whether it is connected, with all its shards.
    pub up: bool,
    /// The way there and back, lately.
    #[serde(rename = "rtt_us", serialize_with = "maybe_micros")]
    pub rtt: Option<Duration>,
    /// How long it stays silent still after its restart, by its own word.
    #[serde(rename = "quarantine_remaining_ms", serialize_with = "millis")]
    pub quarantine_remaining: Duration,
    /// What went wrong last, if it is not connected.
    pub problem: Option<String>,
}

/// A name that requests of a node wait for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Wanted {
    /// Which.
    pub name: String,
    /// How many requests wait for it here.
    pub waiters: u64,
    /// Who holds it, as far as this node knows: a hint.
    pub holder: Option<String>,
    /// The fence of that tenure.
    #[serde(serialize_with = "maybe_text")]
    pub fence: Option<u64>,
}

/// What a node got done for its users, per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Rates {
    /// Leases granted.
    pub acquires: u64,
    /// Leases renewed.
    pub renewals: u64,
    /// Leases given back.
    pub releases: u64,
}

/// One shard's part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardStatus {
    pub(crate) ready: bool,
    pub(crate) longest_turn: Duration,
    pub(crate) quarantine_remaining: Duration,
    pub(crate) peers: Vec<PeerStatus>,
    pub(crate) leases: u64,
    pub(crate) acceptor_bytes: u64,
    pub(crate) waiters: u64,
    pub(crate) waiting: Vec<Wanted>,
    pub(crate) rates: Rates,
    pub(crate) guards: u64,
    pub(crate) rounds_in_flight: u64,
    /// The highest ballot counter.
    pub(crate) counter: u64,
    pub(crate) ballot_problem: Option<String>,
}

impl Rates {
    pub(crate) const NONE: Self = Self { acquires: 0, renewals: 0, releases: 0 };
}

impl Wanted {
    /// How many names are shown, and how many are looked at for that.
    pub(crate) const SHOWN_MAX: usize = 20;
    pub(crate) const SEEN_MAX: usize = 10_000;
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
        self.waiting.sort_by_key(|wanted| std::cmp::Reverse(wanted.waiters));
        self.waiting.truncate(Wanted::SHOWN_MAX);
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

fn millis<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn micros<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// Fences exceed what some readers of JSON take for a number.
fn maybe_text<S: Serializer>(fence: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match fence {
        Some(fence) => serializer.collect_str(fence),
        None => serializer.serialize_none(),
    }
}

fn maybe_micros<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match span {
        Some(span) => micros(span, serializer),
        None => serializer.serialize_none(),
    }
}
