//! Acquires that are not granted at once: queues, waits, turns, hints, and clients that leave
//! (protocol sections 4 and 7).

mod cell;

use core::time::Duration;

use cell::{
    MS, NAME, NO_WAIT, TTL, TestCell, WAIT, acquire_command, ballot, name, node, propose, release,
    tenure,
};
use paxoslease_core::*;

fn abandon(cell: &mut TestCell, id: u16, token: u64) -> bool {
    let now = cell.clock(id);
    let open = cell.shard(id).abandon(now, name(NAME), Token(token));
    cell.collect();
    open
}

#[test]
fn a_denied_acquire_does_not_wake_other_waiters() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    cell.acquire(3, 3, NO_WAIT);
    cell.settle();
    cell.run(5 * MS);
    assert!(matches!(cell.answers(3)[..], [Event::Denied { .. }]));
    assert_eq!(cell.shard(2).round_counts(), before, "the name was not freed");
}

#[test]
fn a_waiter_does_not_wait_for_a_released_tenure() {
    let mut cell = TestCell::new(3, 0);
    let tenure = cell.held_by(1, 1);
    cell.acquire(1, 2, WAIT);
    cell.settle();
    cell.release(1, 3, tenure);
    // The Release is lost; the waiter's own Propose, sent with it, arrives.
    assert_eq!(cell.take(|letter| letter.kind() == "Release").len(), 2);
    cell.settle();
    cell.run(400 * MS);
    assert!(cell.granted(2).is_some(), "well before the ttl: {:?}", cell.events);
}

#[test]
fn after_no_quorum_the_next_in_the_queue_tries() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.pass(Duration::from_secs(1));
    cell.acquire(1, 2, NO_WAIT);
    for _ in 0..1500 {
        cell.letters.clear();
        cell.pass(MS);
    }
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
    assert!(cell.answers(2).is_empty(), "its deadline has not passed");
    cell.run(300 * MS);
    assert!(cell.granted(2).is_some());
    assert_eq!(cell.shard(1).waiters(), 0);
}

#[test]
fn a_queued_request_is_answered_at_its_own_deadline() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, WAIT);
    cell.acquire(1, 2, NO_WAIT);
    for _ in 0..2100 {
        cell.letters.clear();
        cell.pass(MS);
    }
    assert!(matches!(cell.answers(2)[..], [Event::NoQuorum { .. }]));
    assert!(cell.answers(1).is_empty());
    cell.run(300 * MS);
    assert!(cell.granted(1).is_some());
}

#[test]
fn requests_with_the_same_deadline_are_all_answered() {
    let mut cell = TestCell::new(3, 0);
    for token in 1..=4 {
        cell.acquire(1, token, NO_WAIT);
    }
    cell.letters.clear();
    cell.pass(Duration::from_secs(3));
    cell.letters.clear();
    cell.pass(Duration::from_secs(3));
    for token in 1..=4 {
        assert!(matches!(cell.answers(token)[..], [Event::NoQuorum { .. }]), "{token}");
    }
    assert_eq!(cell.shard(1).waiters(), 0);
    assert_eq!(cell.shard(1).rounds().count(), 0);
}

#[test]
fn only_a_later_round_denies_a_request_that_does_not_wait() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.pass(MS);
    cell.acquire(2, 3, NO_WAIT);
    assert!(cell.answers(3).is_empty(), "the known holder may be out of date");
    // These requests come during that round and share the next one.
    cell.pass(MS);
    cell.acquire(2, 4, NO_WAIT);
    cell.acquire(2, 5, NO_WAIT);
    cell.settle();
    for token in 3..=5 {
        assert_eq!(cell.denied_by(token), Some(held), "{token}");
    }
    assert_eq!(cell.shard(2).round_counts().direct, 3);
    assert_eq!(cell.live(1), Some(held), "the lease is still live");
    assert_eq!(cell.shard(2).waiters(), 1);
}

#[test]
fn a_confirmed_release_denies_no_later_request() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.release(1, 3, held);
    cell.take(|letter| letter.kind() == "Release" && letter.to == node(2));
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    cell.pass(MS);
    cell.acquire(2, 4, NO_WAIT);
    cell.settle();
    cell.run(5 * MS);
    for event in cell.answers(4) {
        assert!(!matches!(event, Event::Denied { by, .. } if by.tenure == held), "{event:?}");
    }
}

