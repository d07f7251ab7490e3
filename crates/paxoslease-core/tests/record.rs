//! The stable record from outside: what waits for the disk, what is answered afterwards, and what
//! a restart remembers (R1 to R4).

mod cell;

use core::time::Duration;

use cell::{
    NAME, TTL, TestCell, ballot, heal, name, node, prepare, propose, release, renew, tenure, ttl,
};
use paxoslease_core::*;

const NO_WAIT: Duration = Duration::ZERO;
const MS: Duration = Duration::from_millis(1);

/// Three nodes with disks on which nothing was written yet.
fn unwritten() -> TestCell {
    let mut cell = TestCell::started(3, 0, |_| {}, Start::NewCell { counter: 0, disk: true });
    cell.collect();
    cell
}

fn kinds(letters: &[cell::Letter]) -> Vec<&'static str> {
    letters.iter().map(cell::Letter::kind).collect()
}

#[test]
fn a_request_above_the_ballot_ceiling_is_answered_after_the_write_and_not_before() {
    let mut cell = unwritten();
    cell.tell(1, 2, Message::Request(prepare(ballot(5, 2)))).expect("deferred, not refused");
    assert_eq!(cell.letters.len(), 0);
    assert_eq!(cell.register(1), Register::default());
    cell.write_records();
    assert_eq!(kinds(&cell.letters), ["Promise"]);
    assert_eq!(cell.register(1).promised, ballot(5, 2));
}

#[test]
fn a_longer_lease_than_ever_is_answered_after_the_write_and_not_before() {
    for request in [propose(ballot(5, 2)), heal(tenure(1, 3), ballot(5, 2))] {
        let mut cell = TestCell::with_disks(3, 0);
        cell.tell(1, 2, Message::Request(request)).expect("deferred, not refused");
        assert_eq!(cell.live(1), None);
        assert_eq!(cell.shard(1).record().lease_ceiling, None);
        cell.write_records();
        assert!(cell.live(1).is_some());
        assert_eq!(cell.shard(1).record().lease_ceiling, Some(ttl(TTL)));
    }
}

#[test]
fn a_longer_renewal_waits_for_the_disk_too() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    let before = cell.register(1);
    let longer = Request::Renew {
        name: name(NAME),
        tenure: tenure(5, 2),
        ballot: ballot(6, 2),
        ttl: ttl(2 * TTL),
    };
    cell.letters.clear();
    cell.tell(1, 2, Message::Request(longer)).expect("deferred");
    assert_eq!((cell.register(1), cell.letters.len()), (before, 0));
    cell.write_records();
    assert_eq!(kinds(&cell.letters), ["Accept"]);
    let expires_at = |register: Register| register.accepted.map(|lease| lease.expires_at);
    assert!(expires_at(cell.register(1)) > expires_at(before));
}

/// R1: its Release will promise above the tenure, whatever ballot the Heal had.
#[test]
fn a_healed_tenure_above_the_ballot_ceiling_waits_for_the_disk() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred for its ttl");
    cell.write_records();
    cell.tell(1, 2, Message::Request(release(tenure(5, 2)))).expect("answered");
    let above = tenure(2 * BALLOT_BLOCK, 3);
    cell.tell(1, 2, Message::Request(heal(above, ballot(6, 2)))).expect("deferred, not refused");
    assert_eq!(cell.live(1), None);
    cell.write_records();
    assert_eq!(cell.live(1), Some(above));
    assert!(cell.shard(1).record().ballot_ceiling >= above.ballot().counter());
}

#[test]
fn a_renewal_or_a_heal_above_the_ballot_ceiling_waits_for_the_disk_too() {
    for request in [renew, heal] {
        let mut cell = TestCell::with_disks(3, 0);
        cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
        cell.write_records();
        let before = cell.register(1);
        cell.letters.clear();
        let above = ballot(cell.shard(1).record().ballot_ceiling + 1, 2);
        let request = Message::Request(request(tenure(5, 2), above));
        cell.tell(1, 2, request).expect("deferred");
        assert_eq!((cell.register(1), cell.letters.len()), (before, 0));
        cell.write_records();
        assert_eq!(cell.register(1).promised, above);
        assert!(cell.shard(1).record().ballot_ceiling >= above.counter());
    }
}

