//! Schedules in which waiting, turns or repeated messages once went wrong, with an honest or a
//! hostile node (protocol section 7).

mod cell;

use core::time::Duration;

use cell::{
    MS, NAME, NO_WAIT, TTL, TestCell, WAIT, ballot, heal, name, node, release, tenure, ttl,
};
use paxoslease_core::*;

const SECOND: Duration = Duration::from_secs(1);

/// Delivers all messages except those to or from a node.
fn settle_without(cell: &mut TestCell, id: u16) {
    while !cell.letters.is_empty() {
        let letter = cell.letters.remove(0);
        if letter.to != node(id) && letter.from != node(id) {
            let _refused = cell.deliver(&letter);
        }
    }
}

/// Passes time until a request is answered, and returns how long that took.
fn answered_after(cell: &mut TestCell, token: u64, at_most: Duration) -> Duration {
    let began_at = cell.now;
    loop {
        cell.settle();
        let took = cell.now.since(began_at);
        if !cell.answers(token).is_empty() || took > at_most {
            return took;
        }
        cell.pass(MS);
    }
}

#[test]
fn the_next_waiter_retries_like_the_first() {
    for first_wait in [NO_WAIT, 500 * MS] {
        let mut cell = TestCell::new(3, 0);
        cell.acquire_for(1, 1, NO_WAIT, WAIT);
        cell.settle();
        let held = cell.granted(1).expect("granted");
        cell.acquire(2, 2, first_wait);
        cell.acquire(2, 3, WAIT * 2);
        cell.settle();
        cell.run(SECOND);
        // The Release does not arrive at node 2, which would otherwise wait for a minute.
        cell.release(1, 9, held);
        let began_at = cell.now;
        while cell.granted(3).is_none() && cell.now.since(began_at) < WAIT {
            cell.take(|letter| letter.kind() == "Release" && letter.to == node(2));
            cell.settle();
            cell.pass(MS);
        }
        let waited = cell.now.since(began_at);
        assert!(waited < Duration::from_millis(4200), "{waited:?} behind {first_wait:?}");
    }
}

/// Node 1 holds the name, other nodes try without waiting, then node 1 releases and tries again.
fn try_again(turn_trip: Duration, held_for: Duration, others: &[u16]) -> TestCell {
    let mut cell = TestCell::new(5, 0);
    for id in 1..=5 {
        cell.shard(id).set_round_trip(MS);
        cell.shard(id).set_turn_trip(turn_trip);
    }
    cell.acquire_for(1, 1, NO_WAIT, held_for);
    cell.settle();
    let held = cell.granted(1).expect("granted");
    for id in others {
        cell.acquire_for(*id, 100 + u64::from(*id), NO_WAIT, held_for);
        cell.settle();
    }
    cell.release(1, 2, held);
    cell.settle();
    cell.acquire_for(1, 3, NO_WAIT, held_for);
    cell
}

#[test]
fn turns_of_other_nodes_cost_a_request_no_round() {
    for (turn_trip, held_for, others) in [
        (300 * MS, TTL, &[2, 3][..]),
        (600 * MS, TTL, &[2][..]),
        (20 * MS, 50 * MS, &[2][..]),
        (300 * MS, 2 * SECOND, &[2, 3][..]),
    ] {
        let mut cell = try_again(turn_trip, held_for, others);
        answered_after(&mut cell, 3, 10 * SECOND);
        assert!(cell.granted(3).is_some(), "{turn_trip:?}: {:?}", cell.answers(3));
    }
}

#[test]
fn a_try_is_denied_once_a_waiter_has_taken_its_turn() {
    let mut cell = TestCell::new(5, 0);
    for id in 1..=5 {
        cell.shard(id).set_round_trip(MS);
        cell.shard(id).set_turn_trip(600 * MS);
    }
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.release(1, 3, held);
    cell.acquire(1, 4, NO_WAIT);
    let took = answered_after(&mut cell, 4, 10 * SECOND);
    assert!(matches!(cell.answers(4)[..], [Event::Denied { .. }]), "{:?}", cell.answers(4));
    assert!(took < 100 * MS, "{took:?}");
}

#[test]
fn a_renewal_does_not_heal_a_tenure_released_elsewhere() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    // Node 2 has lost the lease.
    cell.tell(2, 1, Message::Request(release(held))).expect("taken");
    cell.letters.clear();
    // A renewal through node 1: the answer of node 3 is late.
    cell.renew(1, 2, held, TTL);
    for letter in cell.take(|letter| letter.kind() == "Renew") {
        cell.deliver(&letter).expect("taken");
    }
    let late = cell.take(|letter| letter.from == node(3) && letter.kind() == "Accept");
    assert_eq!(late.len(), 1);
    cell.settle();
    // The client releases through node 2, and nodes 1 and 2 confirm.
    cell.release(2, 3, held);
    cell.take(|letter| letter.kind() == "Release" && letter.to == node(3));
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    cell.deliver(&late[0]).expect("taken");
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::NotHeld { .. }]), "{:?}", cell.answers(2));
    assert_eq!((cell.live(1), cell.live(2)), (None, None));
}

