//! A request costs no allocation. The only test of its process, because it counts all allocations.

mod support;

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use paxoslease_load::{Extent, Plan, Workload, run};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::support::server;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocations of a load with this many pairs, from its first connection to its report.
fn allocations(address: &str, pairs: u64) -> usize {
    let mut plan = Plan::new([address], Workload::Pairs);
    (plan.extent, plan.warmup) = (Extent::Count(pairs), Duration::ZERO);
    let region = Region::new(HEAP);
    let report = run(&plan, &mut |_| {}).expect("it answers");
    assert_eq!(report.operations, pairs);
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn fifty_times_the_requests_take_hardly_more_allocations() {
    let address = server(usize::MAX, &Arc::default());
    let few = allocations(&address, 2_000);
    let many = allocations(&address, 100_000);
    // Buffers grow to the largest batch, which differs from run to run.
    assert!(many < few + 100, "{few} for 2 000 pairs, {many} for 100 000");
}
