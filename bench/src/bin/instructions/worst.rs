//! The most that a single one of a million inserts takes: while it lasts, the shard does nothing
//! else, so this is what guards against stalls.
//!
//! No more than a few dozen of them can be counted one by one. An insert is unlike its neighbours
//! where it allocates, and those that allocate about as much are alike, so the last few of each
//! magnitude are counted; they are the same in every run.

use std::alloc::System;
use std::collections::BTreeMap;

use paxoslease_bench::rigs::acceptor::Asked;
use paxoslease_bench::rigs::names::Names;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::path::counted;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const INSERTS: u32 = 1_000_000;
/// Names made at a time.
const BATCH: u32 = 1000;
/// Inserts counted of each magnitude.
const EACH: usize = 4;

/// Looks for those that allocate, then inserts all once more, with those counted one by one.
pub(crate) fn insert() {
    let mut apart = allocating().into_iter().peekable();
    each_insert(|asked, names, at, number| {
        if apart.next_if_eq(&number).is_some() {
            counted(&mut || asked.propose(names, at));
        } else {
            asked.propose(names, at);
        }
    });
}

/// Which inserts to look at, ascending.
fn allocating() -> Vec<u32> {
    let mut magnitudes = BTreeMap::<u32, Vec<u32>>::new();
    each_insert(|asked, names, at, number| {
        let before = ALLOCATOR.stats().bytes_allocated;
        asked.propose(names, at);
        let allocated = ALLOCATOR.stats().bytes_allocated - before;
        if let Some(magnitude) = allocated.checked_ilog2() {
            magnitudes.entry(magnitude).or_default().push(number);
        }
    });
    let last = |numbers: Vec<u32>| numbers.into_iter().rev().take(EACH);
    let mut apart: Vec<_> = magnitudes.into_values().flat_map(last).collect();
    apart.sort_unstable();
    apart
}

fn each_insert(mut insert: impl FnMut(&mut Asked, &Names, usize, u32)) {
    let (mut asked, mut names) = (Asked::new(), Names::default());
    for first in (0..INSERTS).step_by(BATCH as usize) {
        names.refill(first..first + BATCH);
        (0..BATCH).for_each(|at| insert(&mut asked, &names, at as usize, first + at));
    }
}