#[test]
fn only_so_many_requests_wait_for_the_disk_and_the_rest_are_counted_drops() {
    let start = Start::NewCell { counter: 0, disk: true };
    let mut cell = TestCell::started(3, 0, |config| config.limits.deferred_max = 2, start);
    cell.collect();
    for counter in 1..=2 {
        let request = Message::Request(prepare(ballot(counter, 2)));
        cell.tell(1, 2, request).expect("deferred");
    }
    let before = cell.state(1);
    let refused = cell.tell(1, 2, Message::Request(prepare(ballot(3, 2))));
    assert_eq!(refused, Err(Refusal::RecordBehind));
    assert_eq!(cell.shard(1).dropped(Refusal::RecordBehind), 1);
    assert_eq!(cell.state(1), before);
    cell.write_records();
    assert_eq!(kinds(&cell.letters), ["Promise", "Promise"]);
    assert_eq!(cell.register(1).promised, ballot(2, 2));
}

#[test]
fn a_release_overtakes_the_propose_that_waits_for_the_disk() {
    // The disk is slower than the round: it is void and undone before its Propose is answered.
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.tell(1, 2, Message::Request(release(tenure(5, 2)))).expect("answered");
    cell.write_records();
    assert_eq!(cell.live(1), None, "a ghost of a void round");
    // So the other way round: what another round proposed stays.
    cell.tell(1, 3, Message::Request(propose(ballot(6, 3)))).expect("in the ceiling now");
    assert_eq!(cell.live(1), Some(tenure(6, 3)));
}

#[test]
fn an_acquire_whose_first_round_was_slower_than_the_disk_is_granted_all_the_same() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    // 150 ms pass, more than an attempt lasts, before any record is written.
    for _ in 0..150 {
        cell.settle();
        cell.pass(MS);
    }
    cell.write_records();
    for _ in 0..300 {
        cell.settle();
        cell.write_records();
        cell.pass(MS);
    }
    assert!(cell.granted(1).is_some(), "{:?}", cell.answers(1));
}

#[test]
fn the_word_that_another_write_is_done_changes_nothing() {
    let mut cell = unwritten();
    cell.tell(1, 2, Message::Request(prepare(ballot(5, 2)))).expect("deferred");
    let before = cell.state(1);
    let now = cell.now;
    cell.shard(1).record_written(now, Record { ballot_ceiling: 1 << 40, lease_ceiling: None });
    cell.collect();
    assert_eq!((cell.state(1), cell.letters.len()), (before, 0));
}

#[test]
fn a_renewal_that_cannot_have_a_ballot_says_so_at_once() {
    let mut cell = unwritten();
    cell.renew(1, 1, tenure(1, 2), TTL);
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
    assert_eq!(cell.shard(1).rounds().count(), 0);
}

#[test]
fn ballots_are_never_issued_twice_however_often_a_node_crashes() {
    let mut cell = TestCell::with_disks(3, 0);
    let mut issued = Vec::new();
    for token in 1..=5 {
        cell.acquire(1, token, NO_WAIT);
        for letter in cell.take(|_| true) {
            issued.extend(match letter.transmit.message() {
                Message::Request(request) => request.ballot(),
                _ => None,
            });
        }
        cell.crash(1);
        cell.write_records();
    }
    issued.dedup();
    assert!(issued.len() >= 5);
    assert!(issued.is_sorted_by(|a, b| a < b), "{issued:?}");
}

#[test]
fn a_crash_start_promises_nothing_below_its_ceiling() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(prepare(ballot(5, 2)))).expect("in the ceiling");
    let ceiling = cell.shard(1).record().ballot_ceiling;
    cell.crash(1);
    cell.write_records();
    cell.letters.clear();
    assert_eq!(cell.quarantine(1), Duration::ZERO, "no lease was out");
    let answer = cell.ask(1, 3, prepare(ballot(ceiling, 3))).expect("an answer");
    assert_eq!(answer.kind(), "Reject");
    cell.tell(1, 3, Message::Request(prepare(ballot(ceiling + 1, 3)))).expect("deferred or not");
    cell.write_records();
    assert_eq!(cell.register(1).promised, ballot(ceiling + 1, 3));
}

#[test]
fn a_node_stopped_in_quarantine_leaves_no_snapshot_and_starts_as_after_a_crash() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    cell.crash(1);
    cell.pass(TTL / 2);
    assert!(!cell.restart(1, Duration::ZERO));
    assert_eq!(cell.quarantine(1), TTL, "all of it again");
}

#[test]
fn a_node_that_is_no_acceptor_leaves_no_snapshot() {
    let cell = TestCell::new(3, 1);
    assert!(cell.shards[3].clone().stop(cell.now).is_none());
    assert!(cell.shards[0].clone().stop(cell.now).is_some());
}

