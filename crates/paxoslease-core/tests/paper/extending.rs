//! Section 6 "Extending leases". The paper proposes again; we renew a tenure (P5, A4).

use crate::cell::{self, TTL, TestCell, ballot, node, prepare, propose, renew, tenure, ttl};
use crate::{MS, NO_WAIT, WAIT};
use paxoslease_core::*;

/// Section 6: a holder can hold on to the lease beyond its original time, without a limit.
#[test]
fn a_holder_can_hold_on_beyond_the_original_lease_time() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    for token in 10..20 {
        cell.run(TTL / 2);
        cell.renew(1, token, held, TTL);
        cell.settle();
        assert!(matches!(cell.answers(token)[..], [Event::Renewed { .. }]));
        assert!(cell.belief(1).expect("granted").is_held(cell.now));
    }
    assert_eq!(cell.granted(2), None);
}

/// Section 6: with its existing proposal unexpired at a majority, it may extend, even if others
/// have prepared: they cannot win while the lease is live, so they must not disturb it (A4).
#[test]
fn an_extension_succeeds_despite_promises_to_others() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    for id in 1..=3 {
        cell.ask(id, 9, prepare(ballot(99, 9))).expect("promised");
    }
    for id in 2..=3 {
        let letter = cell.ask(id, 1, renew(held, ballot(50, 1))).expect("an answer");
        assert_eq!(letter.kind(), "Accept");
        assert_eq!(cell.register(id).promised, ballot(99, 9), "A4: the higher of the two");
    }
}

/// Section 6: the paper counts empty acceptors too. Ours renew only a live tenure (A4), and the
/// others are healed once a majority has it (A5). Otherwise a lapsed tenure could return.
#[test]
fn an_extension_needs_a_majority_that_still_has_the_lease() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.pass(TTL);
    cell.renew(1, 2, held, TTL);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::NotHeld { .. }]));
    assert_eq!((cell.live(1), cell.live(2)), (None, None), "empty acceptors stay empty");
}

/// Section 6: the extension is counted from its own start, and a failed one changes nothing (P5).
#[test]
fn an_extension_adds_to_the_lease_from_its_own_start() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.pass(TTL / 2);
    let begun_at = cell.now;
    cell.renew(1, 2, held, TTL);
    cell.pass(MS);
    cell.settle();
    assert_eq!(cell.belief(1).expect("granted").ends_at(), begun_at.after(TTL));
    cell.renew(1, 3, held, TTL);
    for _ in 0..3000 {
        assert!(
            cell.take(|_| true).iter().all(|letter| letter.kind() == "Renew"),
            "it is not undone"
        );
        cell.pass(MS);
    }
    assert!(matches!(cell.answers(3)[..], [Event::NoQuorum { .. }]));
    assert_eq!(cell.belief(1).expect("granted").ends_at(), begun_at.after(TTL));
    assert_eq!(cell.live(2), Some(held));
}

/// Section 6 does not mention shorter extensions. A4 keeps the later expiry, or two could hold it.
#[test]
fn a_shorter_extension_never_shortens_the_exclusion() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let before = cell.register(2).accepted.expect("stored").expires_at;
    cell.renew(1, 2, held, TTL / 10);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Renewed { .. }]));
    assert_eq!(cell.register(2).accepted.expect("stored").expires_at, before);
    assert_eq!(cell.belief(1).expect("granted").ends_at(), before);
}

/// Section 6: a proposer extends its own lease. Ours is identified by tenure, not by proposer (P5):
/// a new round of the same proposer is another tenure with another fence.
#[test]
fn an_extension_is_of_one_tenure_not_of_its_proposer() {
    let mut cell = TestCell::new(3, 0);
    let first = cell.held_by(1, 1);
    cell.release(1, 2, first);
    cell.settle();
    let second = cell.held_by(1, 3);
    let before = cell.register(2);
    let letter = cell.ask(2, 1, renew(first, ballot(50, 1))).expect("an answer");
    assert_eq!(letter.kind(), "NotHeld");
    assert_eq!(cell.register(2), before);
    assert!(second > first);
}

