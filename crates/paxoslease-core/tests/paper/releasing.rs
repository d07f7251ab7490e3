//! Sections 7 "Releasing leases" and 8 "Leases for many resources".

use crate::cell::{
    NAME, TTL, TestCell, acquire_command, ballot, name, node, propose, release, tenure,
};
use crate::{MS, NO_WAIT, WAIT};
use paxoslease_core::*;

/// Section 7: after a release, others acquire before the lease would expire.
#[test]
fn after_a_release_others_acquire_at_once() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.release(1, 2, held);
    cell.settle();
    cell.acquire(2, 3, NO_WAIT);
    cell.settle();
    assert!(cell.granted(3).is_some());
}

/// Section 7: any proposer may at any time send release messages for a ballot number.
#[test]
fn any_proposer_may_release() {
    let mut cell = TestCell::new(3, 1);
    let held = cell.held_by(1, 1);
    cell.release(4, 2, held);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Released { held: true, confirmed: true, .. }]));
    assert_eq!((cell.live(1), cell.live(2), cell.live(3)), (None, None, None));
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

/// Section 7: an acceptor whose accepted ballot number matches discards its state.
#[test]
fn a_matching_acceptor_discards_its_state() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    assert_eq!(cell.ask(1, 2, release(tenure(5, 2))).expect("an answer").kind(), "Released");
    assert_eq!(cell.register(1).accepted, None);
}

/// Section 7: the paper compares the accepted ballot number. Here renewals have ballots of their
/// own, so the tenure is compared (A6), and a release finds a renewed lease.
#[test]
fn a_release_finds_a_lease_that_was_renewed_since() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(2, 2, held, TTL);
    cell.settle();
    cell.release(1, 3, held);
    cell.settle();
    assert_eq!((cell.live(1), cell.live(2), cell.live(3)), (None, None, None));
}

/// Section 7: an acceptor with another accepted ballot number does nothing.
#[test]
fn an_acceptor_that_does_not_match_does_nothing() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    let before = cell.register(1);
    for stale in [tenure(4, 2), tenure(5, 3), tenure(6, 2)] {
        cell.ask(1, 2, release(stale)).expect("an answer");
        assert_eq!(cell.register(1), before, "{stale}");
    }
}

/// A6, which section 7 does not mention: a late Propose of the released round is refused.
#[test]
fn a_late_propose_of_a_released_round_is_refused() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    cell.ask(1, 2, release(tenure(5, 2))).expect("released");
    assert_eq!(cell.ask(1, 2, propose(ballot(5, 2))).expect("an answer").kind(), "Reject");
    assert_eq!(cell.live(1), None);
}

/// Section 7: release messages also go to other proposers as hints; waiters try at once.
#[test]
fn release_messages_are_hints_for_waiters() {
    let mut cell = TestCell::new(3, 2);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.acquire(4, 4, WAIT);
    cell.settle();
    cell.release(1, 5, held);
    cell.run(100 * MS);
    let next = [2, 4].iter().find_map(|token| cell.granted(*token)).expect("one of them");
    let id = next.ballot().node().expect("a node's").get();
    cell.release(id, 6, next);
    cell.run(100 * MS);
    assert!(cell.granted(2).is_some() && cell.granted(4).is_some());
}

/// P6, and promise 4 of docs/guarantees.md: after a confirmed release, the name is free at a
/// majority.
#[test]
fn a_release_is_confirmed_once_a_majority_freed_the_name() {
    for (members, majority) in [(2, 2), (3, 2), (4, 3), (5, 3)] {
        let mut cell = TestCell::new(members, 0);
        let held = cell.held_by(1, 1);
        cell.release(1, 2, held);
        for heard in 1.. {
            let freed = (1..=members).filter(|id| cell.live(*id).is_none()).count();
            assert_eq!(freed, heard, "this node first, then the others one by one");
            let is_confirmed = matches!(
                cell.answers(2)[..],
                [Event::Released { held: true, confirmed: true, .. }]
            );
            assert_eq!(is_confirmed, heard >= majority, "{heard} of {members}");
            assert!(is_confirmed || cell.answers(2).is_empty());
            let Some(release) = cell.letters.first().cloned() else { break };
            cell.letters.remove(0);
            cell.deliver(&release).expect("heard");
            for answer in cell.take(|letter| letter.kind() == "Released") {
                cell.deliver(&answer).expect("heard");
            }
        }
    }
}