#[test]
fn an_expired_lease_denies_no_request() {
    let short = 50 * MS;
    let mut cell = TestCell::new(3, 0);
    cell.acquire_for(1, 1, NO_WAIT, short);
    cell.settle();
    cell.acquire(2, 2, WAIT);
    cell.settle();
    assert!(cell.granted(1).is_some() && cell.granted(2).is_none());
    cell.now = cell.now.after(short + MS);
    cell.acquire(2, 3, NO_WAIT);
    assert!(cell.answers(3).is_empty(), "a round asks for it: {:?}", cell.answers(3));
    cell.settle();
    let next = cell.granted(2).expect("it is free");
    assert_eq!(cell.denied_by(3), Some(next));
}

#[test]
fn an_ended_wait_is_denied_and_a_new_request_begins_a_round() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, 3000 * MS);
    cell.settle();
    cell.release(1, 3, held);
    cell.take(|letter| letter.kind() == "Release" && letter.to == node(2));
    cell.settle();
    // No wake-up fires meanwhile.
    cell.now = cell.now.after(4000 * MS);
    cell.acquire(2, 4, NO_WAIT);
    cell.settle();
    cell.pass(Duration::ZERO);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Denied { .. }]), "{:?}", cell.answers(2));
    assert!(cell.granted(4).is_some(), "{:?}", cell.answers(4));
    assert_eq!(cell.shard(2).waiters(), 0);
}

#[test]
fn every_wait_ends_at_its_own_time() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, Duration::from_secs(4));
    cell.acquire(2, 3, Duration::from_secs(3));
    cell.acquire(2, 4, Duration::from_secs(5));
    cell.settle();
    let denied = |cell: &TestCell| -> Vec<u64> {
        (2..=4).filter(|token| matches!(cell.answers(*token)[..], [Event::Denied { .. }])).collect()
    };
    cell.run(Duration::from_millis(3001));
    assert_eq!(denied(&cell), [3]);
    cell.run(Duration::from_secs(1));
    assert_eq!(denied(&cell), [2, 3]);
    cell.run(Duration::from_secs(1));
    assert_eq!(denied(&cell), [2, 3, 4]);
    assert_eq!(cell.shard(2).waiters(), 0);
}

#[test]
fn a_wait_that_ends_between_two_rounds_ends_on_time() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, 500 * MS);
    cell.settle();
    cell.run(499 * MS);
    assert!(cell.answers(2).is_empty(), "{:?}", cell.events);
    cell.run(2 * MS);
    assert!(matches!(cell.answers(2)[..], [Event::Denied { .. }]), "{:?}", cell.events);
}

#[test]
fn after_a_pause_the_next_waiter_has_its_full_time() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire_for(1, 1, NO_WAIT, Duration::from_secs(1));
    cell.settle();
    cell.acquire(2, 2, 1500 * MS);
    cell.acquire(2, 3, WAIT);
    cell.settle();
    // No wake-up fires before the lease and the wait of the first request are over.
    cell.pass(Duration::from_secs(5));
    cell.settle();
    cell.run(10 * MS);
    assert_eq!(cell.answers(2).len(), 1);
    assert!(cell.granted(3).is_some(), "{:?}", cell.events);
}

#[test]
fn a_queued_request_is_not_given_up_before_its_deadline() {
    let start = Start::NewCell { counter: 0, disk: true };
    let mut cell = TestCell::started(3, 0, |_| {}, start);
    cell.acquire(1, 1, WAIT);
    cell.acquire(1, 2, NO_WAIT);
    cell.pass(MS);
    assert!(cell.answers(2).is_empty(), "the first has no ballot yet: {:?}", cell.events);
    for _ in 0..20 {
        cell.write_records();
        cell.pass(MS);
        cell.settle();
    }
    assert!(cell.granted(1).is_some());
    assert!(matches!(cell.answers(2)[..], [Event::Denied { .. }]), "{:?}", cell.events);
}