/// Section 6: each extension has a ballot of its own (P5), so that old accepts do not count for a
/// new timer.
#[test]
fn every_extension_has_a_fresh_ballot_and_keeps_the_fence() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let mut ballots = vec![held.ballot()];
    for token in 2..=4 {
        cell.renew(1, token, held, TTL);
        ballots.push(cell.shard(1).rounds().next().expect("a round").ballot);
        cell.settle();
        assert_eq!(cell.live(2), Some(held));
    }
    assert!(ballots.is_sorted_by(|a, b| a < b), "{ballots:?}");
}

/// Section 6: the paper lets the proposer extend. Here any node may do it (P7), so that a client
/// whose node died can continue through another.
#[test]
fn any_node_may_extend_for_the_holder() {
    let mut cell = TestCell::new(3, 1);
    let held = cell.held_by(1, 1);
    for (id, token) in [(2, 2), (4, 3)] {
        cell.renew(id, token, held, TTL);
        cell.take(|letter| letter.to == node(1));
        cell.settle();
        assert!(matches!(cell.answers(token)[..], [Event::Renewed { .. }]));
    }
}

/// Section 6, P5: a lease outlives any number of restarts, if only a minority restarts at a time.
#[test]
fn a_lease_that_is_extended_outlives_restarts_of_every_acceptor() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let settle = |cell: &mut TestCell| {
        for _ in 0..300 {
            cell.settle();
            cell.write_records();
            cell.pass(MS);
        }
    };
    settle(&mut cell);
    let held = cell.granted(1).expect("granted");
    let mut token = 10;
    for id in [3, 2, 1] {
        cell.crash(id);
        cell.write_records();
        for _ in 0..4 {
            cell.pass(TTL / 3);
            token += 1;
            cell.renew(if id == 2 { 3 } else { 2 }, token, held, TTL);
            settle(&mut cell);
            let renewed = matches!(cell.answers(token)[..], [Event::Renewed { .. }]);
            assert!(renewed, "while {id} was in quarantine: {:?}", cell.answers(token));
        }
        assert_eq!(cell.live(id), Some(held), "{id} is healed");
    }
}

/// Section 6: an extension is bounded by M, like an acquire (A1).
#[test]
fn an_extension_is_no_longer_than_m() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let (name, now) = (cell::name(cell::NAME), cell.now);
    let (token, holder) = (Token(2), Holder::NONE);
    let renew = Renew { token, name, holder, tenure: held, ttl: WAIT + MS };
    let refused = cell.shard(1).renew(now, renew);
    assert!(matches!(refused, Err(CommandError::Ttl(_))));
    let request = Request::Renew { name, tenure: held, ballot: ballot(8, 2), ttl: ttl(WAIT + MS) };
    assert_eq!(cell.tell(1, 2, Message::Request(request)), Err(Refusal::TtlTooLong));
}

/// Section 6, A5: a Heal stores nothing where a higher tenure is live or a higher ballot was
/// promised. A lower tenure is over for good, so a Heal replaces it.
#[test]
fn a_heal_displaces_only_lower_tenures_and_promises() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    cell.ask(2, 2, prepare(ballot(9, 2))).expect("promised");
    for id in [1, 2] {
        let before = cell.register(id);
        let healed = cell.ask(id, 3, cell::heal(tenure(1, 3), ballot(7, 3)));
        assert!(healed.is_none(), "a Heal has no answer");
        assert_eq!(cell.register(id), before);
    }
    cell.ask(1, 3, cell::heal(tenure(6, 3), ballot(7, 3)));
    assert_eq!(cell.live(1), Some(tenure(6, 3)));
    assert_eq!(cell.register(1).promised, ballot(7, 3));
}
