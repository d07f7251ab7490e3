//! Releases that somebody who waits does not hear of (protocol section 7).

mod cell;

use core::time::Duration;

use cell::{TTL, TestCell, node};
use paxoslease_core::*;

const NO_WAIT: Duration = Duration::ZERO;
const WAIT: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// Node 2 waits for what node 1 holds, and does not hear that it is given back.
fn freed_unheard(cell: &mut TestCell) -> Tenure {
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.release(1, 3, held);
    let lost = cell.take(|letter| letter.kind() == "Release" && letter.to == node(2));
    assert_eq!(lost.len(), 1);
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    held
}

#[test]
fn nobody_is_denied_by_a_holder_that_was_heard_of_long_ago() {
    let mut cell = TestCell::new(3, 0);
    let held = freed_unheard(&mut cell);
    cell.run(1000 * MS);
    assert_eq!((cell.live(1), cell.live(3)), (None, None), "free for a second at a majority");
    cell.acquire(2, 4, NO_WAIT);
    cell.settle();
    cell.run(10 * MS);
    let next = cell.granted(2).expect("first come, and long before the ttl");
    assert!(next > held);
    match cell.answers(4)[..] {
        [Event::Denied { by, .. }] => assert_eq!(by.tenure, next, "who holds it now"),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn losing_the_word_of_a_release_costs_a_waiter_the_rest_of_the_ttl_at_most() {
    let mut cell = TestCell::new(3, 0);
    freed_unheard(&mut cell);
    cell.run(TTL + 5 * MS);
    assert!(cell.granted(2).is_some(), "{:?}", cell.events);
}

#[test]
fn a_waiter_that_missed_a_release_has_it_once_the_releaser_can_be_heard_again() {
    let mut cell = TestCell::new(3, 0);
    freed_unheard(&mut cell);
    cell.run(1000 * MS);
    assert!(cell.granted(2).is_none(), "it does not know");
    let now = cell.clock(2);
    cell.shard(2).look_again(now);
    cell.run(120 * MS);
    assert!(cell.granted(2).is_some(), "well before the ttl: {:?}", cell.events);
}

#[test]
fn looking_again_disturbs_no_holder_and_whoever_waits_goes_on_waiting() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    for token in 100..200 {
        let now = cell.clock(2);
        cell.shard(2).look_again(now);
        cell.run(20 * MS);
        cell.renew(1, token, held, TTL);
        cell.settle();
        assert!(matches!(cell.answers(token)[..], [Event::Renewed { .. }]), "{:?}", cell.events);
    }
    let counts = cell.shard(2).round_counts();
    let rounds = (counts.direct + counts.prepared) - (before.direct + before.prepared);
    assert!((5..=20).contains(&rounds), "{rounds}: it looked, and not whenever it was told to");
    assert!(cell.answers(2).is_empty(), "{:?}", cell.events);
    cell.release(1, 3, held);
    cell.run(10 * MS);
    assert!(cell.granted(2).is_some(), "and is the next at once: {:?}", cell.events);
}

#[test]
fn nobody_looks_again_where_no_majority_could_answer() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    let (now, own) = (cell.clock(2), cell.shard(2).config().cell.member(node(2)));
    let alone = MemberSet::EMPTY.with(own.expect("a member"));
    cell.shard(2).set_reachable(now, alone);
    cell.shard(2).look_again(now);
    cell.run(300 * MS);
    assert_eq!(cell.shard(2).round_counts(), before);
}