#[test]
fn a_grant_denies_queued_requests_that_do_not_wait() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.acquire(1, 2, NO_WAIT);
    cell.acquire(1, 3, WAIT);
    cell.settle();
    let tenure = cell.granted(1).expect("first come");
    assert_eq!(cell.denied_by(2), Some(tenure));
    assert_eq!(cell.shard(1).waiters(), 1);
    cell.run(TTL + 5 * MS);
    assert!(cell.granted(3).is_some());
}

#[test]
fn a_client_that_leaves_during_its_round_holds_nothing() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let letters = cell.take(|_| true);
    for letter in &letters {
        cell.deliver(letter).expect("not refused");
    }
    assert!(abandon(&mut cell, 1, 1));
    cell.settle();
    assert_eq!(cell.answers(1).len(), 0, "the client has left");
    assert_eq!((cell.live(1), cell.live(2), cell.live(3)), (None, None, None));
    assert_eq!((cell.shard(1).rounds().count(), cell.shard(1).waiters()), (0, 0));
}

#[test]
fn the_next_waiter_races_when_the_first_leaves_its_round() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.acquire(1, 2, NO_WAIT);
    assert!(abandon(&mut cell, 1, 1));
    cell.settle();
    assert!(cell.granted(2).is_some());
}

#[test]
fn the_next_waiter_waits_on_when_the_first_leaves() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.acquire(2, 3, WAIT);
    cell.settle();
    assert!(abandon(&mut cell, 2, 2));
    assert_eq!(cell.shard(2).waiters(), 1);
    assert_eq!(cell.letters.len(), 0, "the holder is known: {:?}", cell.letters);
    cell.run(TTL + 5 * MS);
    assert_eq!(cell.granted(2), None);
    assert!(cell.granted(3).is_some());
}

#[test]
fn a_client_that_leaves_during_a_renewal_keeps_its_lease() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    assert!(!abandon(&mut cell, 1, 2), "P8: only a fresh round is undone");
    cell.settle();
    assert_eq!([1, 2, 3].map(|id| cell.live(id)), [Some(held); 3]);
}

#[test]
fn a_client_that_left_the_queue_is_never_served() {
    let mut cell = TestCell::new(3, 0);
    for token in 1..=3 {
        cell.acquire(1, token, WAIT);
    }
    assert!(abandon(&mut cell, 1, 2));
    cell.settle();
    let tenure = cell.granted(1).expect("first");
    cell.release(1, 9, tenure);
    cell.settle();
    assert!(cell.granted(3).is_some());
    assert_eq!(cell.answers(2).len(), 0);
}

#[test]
fn only_an_open_request_can_be_abandoned_once() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    assert!(!abandon(&mut cell, 1, 1), "it was answered, so its lease must be released");
    cell.acquire(2, 2, WAIT);
    cell.settle();
    assert!(!abandon(&mut cell, 2, 99));
    let now = cell.now;
    assert!(!cell.shard(2).abandon(now, name("another"), Token(2)));
    assert!(abandon(&mut cell, 2, 2));
    assert!(!abandon(&mut cell, 2, 2));
    assert_eq!(cell.live(1), cell.granted(1), "the lease is still live");
}

#[test]
fn a_freed_hint_wakes_only_waiters() {
    let mut cell = TestCell::new(3, 1);
    let freed = Message::Hint(Hint::Freed { name: name(NAME), nodes_before: 1 });
    cell.tell(4, 1, freed).expect("a hint is never refused");
    cell.acquire(4, 1, NO_WAIT);
    let before = cell.state(4);
    cell.tell(4, 1, freed).expect("a hint is never refused");
    assert_eq!(cell.state(4), before, "its round is in flight");
    cell.settle();
    assert!(cell.granted(1).is_some());
}

#[test]
fn a_release_that_overtakes_the_rejects_is_not_missed() {
    let mut cell = TestCell::new(3, 0);
    let tenure = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    for letter in cell.take(|letter| letter.kind() == "Propose") {
        cell.deliver(&letter).expect("an acceptor");
    }
    let rejects = cell.take(|letter| letter.to == node(2));
    assert_eq!(rejects.len(), 2, "both report the holder");
    cell.release(1, 3, tenure);
    cell.settle();
    for letter in rejects {
        cell.deliver(&letter).expect("an answer");
    }
    cell.settle();
    cell.run(50 * MS);
    assert!(cell.granted(2).is_some(), "well before the ttl: {:?}", cell.events);
}

