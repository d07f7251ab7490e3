//! One test per normative sentence of the paper (sections 1 to 8), named after it.
//!
//! Where docs/protocol.md departs from the paper, the test shows the difference and cites the rule
//! that asks for it. A sentence that only motivates has no test. Most tests are scenes in
//! `tests/paper/`, which `transcripts.rs` plays. Here are those that vary an input, and those about
//! clocks and beliefs.

mod cell;

use core::time::Duration;

use cell::{MS, NO_WAIT, TTL, TestCell, WAIT, acquire_command, cell, name, node};
use paxoslease_core::*;

/// Section 1: a majority of the nodes has to be up and communicating; it also suffices.
#[test]
fn a_majority_of_acceptors_is_needed_and_suffices() {
    for members in 1..=9 {
        let majority = members / 2 + 1;
        for up in 1..=members {
            let mut cell = TestCell::new(members, 0);
            cell.acquire(1, 1, NO_WAIT);
            cell.take(|letter| letter.to.get() > up);
            cell.settle();
            assert_eq!(cell.granted(1).is_some(), up >= majority, "{up} of {members}");
        }
    }
}

/// Section 2: the lease invariant: at any time no more than one proposer holds the lease.
#[test]
fn no_more_than_one_proposer_holds_the_lease_at_any_time() {
    let mut cell = TestCell::new(3, 0);
    for id in 1..=3 {
        cell.acquire(id, u64::from(id), WAIT);
    }
    for _ in 0..3 * TTL.as_millis() {
        cell.settle();
        let now = cell.now;
        let holders = (1..=3).filter_map(|token| cell.belief(token));
        assert!(holders.filter(|belief| belief.is_held(now)).count() <= 1);
        cell.pass(MS);
    }
    assert!((1..=3).all(|token| cell.granted(token).is_some()), "one after the other");
}

/// Section 4 assumes clocks of equal rates. For others, T1 makes the belief shorter than the
/// exclusion by as much as two clocks may differ.
#[test]
fn a_belief_is_shorter_than_the_exclusion_by_the_drift() {
    let drift = Drift::new(1000, Duration::from_millis(2)).expect("in bounds");
    let members = cell(3).members().to_vec();
    let drifting = Cell::new(&members, cell(3).max_lease(), drift).expect("valid");
    let mut cell = TestCell::with(3, 0, |config| config.cell = drifting);
    let begun_at = cell.now;
    cell.held_by(1, 1);
    let belief = cell.belief(1).expect("granted").ends_at().since(begun_at);
    // The holder's clock is slow by 1000 ppm, those of the acceptors are fast by 1000 ppm.
    let (ends, expires) = (belief.as_secs_f64() / 0.999, TTL.as_secs_f64() / 1.001);
    assert!(ends < expires, "{ends} s of real time against {expires} s");
}

/// Section 5: a small random wait before the next try solves this. It grows (P4) and differs
/// between nodes, so some proposer wins soon, for all seeds.
#[test]
fn proposers_wait_a_small_random_time_before_they_try_again() {
    for seed in 0..50 {
        let mut cell = TestCell::with(3, 0, |config| {
            config.seed = seed * 1000 + u64::from(config.node.get());
        });
        for id in 1..=3 {
            cell.acquire(id, u64::from(id), WAIT);
        }
        let mut passed = 0;
        while (1..=3).all(|token| cell.granted(token).is_none()) {
            cell.pass(MS);
            for letter in cell.take(|_| true) {
                cell.deliver(&letter).expect("not refused");
            }
            passed += 1;
            assert!(passed < 500, "seed {seed}: no grant after {passed} hops");
        }
    }
}

/// Section 7: before it sends, the proposer switches to "I do not have the lease" (P6). That is for
/// good: no later grant of that tenure counts.
#[test]
fn the_holder_stops_believing_before_the_release_is_sent() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let mut belief = cell.belief(1).expect("granted");
    cell.renew(1, 2, held, TTL);
    let accepts = cell.take(|_| true);
    belief.release();
    cell.release(1, 3, held);
    for letter in accepts {
        cell.deliver(&letter).expect("not refused");
    }
    cell.settle();
    assert!(!belief.is_held(cell.now));
    assert!(matches!(cell.answers(2)[..], [Event::NotHeld { .. }]), "{:?}", cell.answers(2));
    cell.renew(1, 4, held, TTL);
    cell.settle();
    assert!(matches!(cell.answers(4)[..], [Event::NotHeld { .. }]), "nor can it be renewed");
}

/// Section 8: an instance takes about 100 bytes. (A benchmark measures the exact figure.)
#[test]
fn an_instance_needs_no_more_than_about_100_bytes() {
    let mut config = Config::new(node(1), cell(1), 1);
    config.limits.entries_max = 1 << 20;
    let start = Start::NewCell { counter: 0, disk: false };
    let mut shard = Shard::start(config, Instant::ZERO, start);
    let count = 20_000;
    for number in 0..count {
        let text = format!("resource/{number:07}");
        let acquire = Acquire { name: name(&text), ..acquire_command(number, NO_WAIT, TTL) };
        shard.acquire(Instant::ZERO, acquire).expect("room");
        while shard.poll_event().is_some() {}
    }
    assert_eq!(shard.entries() as u64, count);
    let each = shard.acceptor_bytes() as u64 / count;
    assert!(each <= 110, "{each} bytes");
}
