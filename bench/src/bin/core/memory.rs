//! What the process has on the heap, counted in the allocator, and what the system says it uses.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counters since the process began.
#[derive(Clone, Copy)]
pub(crate) struct Heap {
    /// Live bytes, as asked for: without the allocator's own overhead.
    pub(crate) bytes: usize,
    /// Calls that made a block or changed its size.
    pub(crate) allocations: usize,
}

impl Heap {
    pub(crate) fn now() -> Self {
        let stats = ALLOCATOR.stats();
        Self {
            bytes: stats.bytes_allocated - stats.bytes_deallocated,
            allocations: stats.allocations + stats.reallocations,
        }
    }
}

/// Bytes in physical memory; `None` where the system has no `/proc`.
pub(crate) fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}