#[test]
fn a_clean_start_restores_live_leases_with_what_was_left_of_them() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    cell.pass(4 * MS);
    let left = TTL - 4 * MS;
    assert!(cell.restart(1, 100 * TTL), "however long it was down");
    cell.letters.clear();
    assert_eq!(cell.quarantine(1), Duration::ZERO);
    let sighting = cell.shards[0].lease(cell.now, name(NAME)).expect("restored");
    assert_eq!((sighting.tenure, sighting.remaining), (tenure(5, 2), ttl(left)));
    // R2: the ceiling stays in force, so a crash right after waits for it.
    assert_eq!(cell.shard(1).record().lease_ceiling, Some(ttl(TTL)));
    let answer = cell.ask(1, 2, renew(tenure(5, 2), ballot(6, 2))).expect("an answer");
    assert_eq!(answer.kind(), "Accept");
}

#[test]
fn a_clean_restart_never_ends_a_lease_earlier() {
    for passed in [0, 1, 499_999, 500_000, 999_999, 1_000_000].map(Duration::from_nanos) {
        let mut cell = TestCell::with_disks(3, 0);
        cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
        cell.write_records();
        cell.pass(passed);
        let expires_at = |register: Register| register.accepted.map(|lease| lease.expires_at);
        let before = expires_at(cell.register(1)).expect("accepted");
        assert!(cell.restart(1, Duration::ZERO));
        let after = expires_at(cell.register(1)).expect("restored");
        assert!(after >= before, "{passed:?}: {after:?} before {before:?}");
        assert!(after <= before.after(MS), "{passed:?}: {after:?} long after {before:?}");
    }
}

#[test]
fn a_snapshot_holds_live_leases_only() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    let snapshot = cell.shards[0].clone().stop(cell.now).expect("not quarantined");
    assert_eq!(snapshot.leases().count(), 1);
    let snapshot = cell.shards[0].clone().stop(cell.now.after(TTL)).expect("not quarantined");
    assert_eq!(snapshot.leases().count(), 0);
}

#[test]
fn without_a_record_the_quarantine_is_the_longest_lease_that_may_be_out() {
    let longest = ttl(Duration::from_secs(120));
    let config = Config::new(node(1), cell::cell(3), 1);
    for disk in [false, true] {
        let start = Start::NoRecord { counter: 77, longest, disk };
        let now = Instant::from_nanos(5);
        let mut shard = Shard::start(config.clone(), now, start);
        assert_eq!(shard.quarantine_remaining(now), longest.as_duration());
        assert_eq!(shard.counter(), 77);
        assert_eq!(shard.poll_event().is_some(), disk, "a record to write, where there is a disk");
    }
}

/// Nodes without disks that all count from 5000: node 1 was granted a lease and starts again.
fn forgetful(members: u16) -> (TestCell, Tenure) {
    let longest = ttl(Duration::from_secs(60));
    let new = Start::NewCell { counter: 5000, disk: false };
    let mut cell = TestCell::started(members, 0, |_| {}, new);
    let held = cell.held_by(1, 1);
    let config = cell.shard(1).config().clone();
    let now = cell.clock(1);
    let again = Start::NoRecord { counter: 5000, longest, disk: false };
    *cell.shard(1) = Shard::start(config, now, again);
    (cell, held)
}

