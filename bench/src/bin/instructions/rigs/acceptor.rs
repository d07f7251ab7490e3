//! One acceptor and the peer that asks it. Every reply is taken, as a node would do it.

use std::time::Duration;

use paxoslease_core::{
    Ballot, Cell, Config, Drift, Holder, Instant, Message, NodeId, Request, Shard, Start, Tenure,
    Ttl,
};

use super::names::{HOLDER, Names};

const STARTED_AT: Instant = Instant::from_nanos(1_000_000_000);
const LONG: Ttl = Ttl::from_millis(600_000).expect("not zero");
const SHORT: Ttl = Ttl::from_millis(1000).expect("not zero");

/// An acceptor and the counter of its peer.
pub(crate) struct Asked {
    shard: Shard,
    peer: NodeId,
    counter: u64,
    now: Instant,
}

impl Asked {
    pub(crate) fn new() -> Self {
        let [node, peer, third] = [1, 2, 3].map(|id| NodeId::new(id).expect("a node id"));
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        let cell = Cell::new(&[node, peer, third], LONG, drift).expect("a cell");
        let start = Start::NewCell { counter: 0, disk: false };
        let shard = Shard::start(Config::new(node, cell, 7), STARTED_AT, start);
        Self { shard, peer, counter: 0, now: STARTED_AT }
    }

    /// An acceptor with a lease on each of these names.
    pub(crate) fn holding(names: &Names) -> Self {
        let mut asked = Self::new();
        (0..names.len()).for_each(|at| asked.propose(names, at));
        asked
    }

    /// An acceptor on which a lease on each of these names has expired.
    pub(crate) fn with_expired(names: &Names) -> Self {
        let mut asked = Self::new();
        (0..names.len()).for_each(|at| asked.propose_for(names, at, SHORT));
        asked.now = asked.now.after(2 * SHORT.as_duration());
        asked
    }

    pub(crate) const fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The first proposals have the tenures 1, 2, 3, ... of the peer.
    fn next_ballot(&mut self) -> Ballot {
        self.counter += 1;
        Ballot::new(self.counter, self.peer)
    }

    pub(crate) fn propose(&mut self, names: &Names, at: usize) {
        self.propose_for(names, at, LONG);
    }

    fn propose_for(&mut self, names: &Names, at: usize, ttl: Ttl) {
        let holder = Holder::new(HOLDER).expect("in bounds");
        let ballot = self.next_ballot();
        self.ask(Request::Propose { name: names.get(at), ballot, ttl, holder });
    }

    /// Renews the lease of the `nth` proposal, counted from zero.
    pub(crate) fn renew(&mut self, names: &Names, at: usize, nth: u32) {
        let begun_by = Ballot::new(u64::from(nth) + 1, self.peer);
        let tenure = Tenure::of(begun_by).expect("a node's ballot names a tenure");
        let (ballot, ttl) = (self.next_ballot(), LONG);
        self.ask(Request::Renew { name: names.get(at), tenure, ballot, ttl });
    }

    /// Sweeps every slot twice, `reclaim_after` apart, which reclaims expired leases.
    pub(crate) fn sweep_twice(&mut self, slots: u32) {
        self.shard.sweep(self.now, slots);
        self.now = self.now.after(self.shard.config().reclaim_after);
        self.shard.sweep(self.now, slots);
    }

    fn ask(&mut self, request: Request<'_>) {
        let handled = self.shard.handle_message(self.now, self.peer, Message::Request(request));
        assert_eq!(handled, Ok(()));
        std::hint::black_box(self.shard.poll_transmit().expect("every request is answered"));
    }
}

/// Pseudo-random numbers below `count`, the same in every run.
pub(crate) fn scattered(count: u32) -> impl Iterator<Item = u32> {
    (1_u64..).map(move |n| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (((mixed >> 32) * u64::from(count)) >> 32) as u32
    })
}
