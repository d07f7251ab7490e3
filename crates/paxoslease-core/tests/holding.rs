//! A lease after its grant: renewals, heals, inspections and listings, and the reclaiming of idle
//! names.

mod cell;

use core::time::Duration;

use cell::{
    MS, NAME, NO_WAIT, TTL, TestCell, acquire_command, ballot, name, node, prepare, propose,
    tenure, ttl,
};
use paxoslease_core::*;

const ATTEMPT: Duration = Duration::from_millis(100);

fn inspect(cell: &mut TestCell, id: u16, token: u64) {
    let now = cell.clock(id);
    cell.shard(id).inspect(now, Token(token), name(NAME)).expect("room");
    cell.collect();
}

fn sweep(cell: &mut TestCell, id: u16, slots_max: u32) {
    let now = cell.clock(id);
    cell.shard(id).sweep(now, slots_max);
}

#[test]
fn a_renewal_that_was_lost_is_sent_again() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    let first = cell.shard(1).rounds().next().expect("a round").clone();
    cell.letters.clear();
    cell.pass(ATTEMPT);
    let again = cell.shard(1).rounds().next().expect("a round").clone();
    assert_eq!(again, first, "the same ballot and the same timer");
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Renewed { .. }]));
    assert_eq!(cell.shard(1).round_counts().renewals, 1);
}

#[test]
fn a_renewal_waits_for_late_answers_until_its_deadline() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    for letter in cell.take(|_| true) {
        cell.deliver(&letter).expect("renewed there");
    }
    let late = cell.take(|letter| letter.kind() == "Accept");
    let started_at = cell.clock(1);
    for _ in 0..15 {
        cell.pass(ATTEMPT);
        cell.letters.clear();
    }
    cell.deliver(&late[0]).expect("late, but before the deadline");
    match cell.answers(2)[..] {
        [Event::Renewed { started_at: counted, .. }] => assert_eq!(*counted, started_at),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_renewal_in_flight_ends_when_its_tenure_is_released() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    let lost = cell.take(|letter| letter.kind() == "Renew");
    cell.release(1, 3, held);
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Released { confirmed: true, .. }]));
    cell.pass(ATTEMPT);
    assert!(matches!(cell.answers(2)[..], [Event::NotHeld { .. }]), "{:?}", cell.answers(2));
    for letter in &lost {
        cell.deliver(letter).expect("late");
    }
    cell.run(10 * ATTEMPT);
    assert_eq!((cell.live(1), cell.live(2), cell.live(3)), (None, None, None));
    assert_eq!(cell.answers(2).len(), 1);
}

#[test]
fn accepts_of_a_failed_renewal_do_not_count_for_the_next() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    for letter in cell.take(|_| true) {
        cell.deliver(&letter).expect("renewed there");
    }
    let late = cell.take(|letter| letter.kind() == "Accept");
    cell.pass(Duration::from_secs(2));
    assert!(matches!(cell.answers(2)[..], [Event::NoQuorum { .. }]));
    cell.renew(1, 3, held, TTL);
    for letter in &late {
        cell.deliver(letter).expect("stale is normal");
    }
    assert!(cell.answers(3).is_empty());
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Renewed { .. }]));
}

#[test]
fn a_majority_after_the_end_of_the_belief_renews_nothing() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, 50 * MS);
    for letter in cell.take(|_| true) {
        cell.deliver(&letter).expect("renewed there");
    }
    // The node was suspended: time passes and no wake-up fires.
    cell.now = cell.now.after(50 * MS);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::NoQuorum { .. }]), "{:?}", cell.answers(2));
}

#[test]
fn a_silent_acceptor_is_healed_when_the_attempt_ends() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    cell.take(|letter| letter.to == node(3));
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Renewed { .. }]));
    assert_eq!(cell.shard(1).rounds().count(), 1, "one acceptor has not answered");
    cell.pass(ATTEMPT);
    let kinds: Vec<_> = cell.letters.iter().map(|letter| (letter.kind(), letter.to)).collect();
    assert_eq!(kinds, [("Heal", node(3))]);
    assert_eq!(cell.shard(1).rounds().count(), 0);
}

