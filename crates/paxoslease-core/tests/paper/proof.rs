//! Sections 4 "Proof of lease invariance" and 5 "Liveness".

use core::time::Duration;

use crate::cell::{TTL, TestCell, ballot, cell, node, prepare, propose};
use crate::{MS, NO_WAIT, WAIT, two_phases};
use paxoslease_core::*;

/// Section 4: the proposer starts its timer before it sends, the acceptors start theirs later. So
/// every accepted lease outlives the belief in it, even if messages are slow.
#[test]
fn acceptors_start_their_timers_later_than_the_proposer() {
    for delay in [0, 1, 17, 99] {
        let mut cell = TestCell::new(3, 0);
        cell.acquire(1, 1, NO_WAIT);
        cell.pass(delay * MS);
        cell.settle();
        let ends_at = cell.belief(1).map(|belief| belief.ends_at());
        let Some(ends_at) = ends_at else { panic!("granted after {delay} ms") };
        for id in 1..=3 {
            let record = cell.register(id).accepted.expect("stored");
            assert!(record.expires_at >= ends_at, "node {id}, {delay} ms");
        }
    }
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

/// Section 4: until t_start + T no other proposer receives a majority of accepts.
#[test]
fn no_other_proposer_receives_a_majority_before_the_timer_ends() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    let ends_at = cell.belief(1).expect("granted").ends_at();
    cell.acquire(2, 2, WAIT);
    cell.acquire(3, 3, WAIT);
    while cell.now < ends_at {
        assert_eq!((cell.granted(2), cell.granted(3)), (None, None));
        cell.pass(MS);
        cell.settle();
    }
}

/// Section 4, part 1: no proposer holds the lease under a lower ballot number than p, because the
/// acceptors of p's majority have promised a higher one.
#[test]
fn part_1_no_lower_ballot_wins_while_a_lease_is_held() {
    let mut cell = TestCell::new(3, 0);
    for id in 1..=3 {
        cell.ask(id, 1, prepare(ballot(20, 1))).expect("promised");
    }
    cell.held_by(1, 1);
    let accepted = |cell: &mut TestCell, id| {
        cell.ask(id, 9, propose(ballot(15, 9))).expect("an answer").kind() == "Accept"
    };
    assert_eq!((1..=3).filter(|id| accepted(&mut cell, *id)).count(), 0);
}

/// Section 4, part 2: nor under a higher one, because an acceptor of p's majority reports the
/// lease.
#[test]
fn part_2_no_higher_ballot_wins_while_a_lease_is_held() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == node(3));
    cell.settle();
    let held = cell.granted(1).expect("by 1 and 2");
    let mut open = 0;
    for id in 1..=3 {
        let letter = cell.ask(id, 9, prepare(ballot(99, 9))).expect("an answer");
        match letter.transmit.message() {
            Message::Reply(Reply::Promise { accepted: None, .. }) => open += 1,
            Message::Reply(Reply::Promise { accepted: Some(seen), .. }) => {
                assert_eq!(seen.tenure, held);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(open, 1, "only the acceptor without the lease");
}

/// Section 5: two proposers that prepare in lockstep can outbid each other for ever.
#[test]
fn two_proposers_in_lockstep_outbid_each_other() {
    let mut cell = two_phases(3, 0);
    for id in 1..=3 {
        cell.ask(id, 8, prepare(ballot(5, 8))).expect("promised");
        cell.ask(id, 9, prepare(ballot(6, 9))).expect("promised");
        assert_eq!(cell.ask(id, 8, propose(ballot(5, 8))).expect("an answer").kind(), "Reject");
        cell.ask(id, 8, prepare(ballot(7, 8))).expect("promised");
        assert_eq!(cell.ask(id, 9, propose(ballot(6, 9))).expect("an answer").kind(), "Reject");
    }
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

/// Section 5: there are no static deadlocks, because proposers can overwrite acceptor states. Ours
/// do not overwrite. A proposer that cannot win undoes its proposal (P4). If it dies before that,
/// its proposal blocks for its ttl at most, and only where every majority needs that acceptor.
#[test]
fn there_are_no_static_deadlocks() {
    let mut cell = TestCell::new(3, 0);
    // Nodes 2 and 3 each get the vote of their own acceptor and die.
    for id in [2, 3] {
        cell.tell(id, id, Message::Request(propose(ballot(1, id)))).expect("accepted");
        assert!(cell.live(id).is_some());
    }
    cell.acquire(1, 1, WAIT);
    for _ in 0..=TTL.as_millis() + 300 {
        cell.settle();
        cell.pass(MS);
    }
    assert!(cell.granted(1).is_some());
}
