//! One acceptor with millions of live leases: what each takes, how long the longest pause is
//! while the table grows, and what a Renew costs when nothing is in the cache.
//!
//! Leases arrive as a peer's Propose requests.

use std::time::Duration;

use paxoslease_bench::clock;
use paxoslease_bench::report::{Goal, Section};
use paxoslease_bench::rigs::acceptor::{Asked, scattered};
use paxoslease_bench::rigs::names::Names;

use crate::memory::{Heap, resident_bytes};

/// Requests between two readings of the thread's clock, which costs a system call.
const BATCH: u32 = 64;

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
    assert_eq!(asked.shard().entries(), leases as usize);

    let each = |bytes: usize| bytes as f64 / f64::from(leases);
    let heap = Heap::now().bytes - heap_before.bytes;
    section.goal("heap, counted in the allocator", each(heap), "bytes/lease", Goal::AtMost(88.0));
    section.figure(
        "heap, as the acceptor reports",
        each(asked.shard().acceptor_bytes()),
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