/// The acceptors reject the proposal in flight. Returns their rejects, not delivered yet.
fn rejects(cell: &mut TestCell) -> Vec<cell::Letter> {
    for letter in cell.take(|letter| letter.kind() == "Propose") {
        cell.deliver(&letter).expect("an acceptor");
    }
    let rejects = cell.take(|letter| letter.kind() == "Reject");
    assert_eq!(rejects.len(), 2, "both report the holder");
    rejects
}

#[test]
fn losing_to_a_tenure_that_was_just_released_races_again() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(1, 2, WAIT);
    let rejects = rejects(&mut cell);
    cell.release(1, 3, held);
    for letter in rejects {
        cell.deliver(&letter).expect("an answer");
    }
    cell.settle();
    assert!(cell.granted(2).is_some(), "no time has passed: {:?}", cell.events);
}

#[test]
fn a_round_that_overtakes_a_release_backs_off() {
    let mut cell = TestCell::new(3, 1);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    let rounds = |cell: &mut TestCell| {
        let counts = cell.shard(2).round_counts();
        counts.direct + counts.prepared
    };
    let first = rejects(&mut cell);
    // Node 4 sends the Release, which arrives at node 2 first.
    cell.release(4, 3, held);
    let late = cell.take(|letter| letter.kind() == "Release" && letter.to != node(2));
    cell.settle();
    assert_eq!(rounds(&mut cell), 1);
    for letter in first {
        cell.deliver(&letter).expect("an answer");
    }
    assert_eq!(rounds(&mut cell), 2, "at once");
    let second = rejects(&mut cell);
    for letter in second {
        cell.deliver(&letter).expect("an answer");
    }
    assert_eq!(
        (rounds(&mut cell), cell.shard(2).rounds().count()),
        (2, 0),
        "it raced again only once"
    );
    let backoff_max = cell.shard(2).config().backoff_max;
    let wake_at = cell.shard(2).poll_timeout().expect("it tries again");
    assert!(wake_at <= cell.now.after(backoff_max), "long before the lease would expire");
    for letter in late {
        cell.deliver(&letter).expect("an acceptor");
    }
    cell.run(backoff_max);
    assert!(cell.granted(2).is_some(), "{:?}", cell.events);
}

#[test]
fn nodes_take_turns_and_only_one_tries_at_a_time() {
    let mut cell = TestCell::new(3, 0);
    let mut held = cell.held_by(1, 1);
    for (id, token) in [(3, 30), (2, 20), (1, 10), (3, 31), (2, 21)] {
        cell.acquire(id, token, WAIT);
        cell.settle();
    }
    let rounds = |cell: &mut TestCell| -> u64 {
        let counts = [1, 2, 3].map(|id| cell.shard(id).round_counts());
        counts.iter().map(|counts| counts.direct + counts.prepared).sum()
    };
    let mut order = Vec::new();
    for (holder, next) in [(1, 3), (3, 2), (2, 1), (1, 3), (3, 2)] {
        let before = rounds(&mut cell);
        cell.release(holder, 100 + order.len() as u64, held);
        cell.settle();
        cell.pass(Duration::ZERO);
        cell.settle();
        let won: Vec<u64> = [10, 20, 21, 30, 31]
            .into_iter()
            .filter(|token| !order.contains(token) && cell.granted(*token).is_some())
            .collect();
        let [token] = won[..] else { panic!("{won:?} after {order:?}") };
        assert_eq!(token / 10, next, "after {order:?}");
        assert_eq!(rounds(&mut cell) - before, 1, "only one node tried");
        held = cell.granted(token).expect("granted");
        order.push(token);
        // The other nodes try later and get a place for the next turn.
        cell.run(150 * MS);
    }
    assert_eq!(order, [30, 20, 10, 31, 21]);
}

#[test]
fn a_missed_turn_delays_the_next_node_by_milliseconds() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    cell.acquire(3, 3, WAIT);
    cell.settle();
    assert!(abandon(&mut cell, 2, 2));
    cell.settle();
    cell.release(1, 4, held);
    cell.settle();
    cell.pass(Duration::ZERO);
    cell.settle();
    assert_eq!(cell.granted(3), None, "it is node 2's turn");
    cell.run(5 * MS);
    assert!(cell.granted(3).is_some());
}

