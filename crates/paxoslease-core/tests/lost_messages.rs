//! Lost messages, mainly Releases, and how nodes recover from that (protocol sections 4 and 7).

mod cell;

use core::time::Duration;

use cell::{Letter, MS, NO_WAIT, TTL, TestCell, WAIT, node};
use paxoslease_core::*;

/// Node 2 waits for the lease of node 1, and misses its Release.
fn missed_release(cell: &mut TestCell) -> Tenure {
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.release(1, 3, held);
    assert_eq!(cell.take(is_lost).len(), 1);
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    held
}

fn is_lost(letter: &Letter) -> bool {
    letter.kind() == "Release" && letter.to == node(2)
}

/// Passes time while every Release to node 2 is lost.
fn run_lossy(cell: &mut TestCell, span: Duration) {
    for _ in 0..span.as_millis() {
        cell.pass(MS);
        cell.take(is_lost);
        cell.settle();
    }
}

#[test]
fn an_old_report_of_a_holder_denies_no_request() {
    let mut cell = TestCell::new(3, 0);
    let held = missed_release(&mut cell);
    run_lossy(&mut cell, 900 * MS);
    assert_eq!((cell.live(1), cell.live(3)), (None, None), "free at a majority");
    assert_eq!(cell.granted(2), None);
    cell.acquire(2, 4, NO_WAIT);
    cell.settle();
    cell.run(10 * MS);
    let next = cell.granted(2).expect("the first in the queue, long before the ttl");
    assert!(next > held);
    assert_eq!(cell.denied_by(4), Some(next), "the new holder");
}

#[test]
fn a_waiter_retries_after_a_quarter_of_the_time_left() {
    let mut cell = TestCell::new(3, 0);
    missed_release(&mut cell);
    run_lossy(&mut cell, 2400 * MS);
    assert_eq!(cell.granted(2), None, "it does not poll");
    run_lossy(&mut cell, 800 * MS);
    assert!(cell.granted(2).is_some(), "well before the ttl: {:?}", cell.events);
}

#[test]
fn a_release_is_repeated_until_every_acceptor_confirmed_it() {
    let mut cell = TestCell::new(3, 0);
    let held = missed_release(&mut cell);
    assert_eq!(cell.live(2), Some(held), "it refuses others");
    cell.run(150 * MS);
    assert_eq!(cell.live(2).filter(|live| *live == held), None);
    assert!(cell.granted(2).is_some(), "and its waiter is granted: {:?}", cell.events);
}

#[test]
fn a_reconnected_acceptor_hears_of_a_release_it_missed() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    reach(&mut cell, 1, &[1, 3]);
    cell.release(1, 3, held);
    run_lossy(&mut cell, 3000 * MS);
    assert_eq!(cell.live(2), Some(held), "it missed the release");
    reach(&mut cell, 1, &[1, 2, 3]);
    reconnect(&mut cell, 1, &[2]);
    cell.settle();
    assert_eq!(cell.live(2), None);
}

#[test]
fn no_release_is_kept_for_an_acceptor_without_the_tenure() {
    let mut cell = TestCell::new(3, 0);
    reach(&mut cell, 1, &[1, 3]);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == node(2));
    cell.settle();
    let held = cell.granted(1).expect("by 1 and 3");
    cell.release(1, 3, held);
    run_lossy(&mut cell, 200 * MS);
    reach(&mut cell, 1, &[1, 2, 3]);
    reconnect(&mut cell, 1, &[2]);
    assert_eq!(cell.letters.len(), 0, "{:?}", cell.letters);
}

#[test]
fn a_request_is_repeated_to_a_reconnected_acceptor() {
    for phase in ["Prepare", "Propose", "Renew"] {
        let mut cell = TestCell::with(3, 0, |config| config.direct_rounds = phase != "Prepare");
        if phase == "Renew" {
            let held = cell.held_by(1, 1);
            cell.renew(1, 2, held, TTL);
        } else {
            cell.acquire(1, 2, NO_WAIT);
        }
        assert_eq!(cell.take(|letter| letter.kind() == phase).len(), 2, "both requests are lost");
        reconnect(&mut cell, 1, &[3]);
        cell.settle();
        let answers = cell.answers(2);
        let is_won = matches!(answers[..], [Event::Granted { .. } | Event::Renewed { .. }]);
        assert!(is_won, "{phase}: {answers:?}");
    }
}

#[test]
fn a_waiter_retries_soon_after_a_reconnect() {
    let mut cell = TestCell::new(3, 0);
    missed_release(&mut cell);
    run_lossy(&mut cell, 1000 * MS);
    assert!(cell.granted(2).is_none(), "it missed the Release");
    reconnect(&mut cell, 2, &[3]);
    run_lossy(&mut cell, 120 * MS);
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

fn reconnect(cell: &mut TestCell, id: u16, back: &[u16]) {
    let (now, back) = (cell.clock(id), members(cell, back));
    cell.shard(id).handle_reconnect(now, back);
    cell.collect();
}

#[test]
fn retries_after_reconnects_disturb_no_holder() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    for token in 100..200 {
        reconnect(&mut cell, 2, &[1]);
        cell.run(20 * MS);
        cell.renew(1, token, held, TTL);
        cell.settle();
        assert!(matches!(cell.answers(token)[..], [Event::Renewed { .. }]), "{:?}", cell.events);
    }
    let counts = cell.shard(2).round_counts();
    let rounds = (counts.direct + counts.prepared) - (before.direct + before.prepared);
    assert!((5..=20).contains(&rounds), "{rounds} rounds for 100 reconnects");
    assert!(cell.answers(2).is_empty(), "{:?}", cell.events);
    cell.release(1, 3, held);
    cell.run(10 * MS);
    assert!(cell.granted(2).is_some(), "granted at once: {:?}", cell.events);
}

#[test]
fn a_proposer_that_reconnects_makes_no_waiter_retry() {
    let mut cell = TestCell::new(3, 0);
    missed_release(&mut cell);
    let before = cell.shard(2).round_counts();
    for _ in 0..10 {
        reconnect(&mut cell, 2, &[]);
        run_lossy(&mut cell, 50 * MS);
    }
    assert_eq!(cell.shard(2).round_counts(), before);
}

#[test]
fn waiters_do_not_retry_without_a_reachable_majority() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    reach(&mut cell, 2, &[2]);
    reconnect(&mut cell, 2, &[1]);
    cell.run(300 * MS);
    assert_eq!(cell.shard(2).round_counts(), before);
}

#[test]
fn waiters_retry_with_a_bare_reachable_majority() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    reach(&mut cell, 2, &[1, 2]);
    reconnect(&mut cell, 2, &[1]);
    cell.run(300 * MS);
    assert_ne!(cell.shard(2).round_counts(), before);
}