#[test]
fn a_not_held_after_the_majority_is_healed_at_once() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == node(3));
    cell.settle();
    let held = cell.granted(1).expect("by 1 and 2");
    cell.renew(1, 2, held, TTL);
    cell.settle();
    assert_eq!(cell.live(3), Some(held));
    assert_eq!(cell.shard(1).rounds().count(), 0);
}

#[test]
fn a_not_held_before_the_majority_is_healed_with_it() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == node(3));
    cell.settle();
    let held = cell.granted(1).expect("by 1 and 2");
    cell.renew(1, 2, held, TTL);
    for letter in cell.take(|letter| letter.to == node(3)) {
        cell.deliver(&letter).expect("answered");
    }
    for letter in cell.take(|letter| letter.kind() == "NotHeld") {
        cell.deliver(&letter).expect("counted");
    }
    assert!(!cell.letters.iter().any(|letter| letter.kind() == "Heal"), "P5: not before");
    cell.settle();
    assert_eq!(cell.live(3), Some(held));
    assert_eq!(cell.shard(1).rounds().count(), 0);
}

#[test]
fn a_released_tenure_is_not_healed() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    cell.take(|letter| letter.to == node(3));
    cell.settle();
    cell.release(1, 3, held);
    cell.settle();
    cell.pass(ATTEMPT);
    cell.settle();
    assert_eq!((cell.live(1), cell.live(2), cell.live(3)), (None, None, None));
}

#[test]
fn a_heal_carries_the_stored_holder_text_by_default() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.take(|letter| letter.to == node(3));
    cell.settle();
    let held = cell.granted(1).expect("by 1 and 2");
    cell.renew(2, 2, held, TTL);
    cell.settle();
    let lease = cell.shards[2].lease(cell.now, name(NAME)).expect("healed");
    assert_eq!(lease.label.holder().as_str(), "me");
}

#[test]
fn a_new_holder_s_text_replaces_the_old_one() {
    let mut cell = TestCell::new(1, 0);
    cell.held_by(1, 1);
    cell.pass(TTL);
    let (now, holder) = (cell.now, Holder::new("you").expect("short"));
    let acquire = Acquire { holder, ..acquire_command(2, NO_WAIT, TTL) };
    cell.shard(1).acquire(now, acquire).expect("in bounds");
    let lease = cell.shards[0].lease(now, name(NAME)).expect("held");
    assert_eq!(lease.label.holder(), holder);
}

#[test]
fn an_inspection_reports_what_a_quorum_knows() {
    let mut cell = TestCell::new(3, 1);
    inspect(&mut cell, 4, 1);
    cell.settle();
    assert!(matches!(cell.answers(1)[..], [Event::Inspected { accepted: None, .. }]));
    let held = cell.held_by(1, 2);
    let before = cell.register(2);
    inspect(&mut cell, 4, 3);
    cell.settle();
    let [Event::Inspected { accepted: Some(seen), .. }] = cell.answers(3)[..] else { panic!() };
    assert_eq!((seen.tenure, seen.label.holder().as_str()), (held, "me"));
    assert_eq!(cell.register(2), before, "an inspection changes nothing");
}

#[test]
fn an_inspection_of_a_split_vote_reports_the_highest_fence() {
    let mut cell = TestCell::new(3, 0);
    cell.tell(1, 1, Message::Request(propose(ballot(4, 1)))).expect("accepted");
    cell.tell(2, 2, Message::Request(propose(ballot(6, 2)))).expect("accepted");
    inspect(&mut cell, 1, 1);
    cell.settle();
    let [Event::Inspected { accepted: Some(seen), .. }] = cell.answers(1)[..] else { panic!() };
    assert_eq!(seen.tenure.ballot(), ballot(6, 2));
}

#[test]
fn an_inspection_without_a_quorum_says_so() {
    let mut cell = TestCell::new(3, 0);
    inspect(&mut cell, 1, 1);
    cell.letters.clear();
    let reply = Message::Reply(Reply::Inspected { query: 99, accepted: None });
    cell.tell(1, 2, reply).expect("the answer to an unknown query is ignored");
    cell.pass(ATTEMPT);
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
}

