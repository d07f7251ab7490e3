//! How large a world is searched: which nodes, which clients' wishes, how much may go wrong.
//!
//! Time is counted in ticks; every message that was ever sent may arrive any number of times, in
//! any order, arbitrarily late, or never. Pauses lie between any two steps.

use core::time::Duration;

use paxoslease_core::{Rules, Ttl};

/// One tick: the shortest ttl.
pub const TICK: Duration = Ttl::MIN.as_duration();

/// What a client will ask for, once, at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Through which proposer, counted from zero.
    pub proposer: u8,
    /// The name, by number.
    pub name: u8,
    /// For how many ticks.
    pub ticks: u8,
    /// Not before this tick.
    pub not_before: u8,
    /// Whether its holder may renew.
    pub renews: bool,
    /// Whether its holder may release.
    pub releases: bool,
}

impl Wish {
    /// Name 0 through a proposer.
    #[must_use]
    pub const fn new(proposer: u8, ticks: u8) -> Self {
        Self { proposer, name: 0, ticks, not_before: 0, renews: true, releases: true }
    }

    /// The same, asked for at this tick or later.
    #[must_use]
    pub const fn not_before(self, tick: u8) -> Self {
        Self { not_before: tick, ..self }
    }

    /// The same, whose holder never renews.
    #[must_use]
    pub const fn not_renewed(self) -> Self {
        Self { renews: false, ..self }
    }

    /// The same, whose holder never releases.
    #[must_use]
    pub const fn not_released(self) -> Self {
        Self { releases: false, ..self }
    }

    /// The same for another name.
    #[must_use]
    pub const fn named(self, name: u8) -> Self {
        Self { name, ..self }
    }
}

/// Which nodes may lose their memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crashing {
    /// Acceptors.
    Acceptors,
    /// Proposers that are no acceptors.
    Proposers,
    /// Any node.
    Anyone,
}

/// What may happen, and how often.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// For reports.
    pub title: &'static str,
    /// Acceptors, 1 to 5.
    pub acceptors: u8,
    /// Proposers that are no acceptors. None: every acceptor proposes too.
    pub proposers: u8,
    /// The fresh leases asked for, in this order.
    pub wishes: Vec<Wish>,
    /// How often a lease may be renewed, all together.
    pub renewals: u8,
    /// For how many ticks a renewal may be.
    pub renewal_ticks: Vec<u8>,
    /// Whether a renewal or release may go through any proposer (P7), or only its own.
    pub any_proposer: bool,
    /// How often a holder may release.
    pub releases: u8,
    /// How often a client may leave before its answer.
    pub abandons: u8,
    /// How often a node may lose its memory.
    pub crashes: u8,
    /// How often a node may be stopped and started cleanly.
    pub clean_restarts: u8,
    /// Who may crash or be restarted.
    pub crashing: Crashing,
    /// Where each proposer's counter starts; zero where none is given.
    pub counters: Vec<u64>,
    /// How often an acceptor may reclaim what is idle.
    pub sweeps: u8,
    /// When the world ends.
    pub ticks: u8,
    /// M.
    pub max_ticks: u8,
    /// Whether acquires begin with a direct round.
    pub direct: bool,
    /// Whether a lost round is tried again (prepared), while ballots last.
    pub retries: bool,
    /// Ballots a node may use beyond one per wish and renewal.
    pub spare_ballots: u8,
    /// Whether there is a stable record.
    pub disk: bool,
    /// Whether a record becomes durable at some later step, in nodes that may crash. Elsewhere a
    /// slow disk is like a slow network.
    pub slow_disk: bool,
    /// Whether confirmations of releases are delivered. Without them every release times out.
    pub confirmations: bool,
    /// Whether a client may renew a tenure that was never granted to it, once it saw the fence.
    pub adopters: bool,
    /// The rules in force.
    pub rules: Rules,
    /// Give up beyond this many states.
    pub states_max: usize,
}

impl Bounds {
    /// Three acceptors, two proposers, two wishes, and nothing going wrong but the network.
    #[must_use]
    pub fn new(title: &'static str) -> Self {
        Self {
            title,
            acceptors: 3,
            proposers: 2,
            wishes: vec![Wish::new(0, 1), Wish::new(1, 1)],
            renewals: 0,
            renewal_ticks: vec![1],
            any_proposer: false,
            releases: 0,
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

    /// Nodes in all.
    #[must_use]
    pub fn nodes(&self) -> usize {
        usize::from(self.acceptors) + usize::from(self.proposers)
    }

    /// The node of a proposer.
    #[must_use]
    pub fn proposer_node(&self, proposer: u8) -> usize {
        if self.proposers == 0 {
            usize::from(proposer)
        } else {
            usize::from(self.acceptors) + usize::from(proposer)
        }
    }

    /// How many nodes propose.
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
            Crashing::Anyone => true,
        }
    }

    /// Whether a node goes on while its record is being written.
    #[must_use]
    pub fn writes_slowly(&self, node: usize) -> bool {
        self.slow_disk && self.may_crash(node)
    }

    /// Where a node's counter starts.
    #[must_use]
    pub fn counter(&self, node: usize) -> u64 {
        let proposers = 0..self.proposer_count();
        let proposer = proposers.into_iter().find(|p| self.proposer_node(*p) == node);
        let counter = proposer.and_then(|proposer| self.counters.get(usize::from(proposer)));
        counter.copied().unwrap_or(0)
    }

    /// The nodes that are acceptors.
    #[must_use]
    pub fn is_acceptor(&self, node: usize) -> bool {
        node < usize::from(self.acceptors)
    }
}
