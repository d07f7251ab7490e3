//! The stable record: which requests wait for the disk, and what a restart remembers (R1 to R4).

mod cell;

use core::time::Duration;

use cell::{
    MS, NAME, NO_WAIT, TTL, TestCell, ballot, heal, name, node, prepare, propose, release, renew,
    tenure, ttl,
};
use paxoslease_core::*;

/// Three nodes with disks on which no record is written yet.
fn unwritten() -> TestCell {
    let mut cell = TestCell::started(3, 0, |_| {}, Start::NewCell { counter: 0, disk: true });
    cell.collect();
    cell
}

fn kinds(letters: &[cell::Letter]) -> Vec<&'static str> {
    letters.iter().map(cell::Letter::kind).collect()
}

#[test]
fn a_request_above_the_ballot_ceiling_waits_for_the_disk() {
    let mut cell = unwritten();
    cell.tell(1, 2, Message::Request(prepare(ballot(5, 2)))).expect("deferred, not refused");
    assert_eq!(cell.letters.len(), 0);
    assert_eq!(cell.register(1), Register::default());
    cell.write_records();
    assert_eq!(kinds(&cell.letters), ["Promise"]);
    assert_eq!(cell.register(1).promised, ballot(5, 2));
}

#[test]
fn a_lease_above_the_lease_ceiling_waits_for_the_disk() {
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
fn a_renewal_above_the_lease_ceiling_waits_for_the_disk() {
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

/// R1: the Release of the tenure will promise a ballot above it, even if the Heal has a lower one.
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
fn renewals_and_heals_above_the_ballot_ceiling_wait_too() {
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
fn requests_beyond_deferred_max_are_counted_drops() {
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
    // The disk is slower than the round, which is undone before its Propose is answered.
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.tell(1, 2, Message::Request(release(tenure(5, 2)))).expect("answered");
    cell.write_records();
    assert_eq!(cell.live(1), None, "the void round must not be stored");
    // The proposal of another round is stored.
    cell.tell(1, 3, Message::Request(propose(ballot(6, 3)))).expect("in the ceiling now");
    assert_eq!(cell.live(1), Some(tenure(6, 3)));
}

#[test]
fn an_acquire_outlasts_a_disk_slower_than_its_first_round() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    // An attempt lasts 100 ms; the record is written after 150 ms.
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
fn a_confirmation_of_an_unknown_write_changes_nothing() {
    let mut cell = unwritten();
    cell.tell(1, 2, Message::Request(prepare(ballot(5, 2)))).expect("deferred");
    let before = cell.state(1);
    let now = cell.now;
    cell.shard(1).record_written(now, Record { ballot_ceiling: 1 << 40, lease_ceiling: None });
    cell.collect();
    assert_eq!((cell.state(1), cell.letters.len()), (before, 0));
}

#[test]
fn a_renewal_without_a_ballot_fails_at_once() {
    let mut cell = unwritten();
    cell.renew(1, 1, tenure(1, 2), TTL);
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
    assert_eq!(cell.shard(1).rounds().count(), 0);
}

#[test]
fn no_ballot_is_issued_twice_across_crashes() {
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
    assert_eq!(cell.quarantine(1), Duration::ZERO, "no lease was accepted");
    let answer = cell.ask(1, 3, prepare(ballot(ceiling, 3))).expect("an answer");
    assert_eq!(answer.kind(), "Reject");
    cell.tell(1, 3, Message::Request(prepare(ballot(ceiling + 1, 3)))).expect("deferred or not");
    cell.write_records();
    assert_eq!(cell.register(1).promised, ballot(ceiling + 1, 3));
}

#[test]
fn a_node_stopped_in_quarantine_leaves_no_snapshot() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    cell.crash(1);
    cell.pass(TTL / 2);
    assert!(!cell.restart(1, Duration::ZERO));
    assert_eq!(cell.quarantine(1), TTL, "the whole quarantine again");
}

#[test]
fn a_node_without_an_acceptor_leaves_no_snapshot() {
    let cell = TestCell::new(3, 1);
    assert!(cell.shards[3].clone().stop(cell.now).is_none());
    assert!(cell.shards[0].clone().stop(cell.now).is_some());
}

#[test]
fn a_clean_start_restores_leases_with_the_time_they_had_left() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    cell.pass(4 * MS);
    let left = TTL - 4 * MS;
    assert!(cell.restart(1, 100 * TTL), "after any time");
    cell.letters.clear();
    assert_eq!(cell.quarantine(1), Duration::ZERO);
    let sighting = cell.shards[0].lease(cell.now, name(NAME)).expect("restored");
    assert_eq!((sighting.tenure, sighting.remaining), (tenure(5, 2), ttl(left)));
    // R2: the ceiling stays in force, so the quarantine after a crash covers it.
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
fn without_a_record_the_quarantine_covers_the_longest_lease() {
    let longest = ttl(Duration::from_secs(120));
    let config = Config::new(node(1), cell::cell(3), 1);
    for disk in [false, true] {
        let start = Start::NoRecord { counter: 77, longest, disk };
        let now = Instant::from_nanos(5);
        let mut shard = Shard::start(config.clone(), now, start);
        assert_eq!(shard.quarantine_remaining(now), longest.as_duration());
        assert_eq!(shard.counter(), 77);
        assert_eq!(shard.poll_event().is_some(), disk, "only a disk needs a record");
    }
}

/// Nodes without disks, whose counters begin at 5000. Node 1 holds a lease and restarts.
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
fn without_a_record_a_node_asks_for_counters_first() {
    let (mut cell, held) = forgetful(3);
    cell.acquire(1, 2, NO_WAIT);
    cell.renew(1, 3, held, TTL);
    assert_eq!(kinds(&cell.letters), [""; 0], "any ballot may be in use");
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
    assert_eq!(cell.shard(1).round_counts().direct, 0, "node 2, and node 3 in quarantine");
    hear(&mut cell, 3, true);
    assert!(cell.shard(1).counter() > held.ballot().counter());
    assert_eq!(cell.denied_by(2), Some(held));
}

#[test]
fn three_of_five_members_have_to_tell_their_counters() {
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
fn without_a_record_an_isolated_node_waits_for_its_quarantine() {
    let (mut cell, _) = forgetful(3);
    cell.now = cell.now.after(Duration::from_secs(60) - MS);
    cell.acquire(1, 2, NO_WAIT);
    assert_eq!(cell.letters.len(), 0);
    cell.run(400 * MS);
    assert!(cell.granted(2).is_some(), "every old lease is over");
}

#[test]
fn refused_requests_do_not_raise_the_lease_ceiling() {
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
fn the_lease_ceiling_falls_when_only_short_leases_are_used() {
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
    assert_eq!(cell.shard(1).record().lease_ceiling, long, "the next lease does not wait");
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
    assert_eq!(
        cell.shard(1).record().lease_ceiling,
        long,
        "the quarantine after a crash covers it"
    );
}

#[test]
fn a_peer_that_is_blocks_ahead_raises_the_ceiling_early() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.shard(1).observe_counter(3 * BALLOT_BLOCK).expect("within the bound");
    cell.collect();
    cell.write_records();
    assert!(cell.shard(1).record().ballot_ceiling > 3 * BALLOT_BLOCK);
    cell.renew(1, 1, tenure(1, 1), TTL);
    assert_eq!(kinds(&cell.letters), ["Renew", "Renew"], "at once");
}