#[test]
fn a_walk_over_the_slots_sees_wanted_live_leases_only() {
    let mut cell = TestCell::new(1, 0);
    let now = cell.now;
    for token in 1..=10u64 {
        let text = format!("job/{token}");
        let ttl = if token % 2 == 0 { TTL } else { Ttl::MIN.as_duration() };
        let acquire = Acquire { name: name(&text), ..acquire_command(token, NO_WAIT, ttl) };
        cell.shard(1).acquire(now, acquire).expect("in bounds");
    }
    let listed = |now| {
        let shard = &cell.shards[0];
        let leases = (0..shard.slot_count()).filter_map(|slot| shard.lease_in(now, slot, |_| true));
        let mut names: Vec<_> = leases.map(|seen| seen.label.name().as_str().to_owned()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(listed(now).len(), 10);
    let later = listed(now.after(Ttl::MIN.as_duration()));
    assert_eq!(later, ["job/10", "job/2", "job/4", "job/6", "job/8"]);
    let shard = &cell.shards[0];
    let unwanted = (0..shard.slot_count()).filter_map(|slot| shard.lease_in(now, slot, |_| false));
    assert_eq!(unwanted.count(), 0);
    assert_eq!(shard.lease_in(now, u32::MAX, |_| true), None);
}

#[test]
fn only_idle_names_are_reclaimed_a_few_at_a_time() {
    let mut cell = TestCell::new(1, 0);
    let now = cell.now;
    for token in 1..=8u64 {
        let text = format!("job/{token}");
        let acquire = Acquire { name: name(&text), ..acquire_command(token, NO_WAIT, 50 * MS) };
        cell.shard(1).acquire(now, acquire).expect("in bounds");
    }
    cell.held_by(1, 9);
    assert_eq!(cell.shard(1).entries(), 9);
    let highest = cell.shard(1).counter();
    cell.pass(Duration::from_secs(2));
    let mut before = 9;
    for _ in 0..40 {
        cell.pass(100 * MS);
        // This name is still in use.
        let request = Request::Prepare { name: name("job/1"), ballot: ballot(highest, 1) };
        let _ = cell.tell(1, 1, Message::Request(request));
        sweep(&mut cell, 1, 2);
        let after = cell.shard(1).entries();
        assert!(before - after <= 2, "at most two slots per call");
        before = after;
    }
    assert_eq!(before, 2, "the lease and the busy name");
    assert!(cell.shard(1).register(name("job/1")).is_some());
    assert!(cell.live(1).is_some());
    assert!(cell.shard(1).floor() >= Some(ballot(8, 1)), "A7: their promises went to the floor");
}

#[test]
fn a_name_is_not_reclaimed_before_its_second_pass() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, prepare(ballot(3, 2))).expect("a promise");
    sweep(&mut cell, 1, 100);
    cell.pass(Duration::from_millis(999));
    sweep(&mut cell, 1, 100);
    assert_eq!(cell.shard(1).entries(), 1, "a pass takes at least a second");
    cell.pass(MS);
    sweep(&mut cell, 1, 100);
    assert_eq!(cell.shard(1).entries(), 0);
    assert_eq!(cell.ask(1, 3, prepare(ballot(2, 3))).expect("an answer").kind(), "Reject");
}

#[test]
fn reclaiming_a_name_drops_its_queue_of_nodes() {
    let mut cell = TestCell::new(3, 1);
    cell.held_by(1, 1);
    cell.acquire(4, 2, NO_WAIT);
    cell.settle();
    cell.pass(TTL);
    for _ in 0..4 {
        sweep(&mut cell, 1, 100);
        cell.pass(Duration::from_secs(2));
    }
    assert_eq!(cell.shard(1).entries(), 0);
    // The slot belongs to another name now, so its release is not announced to node 4.
    let now = cell.now;
    let acquire = Acquire { name: name("another"), ..acquire_command(3, NO_WAIT, TTL) };
    cell.shard(1).acquire(now, acquire).expect("in bounds");
    cell.collect();
    cell.settle();
    let held = cell.granted(3).expect("granted");
    cell.shard(1).release(now, Token(4), name("another"), held, TTL).expect("room");
    cell.collect();
    assert!(!cell.letters.iter().any(|letter| letter.kind() == "Freed"));
}

/// Proposes and releases a lease at acceptor 1, as node 2.
fn lease_briefly(cell: &mut TestCell, counter: u64) {
    lease_briefly_as(cell, NAME, counter);
}

