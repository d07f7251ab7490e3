//! Tests over many inputs, which a transcript would hide: bounds of texts and settings, thousands
//! of releases, and names that come and go (A7).

mod cell;

use core::time::Duration;

use cell::{MS, NO_WAIT, TTL, TestCell, WAIT, acquire_command, name, node, tenure};
use paxoslease_core::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn texts_outside_their_bounds_never_become_names_or_holders() {
    let long = "x".repeat(513);
    assert_eq!(Name::new(""), Err(TextError::Empty));
    assert_eq!(Name::new(&long), Err(TextError::TooLong { len: 513, max: 512 }));
    assert_eq!(Name::from_bytes(b"\xff"), Err(TextError::NotUtf8));
    assert_eq!(Holder::new(&long[..257]), Err(TextError::TooLong { len: 257, max: 256 }));
    assert_eq!(Holder::from_utf8(b"\xff"), Err(TextError::NotUtf8));
    // The longest texts arrive at another node unchanged.
    let mut cell = TestCell::new(3, 0);
    let (longest, holder) = (name(&long[..512]), Holder::new(&long[..256]).expect("fits"));
    let now = cell.now;
    let acquire = Acquire { name: longest, holder, ..acquire_command(1, NO_WAIT, TTL) };
    cell.shard(1).acquire(now, acquire).expect("in bounds");
    cell.collect();
    cell.settle();
    let sighting = cell.shard(2).lease(now, longest).expect("accepted");
    assert_eq!((sighting.label.name(), sighting.label.holder()), (longest, holder));
}

#[test]
fn settings_that_would_loop_are_typed_errors() {
    let valid = Config::new(node(1), cell::cell(3), 1);
    assert_eq!(valid.check(), Ok(()));
    let zero = Duration::ZERO;
    let attempts = Config { attempt_timeout: zero, ..valid.clone() };
    assert_eq!(attempts.check(), Err(ConfigError::AttemptTimeoutZero));
    let from = Config { backoff_min: zero, ..valid.clone() };
    let to = Config { backoff_max: zero, ..valid };
    assert_eq!([from.check(), to.check()], [Err(ConfigError::BackoffZero); 2]);
}

/// Delivers all messages except those to or from a node.
fn settle_without(cell: &mut TestCell, id: u16) {
    while !cell.letters.is_empty() {
        let letter = cell.letters.remove(0);
        if letter.to != node(id) && letter.from != node(id) {
            let _refused = cell.deliver(&letter);
        }
    }
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

fn keep_up(cell: &mut TestCell, slots_max: u32) {
    let now = cell.now;
    cell.shard(1).keep_up(now, slots_max);
}

/// Acquires a name of its own through node 1.
fn acquire_job(cell: &mut TestCell, number: u64, ttl: Duration) {
    let (now, text) = (cell.now, format!("job/{number}"));
    let acquire = Acquire { name: name(&text), ..acquire_command(number, NO_WAIT, ttl) };
    cell.shard(1).acquire(now, acquire).expect("in bounds");
}

#[test]
fn a_walk_over_the_slots_sees_wanted_live_leases_only() {
    let mut cell = TestCell::new(1, 0);
    let now = cell.now;
    for number in 1..=10 {
        acquire_job(&mut cell, number, if number % 2 == 0 { TTL } else { Ttl::MIN.as_duration() });
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
    let proposer = &TestCell::new(3, 1).shards[3];
    assert_eq!((proposer.slot_count(), proposer.acceptor_bytes()), (0, 0));
    assert_eq!(proposer.lease_in(now, 0, |_| true), None);
}

#[test]
fn names_that_expire_leave_as_fast_as_others_come() {
    const LIVE: u64 = 1000;
    let mut cell = TestCell::with(1, 0, |config| config.reclaim_after = NO_WAIT);
    let mut most = 0;
    for number in 0..20 * LIVE {
        acquire_job(&mut cell, number, LIVE as u32 * MS);
        cell.now = cell.now.after(MS);
        if number % 64 == 0 {
            keep_up(&mut cell, 4096);
        }
        most = most.max(cell.shard(1).entries() as u64);
    }
    assert!(most <= 2 * LIVE + LIVE / 4, "{most} names for {LIVE} leases");
}
