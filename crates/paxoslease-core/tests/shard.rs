//! Rounds between real shards, message by message.

mod cell;

use core::time::Duration;

use cell::{Letter, NO_WAIT, TestCell, WAIT, ballot, prepare};
use paxoslease_core::*;

#[test]
fn an_acquire_takes_one_round_trip_and_two_messages_per_peer() {
    for members in 1..=9 {
        let mut cell = TestCell::new(members, 0);
        cell.held_by(1, 1);
        assert_eq!(cell.sent, 2 * (usize::from(members) - 1), "{members} members");
        assert_eq!(cell.shard(1).round_counts().direct, 1);
    }
}

#[test]
fn a_renewal_takes_one_round_trip_and_two_messages_per_peer() {
    let mut cell = TestCell::new(3, 0);
    let tenure = cell.held_by(1, 1);
    cell.sent = 0;
    cell.renew(2, 2, tenure, cell::TTL);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Renewed { .. }]));
    assert_eq!(cell.sent, 4);
    assert_eq!(cell.shard(2).rounds().count(), 0, "no round is left");
}

#[test]
fn a_denial_names_the_holder() {
    let mut cell = TestCell::new(3, 0);
    let tenure = cell.held_by(1, 1);
    cell.acquire(2, 2, NO_WAIT);
    cell.settle();
    let [Event::Denied { by, .. }] = cell.answers(2)[..] else { panic!("{:?}", cell.answers(2)) };
    assert_eq!((by.tenure, by.label.holder().as_str()), (tenure, "me"));
    assert_eq!(cell.shard(2).waiters(), 0);
}

#[test]
fn a_waiter_is_granted_after_the_release_with_a_higher_fence() {
    let mut cell = TestCell::new(3, 0);
    let first = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    assert_eq!(cell.granted(2), None);
    cell.release(1, 3, first);
    cell.settle();
    cell.pass(Duration::from_millis(2));
    cell.settle();
    assert!(cell.granted(2).expect("granted") > first);
    let released = cell.answers(3);
    assert!(matches!(released[..], [Event::Released { held: true, confirmed: true, .. }]));
}

#[test]
fn waiters_of_one_node_are_served_in_order_without_a_pause() {
    let mut cell = TestCell::new(3, 0);
    for token in 1..=5 {
        cell.acquire(1, token, WAIT);
    }
    cell.settle();
    for token in 1..5 {
        let tenure = cell.granted(token).expect("in order");
        assert_eq!(cell.granted(token + 1), None);
        cell.release(1, 100 + token, tenure);
        cell.settle();
    }
    assert!(cell.granted(5).is_some());
}

#[test]
fn a_waiter_is_granted_when_the_holder_dies() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.pass(cell::TTL - Duration::from_millis(1));
    cell.settle();
    assert_eq!(cell.granted(2), None);
    cell.pass(Duration::from_millis(3));
    cell.settle();
    assert!(cell.granted(2).is_some());
}

#[test]
fn a_split_vote_is_undone_and_resolved() {
    let mut cell = TestCell::new(3, 0);
    for id in 1..=3 {
        cell.acquire(id, u64::from(id), NO_WAIT);
    }
    for _ in 0..200 {
        cell.settle();
        cell.pass(Duration::from_millis(1));
    }
    let winners = (1..=3).filter(|token| cell.granted(*token).is_some()).count();
    assert_eq!(winners, 1);
    assert!((1..=3).all(|token| cell.answers(token).len() == 1), "{:?}", cell.events);
}

#[test]
fn without_a_majority_the_answer_is_no_quorum() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    for _ in 0..3000 {
        cell.letters.clear();
        cell.pass(Duration::from_millis(1));
    }
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
    assert_eq!(cell.shard(1).rounds().count(), 0);
    assert_eq!(cell.shard(1).waiters(), 0);
}

#[test]
fn a_node_without_an_acceptor_acquires_in_one_round_trip() {
    let mut cell = TestCell::new(3, 2);
    let tenure = cell.held_by(4, 1);
    assert_eq!(cell.sent, 6);
    // Another node without an acceptor waits, and hears of the release by a hint.
    cell.acquire(5, 2, WAIT);
    cell.settle();
    cell.release(4, 3, tenure);
    cell.settle();
    cell.pass(Duration::from_millis(2));
    cell.settle();
    assert!(cell.granted(2).is_some());
}

#[test]
fn a_renewal_gives_the_tenure_back_to_an_acceptor_that_lost_it() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == cell::node(3));
    cell.settle();
    let tenure = cell.granted(1).expect("granted by 1 and 2");
    assert_eq!(cell.shard(3).register(cell::name(cell::NAME)), None);
    cell.renew(1, 2, tenure, cell::TTL);
    cell.settle();
    let register = cell.shard(3).register(cell::name(cell::NAME)).expect("healed");
    assert_eq!(register.accepted.map(|accepted| accepted.tenure), Some(tenure));
}