#[test]
fn a_node_without_a_record_issues_no_ballot_before_enough_others_told_their_counters() {
    let (mut cell, held) = forgetful(3);
    cell.acquire(1, 2, NO_WAIT);
    cell.renew(1, 3, held, TTL);
    assert_eq!(kinds(&cell.letters), [""; 0], "any ballot may be one that is in use");
    assert!(matches!(cell.answers(3)[..], [Event::NoQuorum { .. }]));
    let counters = [2, 3].map(|id| cell.shard(id).counter());
    let hear = |cell: &mut TestCell, id: u16, remembers| {
        let counter = counters[usize::from(id) - 2];
        cell.shard(1).observe_counter(counter).expect("within the bound");
        cell.shard(1).heard_counter(node(id), remembers);
        cell.run(300 * MS);
    };
    hear(&mut cell, 2, true);
    hear(&mut cell, 2, true);
    hear(&mut cell, 3, false);
    assert_eq!(cell.shard(1).round_counts().direct, 0, "one of two, and one that forgot itself");
    hear(&mut cell, 3, true);
    assert!(cell.shard(1).counter() > held.ballot().counter());
    match cell.answers(2)[..] {
        [Event::Denied { by, .. }] => assert_eq!(by.tenure, held),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn of_five_members_three_have_to_tell_their_counters() {
    let (mut cell, _) = forgetful(5);
    cell.acquire(1, 2, NO_WAIT);
    for (id, is_enough) in [(2, false), (3, false), (4, true)] {
        cell.shard(1).heard_counter(node(id), true);
        cell.run(300 * MS);
        let counts = cell.shard(1).round_counts();
        assert_eq!(counts.direct + counts.prepared > 0, is_enough, "after node {id}");
    }
}

#[test]
fn a_node_without_a_record_that_hears_of_nobody_waits_for_the_end_of_its_quarantine() {
    let (mut cell, _) = forgetful(3);
    cell.now = cell.now.after(Duration::from_secs(60) - MS);
    cell.acquire(1, 2, NO_WAIT);
    assert_eq!(cell.letters.len(), 0);
    cell.run(400 * MS);
    assert!(cell.granted(2).is_some(), "whatever was held is over");
}

#[test]
fn a_refused_propose_and_a_renewal_of_nothing_raise_no_lease_ceiling() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    let (name, long, holder) = (name(NAME), ttl(Duration::from_secs(60)), Holder::NONE);
    let refused = [
        Request::Propose { name, ballot: ballot(6, 3), ttl: long, holder },
        Request::Renew { name, tenure: tenure(4, 3), ballot: ballot(6, 3), ttl: long },
        Request::Heal { name, tenure: tenure(4, 3), ballot: ballot(4, 3), ttl: long, holder },
    ];
    for request in refused {
        cell.tell(1, 3, Message::Request(request)).expect("answered");
        cell.write_records();
        assert_eq!(cell.shard(1).record().lease_ceiling, Some(ttl(TTL)), "{request:?}");
    }
    assert_eq!(kinds(&cell.letters), ["Accept", "Reject", "NotHeld"]);
}

#[test]
fn a_node_without_a_disk_never_asks_to_persist_anything() {
    let mut cell = TestCell::new(3, 0);
    cell.held_by(1, 1);
    let now = cell.now;
    cell.shard(1).sweep(now, 10);
    cell.collect();
    assert!(!cell.events.iter().any(|(_, event)| matches!(event, Event::Persist(_))));
}

#[test]
fn the_lease_ceiling_falls_again_when_short_leases_suffice() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    let long = cell.shard(1).record().lease_ceiling;
    let short = Ttl::from_millis(60).expect("not zero");
    let idle_for = |cell: &mut TestCell, spans: u32| {
        for _ in 0..spans {
            cell.pass(TTL);
            let now = cell.now;
            cell.shard(1).sweep(now, 10);
            cell.collect();
            cell.write_records();
        }
    };
    idle_for(&mut cell, 4);
    assert_eq!(cell.shard(1).record().lease_ceiling, long, "the next one need not wait");
    let (ballot, holder) = (ballot(6, 2), Holder::NONE);
    let propose = Request::Propose { name: name(NAME), ballot, ttl: short, holder };
    cell.tell(1, 2, Message::Request(propose)).expect("accepted");
    idle_for(&mut cell, 4);
    assert_eq!(cell.shard(1).record().lease_ceiling, Some(short));
}

#[test]
fn a_healed_lease_keeps_the_lease_ceiling_up() {
    let mut cell = TestCell::with_disks(3, 0);
    let sweep_after = |cell: &mut TestCell, span: Duration| {
        cell.pass(span);
        let now = cell.now;
        cell.shard(1).sweep(now, 10);
        cell.collect();
        cell.write_records();
    };
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    let long = cell.shard(1).record().lease_ceiling;
    sweep_after(&mut cell, TTL);
    sweep_after(&mut cell, TTL / 2);
    let healed = tenure(6, 3);
    cell.tell(1, 3, Message::Request(heal(healed, ballot(7, 3)))).expect("accepted");
    let short = Ttl::from_millis(60).expect("not zero");
    let (other, ballot, holder) = (name("other"), ballot(8, 2), Holder::NONE);
    let propose = Request::Propose { name: other, ballot, ttl: short, holder };
    cell.tell(1, 2, Message::Request(propose)).expect("accepted");
    sweep_after(&mut cell, TTL / 2);
    assert_eq!(cell.live(1), Some(healed));
    assert_eq!(cell.shard(1).record().lease_ceiling, long, "a crash would forget it too soon");
}

#[test]
fn a_peer_that_is_blocks_ahead_is_followed_before_the_next_ballot_is_needed() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.shard(1).observe_counter(3 * BALLOT_BLOCK).expect("within the bound");
    cell.collect();
    cell.write_records();
    assert!(cell.shard(1).record().ballot_ceiling > 3 * BALLOT_BLOCK);
    cell.renew(1, 1, tenure(1, 1), TTL);
    assert_eq!(kinds(&cell.letters), ["Renew", "Renew"], "at once");
}
