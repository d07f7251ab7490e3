//! How large a searched world is: its nodes, its clients, and how much may go wrong.
//!
//! Time is counted in ticks. Every message that was ever sent may arrive any number of times, in
//! any order, at any later time, or never. A node may pause between any two steps.

use core::time::Duration;

use paxoslease_core::{Rules, Ttl};
use serde::Deserialize;

/// One tick: the shortest ttl.
pub const TICK: Duration = Ttl::MIN.as_duration();

/// The number of ticks of a lease that lasts for ever.
pub(crate) const ENDLESS: u8 = u8::MAX;

/// A client that acquires once, at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// The proposer that it uses, counted from zero.
    pub proposer: u8,
    /// The index of the name that it acquires.
    #[serde(default)]
    pub name: u8,
    /// The ttl, in ticks.
    pub ticks: u8,
    /// How long its durable lease lasts, in ticks; 0 for an ordinary lease.
    #[serde(default)]
    pub lasts: u8,
    /// The first tick at which it may acquire.
    #[serde(default)]
    pub not_before: u8,
    /// Whether it may renew.
    #[serde(default = "yes")]
    pub renews: bool,
    /// Whether it may release.
    #[serde(default = "yes")]
    pub releases: bool,
}

const fn yes() -> bool {
    true
}

/// The nodes that may crash or be restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Crashing {
    /// Acceptors.
    Acceptors,
    /// Proposer-only nodes.
    Proposers,
}

/// What may happen, and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// The title in reports.
    pub title: String,
    /// The number of acceptors, 1 to 5, members of any epoch included.
    pub acceptors: u8,
    /// The members at the start, as indices of acceptors; empty for all.
    pub members: Vec<u8>,
    /// The sets of members that an administrator may ask for, as indices of acceptors.
    pub targets: Vec<Vec<u8>>,
    /// The most configurations that are decided after the first.
    pub decisions: u8,
    /// Whether a change may be aborted.
    pub aborts: bool,
    /// Whether every lease that is believed must be renewable at any time.
    pub live: bool,
    /// The number of proposer-only nodes. If it is 0, every acceptor proposes too.
    pub proposers: u8,
    /// The clients, in the order in which they acquire.
    pub clients: Vec<Client>,
    /// The most renewals of all leases together.
    pub renewals: u8,
    /// The possible ttls of a renewal, in ticks.
    pub renewal_ticks: Vec<u8>,
    /// The most operations of all clients together that set the end of a lease durably (K8).
    pub keeps: u8,
    /// How long a lease may last after such an operation, in ticks.
    pub keep_ticks: Vec<u8>,
    /// The most releases by changes (K8), several of one tenure included.
    pub durable_releases: u8,
    /// The most checks of registers (K5, K7) that nodes which propose begin at any time.
    pub checks: u8,
    /// Whether an acceptor answers the Prepare of a change again that it has promised to. What it
    /// stores may have changed since.
    pub repeats: bool,
    /// The most ballots for registers that nodes issue by themselves: for a further attempt of a
    /// change, and for a check by a member whose register is due.
    pub attempts: u8,
    /// Whether a client may renew and release through any proposer (P7), or only through its own.
    pub any_proposer: bool,
    /// The most releases.
    pub releases: u8,
    /// Whether a tenure may be released through every proposer, once each, and not only by its
    /// holder. Exactly one of these releases must learn that it ended the tenure, unless some learn
    /// that this is not known. No lease may expire within the bounds.
    pub rivals: bool,
    /// How often a client may leave before its answer arrives.
    pub abandons: u8,
    /// The most crashes.
    pub crashes: u8,
    /// The most clean stops, each followed by a start.
    pub clean_restarts: u8,
    /// The nodes that may crash or be restarted.
    pub crashing: Crashing,
    /// The first ballot counter of each proposer; 0 for those not listed.
    pub counters: Vec<u64>,
    /// How often an acceptor may reclaim idle names.
    pub sweeps: u8,
    /// The last tick.
    pub ticks: u8,
    /// `max_lease`, in ticks.
    pub max_ticks: u8,
    /// Whether acquires begin with a direct round.
    pub direct: bool,
    /// Whether a proposer prepares a new round after a lost one, while ballots last.
    pub retries: bool,
    /// The ballots a node may use beyond one per client and renewal.
    pub spare_ballots: u8,
    /// Whether nodes have a stable record.
    pub disk: bool,
    /// Whether a record becomes durable at some later step, in nodes that may crash. In other nodes
    /// a slow disk has the same effects as a slow network.
    pub slow_disk: bool,
    /// Whether confirmations of releases arrive. Without them every release times out.
    pub confirmations: bool,
    /// Whether a client may renew a tenure that was granted to another client, once it saw the
    /// fence.
    pub adopters: bool,
    /// The rules in force.
    #[serde(skip)]
    pub rules: Rules,
    /// The search stops at this number of states.
    pub states_max: usize,
}

