//! Allocations of acquires and releases, in all threads of all nodes. In a file of its own, because
//! the allocator counts for the whole process.

mod cell;

use std::alloc::System;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn an_acquire_and_release_allocate_nothing_in_the_steady_state() {
    let cell = cell::start(3, |config| config.shards(1));
    let pairs = |count: usize| {
        for number in 0..count {
            let name = NAMES[number % NAMES.len()];
            let wish = cell.nodes[0].acquire(name, Duration::from_secs(10)).holder("me");
            let lease = wish.blocking().expect("granted");
            lease.release_blocking().expect("released");
        }
    };
    pairs(2000);
    // Metrics and status are published twice a second, which does allocate. A batch is so short
    // that most batches see none of that, and an allocation per pair would show up in every batch.
    let allocations = (0..500).map(|_| {
        let region = Region::new(ALLOCATOR);
        pairs(10);
        region.change().allocations
    });
    let fewest = allocations.min().expect("500 batches");
    assert_eq!(fewest, 0, "allocations in the best of 500 batches of 10 pairs");
}

const NAMES: [&str; 4] = ["jobs/nightly", "jobs/hourly", "master", "shard/17"];
