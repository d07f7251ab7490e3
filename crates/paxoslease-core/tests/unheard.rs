//! Messages that are lost, releases above all, and how they are made up for (protocol sections
//! 4 and 7).

mod cell;

use core::time::Duration;

use cell::{Letter, TTL, TestCell, node};
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
    assert_eq!(cell.take(is_unheard).len(), 1);
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    held
}

fn is_unheard(letter: &Letter) -> bool {
    letter.kind() == "Release" && letter.to == node(2)
}

/// Lets time pass while node 2 hears of no release.
fn run_unheard(cell: &mut TestCell, span: Duration) {
    for _ in 0..span.as_millis() {
        cell.pass(MS);
        cell.take(is_unheard);
        cell.settle();
    }
}

#[test]
fn nobody_is_denied_by_a_holder_that_was_heard_of_long_ago() {
    let mut cell = TestCell::new(3, 0);
    let held = freed_unheard(&mut cell);
    run_unheard(&mut cell, 900 * MS);
    assert_eq!((cell.live(1), cell.live(3)), (None, None), "free at a majority");
    assert_eq!(cell.granted(2), None);
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
fn a_waiter_that_hears_of_no_release_asks_again_within_a_quarter_of_what_was_left() {
    let mut cell = TestCell::new(3, 0);
    freed_unheard(&mut cell);
    run_unheard(&mut cell, 2400 * MS);
    assert_eq!(cell.granted(2), None, "it does not poll");
    run_unheard(&mut cell, 800 * MS);
    assert!(cell.granted(2).is_some(), "well before the ttl: {:?}", cell.events);
}

#[test]
fn a_release_is_repeated_until_every_acceptor_confirmed_it() {
    let mut cell = TestCell::new(3, 0);
    let held = freed_unheard(&mut cell);
    assert_eq!(cell.live(2), Some(held), "it keeps others out");
    cell.run(150 * MS);
    assert_eq!(cell.live(2).filter(|live| *live == held), None);
    assert!(cell.granted(2).is_some(), "and its waiter has its turn: {:?}", cell.events);
}

#[test]
fn an_acceptor_that_was_away_hears_of_a_release_when_it_is_back() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    reach(&mut cell, 1, &[1, 3]);
    cell.release(1, 3, held);
    run_unheard(&mut cell, 3000 * MS);
    assert_eq!(cell.live(2), Some(held), "it missed the release");
    reach(&mut cell, 1, &[1, 2, 3]);
    look_again(&mut cell, 1, &[2]);
    cell.settle();
    assert_eq!(cell.live(2), None);
}

#[test]
fn a_release_is_not_kept_for_an_acceptor_that_never_heard_of_the_tenure() {
    let mut cell = TestCell::new(3, 0);
    reach(&mut cell, 1, &[1, 3]);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == node(2));
    cell.settle();
    let held = cell.granted(1).expect("a majority is there");
    cell.release(1, 3, held);
    run_unheard(&mut cell, 200 * MS);
    reach(&mut cell, 1, &[1, 2, 3]);
    look_again(&mut cell, 1, &[2]);
    assert_eq!(cell.letters.len(), 0, "{:?}", cell.letters);
}

#[test]
fn a_request_that_an_acceptor_missed_is_repeated_when_it_is_back() {
    for phase in ["Prepare", "Propose", "Renew"] {
        let mut cell = TestCell::with(3, 0, |config| config.direct_rounds = phase != "Prepare");
        if phase == "Renew" {
            let held = cell.held_by(1, 1);
            cell.renew(1, 2, held, TTL);
        } else {
            cell.acquire(1, 2, NO_WAIT);
        }
        assert_eq!(cell.take(|letter| letter.kind() == phase).len(), 2, "both are lost");
        look_again(&mut cell, 1, &[3]);
        cell.settle();
        let answers = cell.answers(2);
        let is_won = matches!(answers[..], [Event::Granted { .. } | Event::Renewed { .. }]);
        assert!(is_won, "{phase}: {answers:?}");
    }
}

#[test]
fn a_waiter_that_missed_a_release_has_it_once_the_releaser_can_be_heard_again() {
    let mut cell = TestCell::new(3, 0);
    freed_unheard(&mut cell);
    run_unheard(&mut cell, 1000 * MS);
    assert!(cell.granted(2).is_none(), "it does not know");
    look_again(&mut cell, 2, &[]);
    run_unheard(&mut cell, 120 * MS);
    assert!(cell.granted(2).is_some(), "well before the ttl: {:?}", cell.events);
}

fn members(cell: &mut TestCell, ids: &[u16]) -> MemberSet {
    let cell = cell.shard(1).config().cell;
    let places = ids.iter().map(|id| cell.member(node(*id)).expect("a member"));
    places.fold(MemberSet::EMPTY, MemberSet::with)
}

fn reach(cell: &mut TestCell, id: u16, reachable: &[u16]) {
    let (now, reachable) = (cell.clock(id), members(cell, reachable));
    cell.shard(id).set_reachable(now, reachable);
    cell.collect();
}

fn look_again(cell: &mut TestCell, id: u16, back: &[u16]) {
    let (now, back) = (cell.clock(id), members(cell, back));
    cell.shard(id).handle_reconnect(now, back);
    cell.collect();
}

#[test]
fn looking_again_disturbs_no_holder_and_whoever_waits_goes_on_waiting() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    for token in 100..200 {
        look_again(&mut cell, 2, &[1]);
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
    reach(&mut cell, 2, &[2]);
    look_again(&mut cell, 2, &[]);
    cell.run(300 * MS);
    assert_eq!(cell.shard(2).round_counts(), before);
}
