//! One acceptor with millions of live leases: what each takes, how long the longest pause is
//! while the table grows, and what a Renew costs when nothing is in the cache.
//!
//! Leases arrive as peers' Propose requests and every reply is taken, as a node would do it.

use std::time::Duration;

use paxoslease_bench::clock;
use paxoslease_bench::report::{Goal, Section};
use paxoslease_core::{
    Ballot, Cell, Config, Drift, Holder, Instant, Message, NodeId, Request, Shard, Start, Tenure,
    Ttl,
};

use crate::memory::{Heap, resident_bytes};
use crate::names::{HOLDER, Names};

/// Requests between two readings of the thread's clock, which costs a system call.
const BATCH: u32 = 64;
const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// An acceptor and the peer that asks it.
pub(crate) struct Asked {
    shard: Shard,
    peer: NodeId,
    counter: u64,
    ttl: Ttl,
}

impl Asked {
    pub(crate) fn new() -> Self {
        let [node, peer, third] = [1, 2, 3].map(|id| NodeId::new(id).expect("a node id"));
        let ttl = Ttl::from_millis(600_000).expect("not zero");
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        let cell = Cell::new(&[node, peer, third], ttl, drift).expect("a cell");
        let start = Start::NewCell { counter: 0, disk: false };
        let shard = Shard::start(Config::new(node, cell, 7), NOW, start);
        Self { shard, peer, counter: 0, ttl }
    }

    /// The first proposals have the tenures 1, 2, 3, ... of the peer.
    fn next_ballot(&mut self) -> Ballot {
        self.counter += 1;
        Ballot::new(self.counter, self.peer)
    }

    pub(crate) fn propose(&mut self, names: &Names, at: usize) {
        let holder = Holder::new(HOLDER).expect("in bounds");
        let (ballot, ttl) = (self.next_ballot(), self.ttl);
        self.ask(Request::Propose { name: names.get(at), ballot, ttl, holder });
    }

    /// Renews the lease that came as the `nth` proposal, counted from zero.
    pub(crate) fn renew(&mut self, names: &Names, at: usize, nth: u32) {
        let begun_by = Ballot::new(u64::from(nth) + 1, self.peer);
        let tenure = Tenure::of(begun_by).expect("a node's ballot names a tenure");
        let (ballot, ttl) = (self.next_ballot(), self.ttl);
        self.ask(Request::Renew { name: names.get(at), tenure, ballot, ttl });
    }

    fn ask(&mut self, request: Request<'_>) {
        let handled = self.shard.handle_message(NOW, self.peer, Message::Request(request));
        assert_eq!(handled, Ok(()));
        std::hint::black_box(self.shard.poll_transmit().expect("every request is answered"));
    }
}

/// Numbers below `count`, scattered and the same in every run.
pub(crate) fn scattered(count: u32) -> impl Iterator<Item = u32> {
    (1_u64..).map(move |n| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (((mixed >> 32) * u64::from(count)) >> 32) as u32
    })
}

/// What a run of single operations took.
#[derive(Default)]
struct Timing {
    cpu: Duration,
    operations: u32,
    longest: Duration,
    /// What the thread itself ran in the batch of the longest: if less, it was made to wait.
    longest_cpu: Duration,
    longest_batch_cpu: Duration,
}

impl Timing {
    /// Times every operation of a batch; `run` is told which.
    fn batch(&mut self, operations: u32, mut run: impl FnMut(usize)) {
        let cpu_before = clock::thread_time();
        let (mut longest, mut before) = (Duration::ZERO, clock::now());
        for at in 0..operations as usize {
            run(at);
            let after = clock::now();
            longest = longest.max(after - before);
            before = after;
        }
        let cpu = clock::thread_time() - cpu_before;
        if longest > self.longest {
            (self.longest, self.longest_cpu) = (longest, cpu);
        }
        self.cpu += cpu;
        self.operations += operations;
        self.longest_batch_cpu = self.longest_batch_cpu.max(cpu);
    }

    fn nanos_each(&self) -> f64 {
        let readings = clock::reading_cost() * self.operations;
        clock::nanos_each(self.cpu.saturating_sub(readings), self.operations)
    }
}

pub(crate) fn measure(leases: u32) -> Section {
    let title = format!("Acceptor with {leases} live leases, 16-byte names and holders");
    let mut section = Section::new("acceptor", title);
    let mut names = Names::of(0..BATCH);
    let (heap_before, resident_before) = (Heap::now(), resident_bytes());

    let mut asked = Asked::new();
    let mut growing = Timing::default();
    for first in (0..leases).step_by(BATCH as usize) {
        let end = leases.min(first + BATCH);
        names.refill(first..end);
        growing.batch(end - first, |at| asked.propose(&names, at));
    }
    assert_eq!(asked.shard.entries(), leases as usize);

    let each = |bytes: usize| bytes as f64 / f64::from(leases);
    let heap = Heap::now().bytes - heap_before.bytes;
    section.goal("heap, counted in the allocator", each(heap), "bytes/lease", Goal::AtMost(88.0));
    section.figure(
        "heap, as the acceptor reports",
        each(asked.shard.acceptor_bytes()),
        "bytes/lease",
    );
    if let (Some(before), Some(after)) = (resident_before, resident_bytes()) {
        let resident = after.saturating_sub(before);
        section.figure(
            "resident memory, allocator's overhead included",
            each(resident),
            "bytes/lease",
        );
    }
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let pause = Goal::AtMost(10.0);
    section.goal("longest insert, wall clock", millis(growing.longest), "ms", pause);
    let ran = format!("of which this thread ran, the other {} of its batch too", BATCH - 1);
    section.figure(ran, millis(growing.longest_cpu), "ms");
    let cpu = millis(growing.longest_batch_cpu);
    section.goal(format!("longest {BATCH} inserts, thread's own time"), cpu, "ms", pause);
    section.figure("insert (Propose of a new name)", growing.nanos_each(), "ns");

    let mut renewing = Timing::default();
    let mut picks = scattered(leases);
    for _ in 0..leases.min(2_000_000) / BATCH {
        let picked: [u32; BATCH as usize] = std::array::from_fn(|_| picks.next().expect("endless"));
        names.refill(picked);
        renewing.batch(BATCH, |at| asked.renew(&names, at, picked[at]));
    }
    section.figure("random Renew", renewing.nanos_each(), "ns");
    section.note("ns: mean of the thread's own time, less the reading of the clock.");
    section
}