#[test]
fn a_quarantined_node_hears_of_releases() {
    let mut cell = TestCell::with_disks(3, 0);
    let settle = |cell: &mut TestCell| {
        for _ in 0..10 {
            cell.settle();
            cell.write_records();
        }
    };
    settle(&mut cell);
    cell.acquire(1, 1, NO_WAIT);
    settle(&mut cell);
    let held = cell.granted(1).expect("no other request");
    cell.crash(3);
    cell.restart(3, MS);
    assert!(!cell.quarantine(3).is_zero());
    settle(&mut cell);
    cell.acquire(3, 3, WAIT);
    settle(&mut cell);
    assert_eq!(cell.granted(3), None);
    cell.release(1, 4, held);
    cell.settle();
    cell.run(20 * MS);
    assert!(cell.granted(3).is_some(), "well before the ttl: {:?}", cell.events);
}

#[test]
fn a_wait_without_a_turn_ends_with_the_holder_s_name() {
    let mut cell = TestCell::new(3, 0);
    let mut held = cell.held_by(1, 1);
    cell.acquire(3, 30, 60 * MS);
    cell.settle();
    for token in 10..20 {
        // Nodes 1 and 2 take turns, and node 3 misses every Release.
        let (from, to) = if token % 2 == 0 { (1, 2) } else { (2, 1) };
        cell.acquire(to, token, WAIT);
        cell.settle();
        cell.release(from, 100 + token, held);
        let _ = cell.take(|letter| letter.to == node(3) && letter.kind() == "Release");
        cell.settle();
        cell.run(10 * MS);
        held = cell.granted(token).expect("its turn");
    }
    cell.run(5 * MS);
    let answers = cell.answers(30);
    assert!(matches!(answers[..], [Event::Denied { .. }]), "{answers:?}");
}

#[test]
fn learners_and_watchers_hear_of_grants_and_releases() {
    let mut cell = TestCell::new(3, 1);
    cell.shard(1).set_learners(vec![node(4)]);
    cell.shard(2).set_watched(true);
    cell.shard(4).set_watched(true);
    let tenure = cell.held_by(1, 1);
    cell.release(1, 2, tenure);
    cell.settle();
    for id in [2, 4] {
        let heard: Vec<&Event> =
            cell.events.iter().filter(|(at, _)| *at == node(id)).map(|(_, event)| event).collect();
        match heard[..] {
            [Event::HeldHint(held), Event::FreedHint(freed)] => {
                assert_eq!((held.tenure, held.label.holder().as_str()), (tenure, "me"));
                assert_eq!(freed.name(), name(NAME));
            }
            ref other => panic!("node {id}: {other:?}"),
        }
    }
}

#[test]
fn a_watcher_hears_once_of_each_expired_lease() {
    let mut cell = TestCell::new(3, 0);
    cell.shard(2).set_watched(true);
    let released = cell.held_by(1, 1);
    cell.release(1, 2, released);
    cell.settle();
    let expires = cell.held_by(1, 3);
    cell.pass(TTL);
    let now = cell.now;
    for _ in 0..5 {
        cell.shard(2).sweep(now, 100);
    }
    cell.collect();
    let expired = |(_, event): &(NodeId, Event)| match event {
        Event::ExpiredHint { label, tenure } => Some((label.name().to_string(), *tenure)),
        _ => None,
    };
    let heard: Vec<_> = cell.events.iter().filter_map(expired).collect();
    assert_eq!(heard, [(NAME.to_owned(), expires)]);
}

#[test]
fn waited_names_show_the_holder_and_the_waiters() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    assert_eq!(cell.shard(2).waited_names().count(), 0);
    cell.acquire(2, 2, TTL);
    cell.acquire(2, 3, TTL);
    cell.settle();
    let shard = cell.shard(2);
    let waited: Vec<WaitedName<'_>> = shard.waited_names().collect();
    let [WaitedName { name: waited, waiters, held_by: Some(by) }] = waited[..] else {
        panic!("{waited:?}")
    };
    assert_eq!((waited, waiters, by.tenure), (name(NAME), 2, held));
    assert_eq!(by.label.holder().as_str(), "me");
}

