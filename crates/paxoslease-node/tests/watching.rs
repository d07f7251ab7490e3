//! The memory of watchers. In a file of its own, because the allocator counts for the whole
//! process.

mod cell;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_watcher_without_changes_takes_little_memory() {
    let cell = cell::start(1, |config| config);
    let region = Region::new(ALLOCATOR);
    let watchers: Vec<_> = (0..1000).map(|_| cell.nodes[0].watch("jobs/")).collect();
    // Every shard knows all watchers once it answers this.
    cell::status(&cell.nodes[0]);
    let change = region.change();
    let kept = (change.bytes_allocated - change.bytes_deallocated) / watchers.len();
    assert!(kept < 4096, "{kept} bytes for each");
}