impl Default for Bounds {
    /// Three acceptors, two proposers, two clients, and no faults except those of the network.
    fn default() -> Self {
        let client = |proposer| Client {
            proposer,
            name: 0,
            ticks: 1,
            lasts: 0,
            not_before: 0,
            renews: true,
            releases: true,
        };
        Self {
            title: String::new(),
            acceptors: 3,
            members: Vec::new(),
            targets: Vec::new(),
            decisions: 0,
            aborts: false,
            live: false,
            proposers: 2,
            clients: [0, 1].map(client).to_vec(),
            renewals: 0,
            renewal_ticks: vec![1],
            keeps: 0,
            keep_ticks: vec![ENDLESS],
            durable_releases: 0,
            checks: 0,
            repeats: false,
            attempts: 0,
            any_proposer: false,
            releases: 0,
            rivals: false,
            abandons: 0,
            crashes: 0,
            clean_restarts: 0,
            crashing: Crashing::Acceptors,
            counters: Vec::new(),
            sweeps: 0,
            ticks: 3,
            max_ticks: 2,
            direct: true,
            retries: false,
            spare_ballots: 0,
            disk: true,
            slow_disk: false,
            confirmations: false,
            adopters: false,
            rules: Rules::ALL,
            states_max: usize::MAX,
        }
    }
}

impl Bounds {
    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        usize::from(self.acceptors) + usize::from(self.proposers)
    }

    /// Whether acceptors that do not propose are interchangeable.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        self.proposers > 0 && self.targets.is_empty()
    }

    /// The index of a proposer's node.
    #[must_use]
    pub fn proposer_node(&self, proposer: u8) -> usize {
        if self.proposers == 0 {
            usize::from(proposer)
        } else {
            usize::from(self.acceptors) + usize::from(proposer)
        }
    }

    /// The number of nodes that propose.
    #[must_use]
    pub fn proposer_count(&self) -> u8 {
        if self.proposers == 0 { self.acceptors } else { self.proposers }
    }

    /// Whether a node may crash.
    #[must_use]
    pub fn may_crash(&self, node: usize) -> bool {
        match self.crashing {
            Crashing::Acceptors => self.is_acceptor(node),
            Crashing::Proposers => !self.is_acceptor(node),
        }
    }

    /// Whether a node continues while its record is being written.
    #[must_use]
    pub fn writes_slowly(&self, node: usize) -> bool {
        self.slow_disk && self.may_crash(node)
    }

    /// Whether any lease may become durable.
    #[must_use]
    pub fn has_registers(&self) -> bool {
        self.keeps > 0 || self.clients.iter().any(|client| client.lasts > 0)
    }

    /// Whether a node continues while a register is being written.
    #[must_use]
    pub fn stores_slowly(&self, node: usize) -> bool {
        self.crashes > 0 && self.may_crash(node)
    }

    /// The first ballot counter of a node.
    #[must_use]
    pub fn counter(&self, node: usize) -> u64 {
        let proposers = 0..self.proposer_count();
        let proposer = proposers.into_iter().find(|p| self.proposer_node(*p) == node);
        let counter = proposer.and_then(|proposer| self.counters.get(usize::from(proposer)));
        counter.copied().unwrap_or(0)
    }

    /// Whether a node is an acceptor.
    #[must_use]
    pub fn is_acceptor(&self, node: usize) -> bool {
        node < usize::from(self.acceptors)
    }
}