#[test]
fn without_a_watcher_hints_emit_no_events() {
    let mut cell = TestCell::new(3, 1);
    cell.shard(1).set_learners(vec![node(4)]);
    let tenure = cell.held_by(1, 1);
    cell.release(1, 2, tenure);
    cell.settle();
    assert!(cell.events.iter().all(|(at, _)| *at == node(1)), "{:?}", cell.events);
}

#[test]
fn a_round_without_a_ballot_is_tried_again() {
    let start = Start::NewCell { counter: 0, disk: true };
    let mut cell = TestCell::started(3, 0, |_| {}, start);
    cell.acquire(1, 1, NO_WAIT);
    assert_eq!(cell.sent, 0, "R1: nothing above the ceiling leaves before it is durable");
    cell.write_records();
    for _ in 0..20 {
        cell.pass(MS);
        cell.settle();
        cell.write_records();
    }
    assert!(cell.granted(1).is_some());
}

#[test]
fn names_are_independent_queues() {
    let mut cell = TestCell::new(3, 0);
    let now = cell.now;
    for (token, text) in (1..=50).map(|token| (token, format!("job/{token}"))) {
        let acquire = Acquire { name: name(&text), ..acquire_command(token, NO_WAIT, TTL) };
        cell.shard(1).acquire(now, acquire).expect("in bounds");
    }
    cell.collect();
    cell.settle();
    assert!((1..=50).all(|token| cell.granted(token).is_some()));
    assert_eq!(cell.shard(2).entries(), 50);
}

#[test]
fn a_late_promise_does_not_answer_the_propose() {
    let mut cell = TestCell::with(3, 0, |config| config.direct_rounds = false);
    // Only acceptor 3 has a lease, which will be released.
    cell.ask(3, 2, propose(ballot(1, 2)));
    cell.shard(1).observe_counter(5).expect("within the bound");
    cell.acquire(1, 1, NO_WAIT);
    let [to_2, to_3] = &cell.take(|letter| letter.kind() == "Prepare")[..] else { panic!() };
    cell.deliver(to_3).expect("not refused");
    let late = cell.take(|letter| letter.kind() == "Promise");
    cell.ask(3, 2, release(tenure(1, 2)));
    cell.deliver(to_2).expect("not refused");
    for promise in cell.take(|letter| letter.kind() == "Promise").iter().chain(&late) {
        cell.deliver(promise).expect("not refused");
    }
    let round = cell.shard(1).rounds().next().expect("a round").clone();
    assert!(round.phase == Phase::Proposing && round.refused.is_empty(), "{round:?}");
    // The Propose arrives at 3, and the answer is lost. The client leaves, so the round has to be
    // undone at 3.
    let proposes = cell.take(|letter| letter.kind() == "Propose" && letter.to == node(3));
    cell.deliver(&proposes[0]).expect("not refused");
    assert_eq!(cell.live(3), Some(round.tenure));
    cell.letters.clear();
    let now = cell.clock(1);
    assert!(cell.shard(1).abandon(now, cell::name(cell::NAME), Token(1)));
    cell.collect();
    cell.settle();
    assert_eq!(cell.live(3), None);
}

#[test]
fn repeated_hints_do_not_delay_a_waiter() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.settle();
    let before = cell.shard(2).round_counts();
    for _ in 0..10 {
        let freed = Message::Hint(Hint::Freed { name: name(NAME), nodes_before: 1 });
        cell.tell(2, 1, freed).expect("never refused");
    }
    let wake_at = cell.shard(2).poll_timeout().expect("it waits");
    cell.pass(wake_at.since(cell.now));
    assert_ne!(cell.shard(2).round_counts(), before, "the earliest hint counts");
}

#[test]
fn the_release_of_another_tenure_wakes_no_waiter() {
    let mut cell = TestCell::new(3, 1);
    cell.held_by(1, 1);
    cell.acquire(1, 2, WAIT);
    cell.acquire(4, 3, WAIT);
    cell.settle();
    let before = cell.shard(1).round_counts();
    cell.release(1, 4, tenure(9, 2));
    assert_eq!(cell.shard(1).round_counts(), before);
    assert!(cell.take(|letter| letter.kind() == "Freed").is_empty());
}
