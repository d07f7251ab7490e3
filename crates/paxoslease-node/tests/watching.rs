//! What it costs to be watched.
//!
//! A file of its own: the allocator counts for the whole process.

mod cell;

use std::alloc::System;

use paxoslease_node::block_on;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_watcher_that_has_nothing_to_see_costs_next_to_nothing() {
    let cell = cell::start(1, |config| config);
    let region = Region::new(ALLOCATOR);
    let watchers: Vec<_> = (0..1000).map(|_| cell.nodes[0].watch("jobs/")).collect();
    // Every shard knows of all of them once it answers this.
    block_on(cell.nodes[0].status()).expect("runs");
    let change = region.change();
    let kept = (change.bytes_allocated - change.bytes_deallocated) / watchers.len();
    assert!(kept < 4096, "{kept} bytes for each");
}