/// Section 7, P6: a release without confirmations is repeated, and answered at the latest when the
/// lease would have expired.
#[test]
fn an_unconfirmed_release_is_repeated_and_then_answered() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.release(1, 2, held);
    let mut repeated = 0;
    for _ in 0..=TTL.as_millis() + 100 {
        repeated += cell.take(|letter| letter.kind() == "Release").len();
        cell.pass(MS);
    }
    assert!(repeated > 2);
    assert!(matches!(cell.answers(2)[..], [Event::Released { confirmed: false, .. }]));
}

/// Section 7: two requests for the same release are sent once.
#[test]
fn two_requests_for_one_release_are_both_answered() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.sent = 0;
    cell.release(1, 2, held);
    cell.release(1, 3, held);
    assert_eq!(cell.sent, 2);
    cell.settle();
    cell.release(1, 4, held);
    cell.settle();
    for token in 2..=4 {
        let answers = cell.answers(token);
        assert!(matches!(answers[..], [Event::Released { confirmed: true, .. }]), "{token}");
    }
}

/// The messages that another request for a release causes: none while it is remembered.
fn released_again(cell: &mut TestCell, token: u64, held: Tenure) -> usize {
    let before = cell.sent;
    cell.release(1, token, held);
    cell.sent - before
}

/// Section 7, P6: if a tenure is released during a renewal, late answers to the renewal neither
/// count nor heal. So the release is remembered even if all acceptors have confirmed it.
#[test]
fn a_release_is_remembered_while_a_renewal_is_in_flight() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    for letter in cell.take(|letter| letter.to == node(2)) {
        cell.deliver(&letter).expect("renewed there");
    }
    let accept = cell.take(|letter| letter.kind() == "Accept");
    let late = cell.take(|letter| letter.kind() == "Renew");
    cell.release(1, 3, held);
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    assert_eq!(released_again(&mut cell, 4, held), 0, "remembered, although all have confirmed");
    for letter in accept.iter().chain(&late) {
        cell.deliver(letter).expect("not refused");
    }
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::NotHeld { .. }]), "{:?}", cell.answers(2));
    assert_eq!((cell.live(1), cell.live(2), cell.live(3)), (None, None, None));
    cell.run(100 * MS);
    assert_ne!(released_again(&mut cell, 5, held), 0, "forgotten after an attempt");
}

/// Section 7, P6: without a renewal in flight, a release is remembered only for the acceptors that
/// have not confirmed it.
#[test]
fn a_release_is_forgotten_once_all_acceptors_confirmed() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    cell.settle();
    cell.release(1, 3, held);
    for letter in cell.take(|letter| letter.kind() == "Release") {
        cell.deliver(&letter).expect("released there");
    }
    let late = cell.take(|letter| letter.from == node(3));
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    assert_eq!(released_again(&mut cell, 4, held), 0, "one acceptor has not confirmed");
    for letter in &late {
        cell.deliver(letter).expect("not refused");
    }
    assert_ne!(released_again(&mut cell, 5, held), 0, "all acceptors have confirmed");
}

/// Section 8: every resource has an independent instance: leases and promises of one name do not
/// affect another.
#[test]
fn resources_are_independent() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let now = cell.now;
    let other = name("another");
    let acquire = Acquire { name: other, ..acquire_command(2, NO_WAIT, TTL) };
    cell.shard(2).acquire(now, acquire).expect("in bounds");
    cell.collect();
    cell.settle();
    let second = cell.granted(2).expect("no other request for this name");
    cell.release(2, 3, second);
    cell.settle();
    assert_eq!(cell.live(1), Some(held), "the release was of another name");
    let lease = cell.shard(1).lease(now, other).expect("still held");
    assert_eq!(lease.tenure, second);
}

/// Section 8: every message is tagged with the resource. A reply is tagged with its round, which
/// has one resource.
#[test]
fn every_request_is_tagged_with_its_resource() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    for letter in &cell.letters {
        let Message::Request(Request::Propose { name: tag, .. }) = letter.transmit.message() else {
            panic!("{letter:?}")
        };
        assert_eq!(tag, name(NAME));
    }
}

/// Section 8: an instance takes about 100 bytes. (A benchmark measures the exact figure.)
#[test]
fn an_instance_needs_no_more_than_about_100_bytes() {
    let mut config = Config::new(node(1), crate::cell::cell(1), 1);
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