#[test]
fn invented_releases_do_not_crowd_out_an_honest_one() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire_for(1, 1, NO_WAIT, WAIT);
    cell.settle();
    let held = cell.granted(1).expect("granted");
    let members = cell.shard(1).config().cell;
    let (everyone, third) = (members.everyone(), members.member(node(3)).expect("a member"));
    let now = cell.now;
    for id in 1..=2 {
        cell.shard(id).set_reachable(now, everyone.without(third));
    }
    for number in 0..17_000 {
        let now = cell.now;
        let made_up = tenure(100 + number, 2);
        cell.shard(1).release(now, Token(1 << 40), name("x"), made_up, SECOND).expect("taken");
        cell.collect();
        settle_without(&mut cell, 3);
        cell.events.clear();
        if number % 1000 == 0 {
            cell.pass(200 * MS);
        }
    }
    cell.release(1, 9, held);
    settle_without(&mut cell, 3);
    for _ in 0..40 {
        cell.pass(50 * MS);
        settle_without(&mut cell, 3);
    }
    assert_eq!(cell.live(3), Some(held), "it missed the Release");
    let now = cell.now;
    for id in 1..=2 {
        cell.shard(id).set_reachable(now, everyone);
        cell.shard(id).handle_reconnect(now, third);
    }
    cell.collect();
    cell.run(2 * SECOND);
    assert_eq!(cell.live(3), None);
}

#[test]
fn a_repeated_propose_is_undone_where_it_was_refused_first() {
    let mut cell = TestCell::new(3, 1);
    let short = Duration::from_millis(300);
    for id in 1..=3 {
        let (ballot, ttl) = (ballot(1, 2), ttl(short));
        let lease = Request::Propose { name: name(NAME), ballot, ttl, holder: Holder::NONE };
        cell.tell(id, 2, Message::Request(lease)).expect("taken");
    }
    cell.letters.clear();
    // The Propose is refused; when the lease has expired, the repeated Propose is accepted. The
    // answers arrive together, the refusals first.
    cell.acquire(4, 1, WAIT);
    let expired_at = cell.now.after(short);
    for letter in cell.take(|letter| letter.kind() == "Propose") {
        cell.deliver(&letter).expect("taken");
    }
    let mut late = cell.take(|letter| letter.kind() == "Reject");
    let mut repeated = 0;
    while repeated < 2 && cell.now < expired_at.after(5 * SECOND) {
        cell.pass(MS);
        let again = cell.take(|letter| letter.kind() == "Propose");
        if cell.now > expired_at {
            for letter in again {
                repeated += 1;
                cell.deliver(&letter).expect("taken");
            }
        }
        late.extend(cell.take(|letter| letter.kind() == "Reject" || letter.kind() == "Accept"));
    }
    assert!(repeated >= 2);
    for letter in late {
        let _refused = cell.deliver(&letter);
    }
    let took = answered_after(&mut cell, 1, 20 * SECOND);
    assert!(cell.granted(1).is_some() && took < SECOND, "{took:?}");
}

#[test]
fn a_heal_does_not_use_up_the_turn_of_its_node() {
    let mut cell = TestCell::new(3, 2);
    let held = cell.held_by(1, 1);
    for (id, token) in [(4, 2), (5, 3)] {
        cell.acquire(id, token, WAIT);
        cell.settle();
        cell.run(MS);
    }
    for id in 1..=3 {
        cell.tell(id, 4, Message::Request(heal(held, ballot(50, 4)))).expect("taken");
    }
    cell.letters.clear();
    // The headers of frames carry the counters.
    for id in 4..=5 {
        cell.shard(id).observe_counter(50).expect("in bounds");
    }
    cell.release(1, 9, held);
    answered_after(&mut cell, 2, SECOND);
    assert!(cell.granted(2).is_some() && cell.granted(3).is_none());
}

#[test]
fn hints_do_not_keep_a_try_from_its_answer() {
    let mut cell = TestCell::new(3, 1);
    cell.held_by(1, 1);
    cell.acquire(2, 2, NO_WAIT);
    for _ in 0..200 {
        let freed = Hint::Freed { name: name(NAME), nodes_before: 0 };
        cell.tell(2, 4, Message::Hint(freed)).expect("taken");
        cell.settle();
        cell.pass(MS);
    }
    assert!(matches!(cell.answers(2)[..], [Event::Denied { .. }]), "{:?}", cell.answers(2));
}