fn lease_briefly_as(cell: &mut TestCell, text: &str, counter: u64) {
    let (name, ballot, tenure) = (name(text), ballot(counter, 2), tenure(counter, 2));
    let propose = Request::Propose { name, ballot, ttl: ttl(TTL), holder: Holder::NONE };
    assert_eq!(cell.ask(1, 2, propose).expect("an answer").kind(), "Accept");
    cell.ask(1, 2, Request::Release { name, tenure }).expect("an answer");
}

fn keep_up(cell: &mut TestCell, id: u16, slots_max: u32) {
    let now = cell.clock(id);
    cell.shard(id).keep_up(now, slots_max);
}

#[test]
fn a_released_name_is_reclaimed_after_four_round_trips() {
    for (trip, after) in [(NO_WAIT, 5 * MS), (MS, 5 * MS), (2 * MS, 8 * MS), (50 * MS, 200 * MS)] {
        for housekeeping in [sweep, keep_up] {
            let mut cell = TestCell::new(3, 0);
            cell.shard(1).set_reclaim_trip(trip);
            lease_briefly(&mut cell, 7);
            let promised = cell.register(1).promised;
            cell.pass(after - MS);
            housekeeping(&mut cell, 1, 100);
            assert_eq!(cell.shard(1).entries(), 1, "not before {after:?}");
            cell.pass(MS);
            housekeeping(&mut cell, 1, 100);
            assert_eq!(cell.shard(1).entries(), 0, "after {after:?}");
            assert_eq!(cell.shard(1).floor(), Some(promised), "A7");
            let late = cell.ask(1, 3, propose(ballot(6, 3))).expect("an answer");
            assert_eq!(late.kind(), "Reject");
            assert_eq!(cell.shard(1).entries(), 0);
        }
    }
}

#[test]
fn reclaim_after_bounds_the_delay_of_reclaiming() {
    for trip in [None, Some(Duration::from_secs(60))] {
        let mut cell = TestCell::new(3, 0);
        if let Some(trip) = trip {
            cell.shard(1).set_reclaim_trip(trip);
        }
        lease_briefly(&mut cell, 7);
        cell.pass(Duration::from_millis(999));
        keep_up(&mut cell, 1, 100);
        assert_eq!(cell.shard(1).entries(), 1);
        cell.pass(MS);
        keep_up(&mut cell, 1, 100);
        assert_eq!(cell.shard(1).entries(), 0);
    }
}

#[test]
fn a_released_name_that_is_used_again_is_not_reclaimed() {
    for again in [prepare(ballot(8, 3)), propose(ballot(8, 3))] {
        let mut cell = TestCell::new(3, 0);
        cell.shard(1).set_reclaim_trip(MS);
        lease_briefly(&mut cell, 7);
        cell.ask(1, 3, again).expect("an answer");
        let floor = cell.shard(1).floor();
        cell.pass(100 * MS);
        keep_up(&mut cell, 1, 100);
        assert_eq!(cell.shard(1).entries(), 1, "{again:?}");
        assert_eq!(cell.register(1).promised, ballot(8, 3));
        assert_eq!(cell.shard(1).floor(), floor);
    }
}

#[test]
fn the_reclaim_delay_begins_with_the_last_release() {
    let mut cell = TestCell::new(3, 0);
    cell.shard(1).set_reclaim_trip(MS);
    lease_briefly(&mut cell, 7);
    cell.pass(4 * MS);
    lease_briefly(&mut cell, 8);
    cell.pass(4 * MS);
    keep_up(&mut cell, 1, 100);
    assert_eq!(cell.shard(1).entries(), 1);
    cell.pass(MS);
    keep_up(&mut cell, 1, 100);
    assert_eq!(cell.shard(1).entries(), 0);
}

#[test]
fn new_names_in_the_slots_of_released_ones_stay() {
    let mut cell = TestCell::new(3, 0);
    let prepare = |text, counter| Request::Prepare { name: name(text), ballot: ballot(counter, 2) };
    lease_briefly(&mut cell, 1);
    lease_briefly_as(&mut cell, "another", 2);
    lease_briefly(&mut cell, 3);
    // All names are due, both by their release and by the sweep, but each call handles one. So the
    // sweep reclaims the first slot before its release is handled.
    sweep(&mut cell, 1, 2);
    cell.pass(Duration::from_secs(1));
    sweep(&mut cell, 1, 1);
    sweep(&mut cell, 1, 1);
    assert_eq!(cell.shard(1).entries(), 0);
    cell.ask(1, 2, prepare("this", 11)).expect("an answer");
    cell.ask(1, 2, prepare("that", 12)).expect("an answer");
    keep_up(&mut cell, 1, 100);
    assert_eq!(cell.shard(1).entries(), 2);
}

