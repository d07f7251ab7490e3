//! The most instructions of one insert out of a million: a guard against stalls, because the shard
//! does nothing else meanwhile.
//!
//! Callgrind can count a few dozen of them one by one. Inserts differ only where they allocate, and
//! those with allocations of the same magnitude are alike. So the last few of each magnitude are
//! counted.

use std::alloc::System;
use std::collections::BTreeMap;

use crate::rigs::acceptor::Asked;
use crate::rigs::names::Names;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::path::counted;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const INSERTS: u32 = 1_000_000;
const BATCH: u32 = 1000;
/// Inserts counted of each magnitude.
const EACH: usize = 4;

/// Finds the inserts that allocate, then repeats all inserts and counts these one by one.
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

/// The numbers of the inserts to count, ascending.
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