/// Node 1 proposes. Node 3 refuses, node 2 accepts, and the answer of node 2 is lost.
fn split(cell: &mut TestCell, token: u64) {
    let above = ballot(1_000_000 * token, 2);
    cell.ask(3, 2, prepare(above)).expect("promised");
    cell.acquire(1, token, NO_WAIT);
    for letter in cell.take(|letter| letter.kind() == "Propose") {
        cell.deliver(&letter).expect("an answer");
    }
    let refusals = cell.take(|letter| letter.kind() == "Reject");
    cell.letters.clear();
    for refusal in &refusals {
        cell.deliver(refusal).expect("an answer");
    }
}

#[test]
fn the_undo_of_a_void_round_is_repeated() {
    let mut cell = TestCell::new(3, 0);
    split(&mut cell, 1);
    let stored = |cell: &mut TestCell| {
        let register = cell.shard(2).register(cell::name(cell::NAME)).expect("an entry");
        register.accepted.map(|accepted| accepted.tenure)
    };
    let leftover = stored(&mut cell).expect("stored");
    // All messages are lost: the round is void, and its undo is lost as well.
    cell.pass(Duration::from_millis(100));
    assert!(cell.letters.iter().any(|letter| letter.kind() == "Release"));
    cell.letters.clear();
    assert_eq!(stored(&mut cell), Some(leftover));
    // The next undo arrives.
    cell.pass(Duration::from_millis(200));
    let releases = cell.take(|letter| letter.kind() == "Release" && letter.to == cell::node(2));
    for release in &releases {
        cell.deliver(release).expect("released");
    }
    assert_ne!(stored(&mut cell), Some(leftover));
}

#[test]
fn a_round_without_a_refusal_is_repeated_and_not_given_up() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.letters.clear();
    let mut sent_at = Vec::new();
    for millis in 1..=1999 {
        cell.pass(Duration::from_millis(1));
        let kinds: Vec<_> = cell.take(|_| true).iter().map(Letter::kind).collect();
        assert!(kinds.iter().all(|kind| *kind == "Propose"), "{kinds:?}");
        if !kinds.is_empty() {
            sent_at.push(millis);
        }
    }
    let expected = [100, 200, 400, 650, 900, 1150, 1400, 1650, 1900];
    assert_eq!(sent_at, expected, "the pause doubles up to 250 ms");
    assert!(cell.answers(1).is_empty());
    cell.pass(Duration::from_millis(1));
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
}

#[test]
fn a_refused_round_is_given_up_after_a_few_round_trips() {
    let given_up = |cell: &TestCell| cell.letters.iter().any(|letter| letter.kind() == "Release");
    let mut cell = TestCell::new(3, 0);
    // Round trips are unknown.
    split(&mut cell, 1);
    cell.pass(Duration::from_millis(99));
    assert!(!given_up(&cell));
    cell.pass(Duration::from_millis(1));
    assert!(given_up(&cell));
    for _ in 0..30 {
        cell.settle();
        cell.pass(Duration::from_millis(100));
    }
    // Rounds are fast, so the shortest timeout applies.
    for token in 2..=15 {
        cell.settle();
        let last = cell.granted(token - 1).expect("granted");
        cell.release(1, 100 + token, last);
        cell.settle();
        cell.acquire(1, token, NO_WAIT);
    }
    cell.settle();
    let last = cell.granted(15).expect("granted");
    cell.release(1, 200, last);
    cell.settle();
    split(&mut cell, 16);
    cell.pass(Duration::from_millis(9));
    assert!(!given_up(&cell));
    cell.pass(Duration::from_millis(1));
    assert!(given_up(&cell));
    // Answers may be late, so the next round gets more time.
    cell.letters.clear();
    cell.pass(Duration::from_millis(2));
    assert!(cell.letters.iter().any(|letter| letter.kind() == "Prepare"), "a second attempt");
    let rounds = cell.shard(1).round_counts().prepared;
    cell.pass(Duration::from_millis(19));
    assert_eq!(cell.shard(1).round_counts().prepared, rounds);
}

#[test]
fn a_round_lasts_at_least_four_network_round_trips() {
    let mut cell = TestCell::new(3, 0);
    cell.shard(1).set_round_trip(Duration::from_millis(300));
    split(&mut cell, 1);
    cell.pass(Duration::from_millis(1199));
    assert!(cell.letters.is_empty(), "{:?}", cell.letters);
    cell.pass(Duration::from_millis(1));
    assert!(cell.letters.iter().any(|letter| letter.kind() == "Release"));
}