#[test]
fn keep_up_sweeps_only_for_names_that_were_added_and_stayed() {
    let mut cell = TestCell::new(3, 0);
    cell.shard(1).set_reclaim_trip(MS);
    cell.shard(1).set_watched(true);
    let heard = |cell: &mut TestCell| {
        cell.collect();
        cell.events.iter().filter(|(_, event)| matches!(event, Event::ExpiredHint { .. })).count()
    };
    cell.ask(1, 2, propose(ballot(1, 2))).expect("an answer");
    // The slots that this name owes are swept while it is live.
    for _ in 0..8 {
        cell.pass(Duration::from_secs(1));
        keep_up(&mut cell, 1, 100);
    }
    cell.pass(Duration::from_secs(2));
    for counter in 2..50 {
        lease_briefly_as(&mut cell, "another", counter);
        cell.pass(100 * MS);
        keep_up(&mut cell, 1, 100);
        assert_eq!((cell.shard(1).entries(), heard(&mut cell)), (1, 0));
    }
    let stays = Request::Prepare { name: name("a name that stays"), ballot: ballot(50, 2) };
    cell.ask(1, 2, stays).expect("an answer");
    for _ in 0..2 {
        cell.pass(Duration::from_secs(1));
        keep_up(&mut cell, 1, 100);
    }
    assert_eq!(heard(&mut cell), 1);
}

#[test]
fn names_that_expire_leave_as_fast_as_others_come() {
    const LIVE: u64 = 1000;
    let mut cell = TestCell::with(1, 0, |config| config.reclaim_after = NO_WAIT);
    let mut most = 0;
    for token in 0..20 * LIVE {
        let text = format!("job/{token}");
        let now = cell.now;
        let acquire =
            Acquire { name: name(&text), ..acquire_command(token, NO_WAIT, LIVE as u32 * MS) };
        cell.shard(1).acquire(now, acquire).expect("in bounds");
        cell.now = cell.now.after(MS);
        if token % 64 == 0 {
            let now = cell.now;
            cell.shard(1).keep_up(now, 4096);
        }
        most = most.max(cell.shard(1).entries() as u64);
    }
    assert!(most <= 2 * LIVE + LIVE / 4, "{most} names for {LIVE} leases");
}

#[test]
fn no_wake_up_is_left_once_every_request_is_answered() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    cell.settle();
    cell.release(1, 3, held);
    assert!(cell.shard(1).poll_timeout().is_some(), "the release may be lost");
    cell.settle();
    cell.pass(NO_WAIT);
    assert_eq!(cell.shard(1).poll_timeout(), None);
}

#[test]
fn an_unreachable_member_does_not_end_a_round_that_can_win() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let lost = cell.take(|letter| letter.to == node(3));
    assert_eq!(lost.len(), 1);
    let (now, members) = (cell.clock(1), cell.shard(1).config().cell);
    let reachable = [1, 2].into_iter().filter_map(|id| members.member(node(id)));
    cell.shard(1).set_reachable(now, reachable.fold(MemberSet::EMPTY, MemberSet::with));
    cell.settle();
    assert!(cell.granted(1).is_some(), "{:?}", cell.events);
}

#[test]
fn an_unconfirmed_release_leaves_room_for_the_next_request() {
    let mut cell = TestCell::with(3, 0, |config| config.limits.rounds_max = 1);
    let held = cell.held_by(1, 1);
    cell.release(1, 2, held);
    for _ in 0..=TTL.as_millis() + 100 {
        cell.letters.clear();
        cell.pass(MS);
    }
    assert!(matches!(cell.answers(2)[..], [Event::Released { confirmed: false, .. }]));
    cell.acquire(1, 3, NO_WAIT);
    cell.settle();
    assert!(cell.granted(3).is_some(), "{:?}", cell.events);
}
