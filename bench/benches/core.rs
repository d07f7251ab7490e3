//! The protocol core, by time and by allocations: leases in a cell of three in memory, one
//! acceptor's table, and the simulator.

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use paxoslease_bench::rigs::acceptor::{Asked, scattered};
use paxoslease_bench::rigs::cell::Rig;
use paxoslease_bench::rigs::names::Names;
use paxoslease_sim::{Faults, Options, run};

/// Operations in a sample, so that reading the clock does not show.
const OPERATIONS: u32 = 1000;
const NAMES: u32 = 1 << 12;
const TABLE: u32 = 100_000;

/// Shows what a sample allocates: nothing for a pair or a renewal, once buffers have grown.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = [1, 64, 512])]
fn pair(bencher: Bencher<'_, '_>, in_flight: u32) {
    drive(bencher, Rig::new(in_flight, NAMES), 2 * u64::from(OPERATIONS));
}

#[divan::bench(args = [1, 64, 512])]
fn renewal(bencher: Bencher<'_, '_>, in_flight: u32) {
    let mut rig = Rig::new(in_flight, NAMES);
    rig.hold_all_and_renew(in_flight);
    drive(bencher, rig, u64::from(OPERATIONS));
}

#[divan::bench(args = [2, 16, 128])]
fn hand_over(bencher: Bencher<'_, '_>, clients: u32) {
    drive(bencher, Rig::contended(clients), 2 * u64::from(OPERATIONS));
}

fn drive(bencher: Bencher<'_, '_>, mut rig: Rig, answers: u64) {
    rig.run(4 * u64::from(NAMES));
    bencher.counter(ItemsCount::new(OPERATIONS)).bench_local(|| rig.run(answers));
}

#[divan::bench]
fn insert(bencher: Bencher<'_, '_>) {
    let names = Names::of(0..TABLE);
    bencher.counter(ItemsCount::new(TABLE)).bench_local(|| Asked::holding(&names));
}

#[divan::bench]
fn renew(bencher: Bencher<'_, '_>) {
    let names = Names::of(0..TABLE);
    let (mut asked, mut picks) = (Asked::holding(&names), scattered(TABLE));
    bencher.counter(ItemsCount::new(OPERATIONS)).bench_local(|| {
        for pick in picks.by_ref().take(OPERATIONS as usize) {
            asked.renew(&names, pick as usize, pick);
        }
    });
}

#[divan::bench]
fn sweep(bencher: Bencher<'_, '_>) {
    let names = Names::of(0..TABLE);
    bencher
        .counter(ItemsCount::new(TABLE))
        .with_inputs(|| Asked::with_expired(&names))
        .bench_local_refs(|asked| asked.sweep_twice(TABLE));
}

/// One world with faults, checkers included: what decides how many seeds the tests can afford.
#[divan::bench]
fn hostile_world() {
    let options = Options { faults: Faults::Hostile, ..Options::default() };
    let report = run(7, &options);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}
