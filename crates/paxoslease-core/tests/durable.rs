//! Durable leases (protocol section 10, K1 to K14): what a majority of disks keeps, through
//! crashes, releases and members that were away.

mod cell;

use core::time::Duration;

use cell::{Letter, NAME, NO_WAIT, TTL, TestCell, name, node};
use paxoslease_core::*;

const SECOND: Duration = Duration::from_secs(1);

fn durable_cell() -> TestCell {
    let start = Start::NewCell { counter: 0, disk: true };
    let mut cell = TestCell::started(3, 0, |_| {}, start);
    cell.collect();
    cell.settle_durably();
    cell
}

fn millis(millis: u64) -> Lasts {
    Lasts::from_millis(millis).expect("not zero")
}

fn is_with(letter: &Letter, id: u16) -> bool {
    letter.from == node(id) || letter.to == node(id)
}

/// Delivers and writes everything, except what a member that is away would receive or send.
fn settle_without(cell: &mut TestCell, away: u16) {
    loop {
        cell.take(|letter| is_with(letter, away));
        let ids = [1, 2, 3].into_iter().filter(|id| *id != away);
        let written = ids.filter(|id| cell.write_disk(*id)).count();
        cell.write_records();
        cell.take(|letter| is_with(letter, away));
        if cell.letters.is_empty() {
            if written == 0 {
                return;
            }
            continue;
        }
        let letter = cell.letters.remove(0);
        let _ = cell.deliver(&letter);
    }
}

fn live_without(cell: &mut TestCell, span: Duration, away: u16) {
    for _ in 0..span.as_millis() / 10 {
        cell.pass(Duration::from_millis(10));
        settle_without(cell, away);
    }
}

fn is_held(cell: &TestCell, token: u64) -> Option<bool> {
    match cell.answers(token)[..] {
        [Event::Released { held, confirmed: true, .. }] => *held,
        _ => None,
    }
}

fn crash_all(cell: &mut TestCell) {
    for id in [1, 2, 3] {
        cell.crash(id);
    }
    cell.letters.clear();
    // The quarantine covers the longest ordinary lease.
    cell.live_durably(Duration::from_secs(61));
}

#[test]
fn an_endless_lease_outlives_the_crash_of_all_members() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let held = cell.granted(1).expect("the disks of all members have it");
    crash_all(&mut cell);
    cell.acquire_for(2, 2, NO_WAIT, TTL);
    cell.settle_durably();
    assert!(matches!(cell.answers(2)[..], [Event::Denied { by, .. }] if by.tenure == held));
    cell.release(3, 3, held);
    cell.live_durably(SECOND);
    assert_eq!(is_held(&cell, 3), Some(true), "{:?}", cell.answers(3));
    cell.acquire_for(2, 4, NO_WAIT, TTL);
    cell.live_durably(SECOND);
    assert!(cell.granted(4).expect("it is free") > held);
}

/// K9: the grant is told once a majority has it on disk, and not before.
#[test]
fn a_durable_acquire_is_granted_when_a_majority_has_it_on_disk() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.accept();
    assert_eq!(cell.granted(1), None);
    assert!(cell.write_disk(1));
    cell.settle();
    assert_eq!(cell.granted(1), None);
    assert!(cell.write_disk(3));
    cell.settle();
    assert!(cell.granted(1).is_some());
}

#[test]
fn a_crash_and_a_missed_grant_leave_one_holder() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    settle_without(&mut cell, 3);
    let held = cell.granted(1).expect("two of three disks");
    cell.crash(2);
    live_without(&mut cell, Duration::from_secs(61), 1);
    cell.acquire_for(3, 2, NO_WAIT, TTL);
    live_without(&mut cell, Duration::from_secs(3), 1);
    assert_eq!(cell.granted(2), None, "node 2 has the register of {held:?}");
}

/// A member that was away during the release learns it from the others, and blocks nothing.
#[test]
fn a_member_that_was_away_during_a_release_blocks_nothing() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let held = cell.granted(1).expect("granted");
    cell.release(2, 2, held);
    live_without(&mut cell, SECOND, 3);
    assert_eq!(is_held(&cell, 2), Some(true));
    // Another member dies. The one that was away comes back.
    cell.letters.clear();
    let everyone = cell.shard(2).config().cell.everyone();
    for id in [2, 3] {
        let now = cell.clock(id);
        cell.shard(id).handle_reconnect(now, everyone);
    }
    cell.collect();
    live_without(&mut cell, SECOND, 1);
    assert_eq!(cell.durably_held(3), None);
    cell.acquire_for(3, 3, NO_WAIT, TTL);
    live_without(&mut cell, SECOND, 1);
    assert!(cell.granted(3).is_some(), "{:?}", cell.answers(3));
}

/// K5: when every member stores that the name is free, nothing of the register is left.
#[test]
fn a_released_name_has_no_register_any_more() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let held = cell.granted(1).expect("granted");
    cell.release(2, 2, held);
    cell.live_durably(Duration::from_secs(4));
    for id in [1, 2, 3] {
        assert_eq!(cell.shard(id).durable_counts(), DurableCounts::default());
    }
}

#[test]
fn one_of_several_releases_is_told_that_it_ended_the_tenure() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let held = cell.granted(1).expect("granted");
    for (id, token) in [(1, 2), (2, 3), (3, 4)] {
        cell.release(id, token, held);
    }
    cell.live_durably(Duration::from_secs(2));
    let told: Vec<Option<bool>> = [2, 3, 4].map(|token| is_held(&cell, token)).into();
    assert_eq!(told.iter().filter(|held| **held == Some(true)).count(), 1, "{told:?}");
    assert!(told.iter().all(Option::is_some), "{told:?}");
}

#[test]
fn an_end_passes_once_and_frees_the_name() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, millis(5_000));
    cell.settle_durably();
    let held = cell.granted(1).expect("granted");
    cell.live_durably(Duration::from_millis(4_500));
    cell.acquire_for(2, 2, NO_WAIT, TTL);
    cell.settle_durably();
    assert!(matches!(cell.answers(2)[..], [Event::Denied { by, .. }] if by.tenure == held));
    cell.live_durably(Duration::from_millis(1_000));
    cell.acquire_for(2, 3, NO_WAIT, TTL);
    cell.live_durably(SECOND);
    assert!(cell.granted(3).is_some(), "{:?}", cell.answers(3));
    cell.live_durably(Duration::from_secs(5));
    assert_eq!(cell.shard(1).durable_counts().registers, 0);
}

/// K3: a crash must not make an end that has passed a future one for some members only.
#[test]
fn an_end_counts_only_once_it_is_on_disk() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, millis(5_000));
    cell.settle_durably();
    cell.granted(1).expect("granted");
    for _ in 0..600 {
        cell.pass(Duration::from_millis(10));
        cell.settle();
    }
    assert!([1, 2, 3].into_iter().all(|id| cell.durably_held(id).is_some()));
    cell.settle_durably();
    assert!([1, 2, 3].into_iter().all(|id| cell.durably_held(id).is_none()));
}

/// A plain renewal of a lease whose register is held never cuts it short, and moves its end only
/// later.
#[test]
fn a_renewal_of_a_durable_lease_is_a_change() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, millis(20_000));
    cell.settle_durably();
    let tenure = cell.granted(1).expect("granted");
    for (token, ttl, lasts) in [(2, 5, 20_000), (3, 50, 50_000)] {
        let now = cell.clock(2);
        let renew = Renew {
            token: Token(token),
            name: name(NAME),
            holder: Holder::NONE,
            tenure,
            ttl: Duration::from_secs(ttl),
        };
        cell.shard(2).renew(now, renew).expect("in bounds");
        cell.collect();
        cell.settle_durably();
        match cell.answers(token)[..] {
            [Event::Kept { fence, lasts: kept, .. }] => {
                assert_eq!((*fence, *kept), (tenure, millis(lasts)));
            }
            ref answers => panic!("{answers:?}"),
        }
    }
}

/// An ordinary lease becomes durable, gets an earlier end, and a later one.
#[test]
fn the_holder_of_an_ordinary_lease_makes_it_endless() {
    let mut cell = durable_cell();
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    cell.settle_durably();
    let tenure = cell.granted(1).expect("granted");
    for (token, lasts) in [(2, millis(30_000)), (3, millis(15_000)), (4, Lasts::FOREVER)] {
        cell.keep(3, token, tenure, lasts);
        cell.settle_durably();
        assert!(
            matches!(cell.answers(token)[..], [Event::Kept { fence, .. }] if *fence == tenure),
            "{:?}",
            cell.answers(token)
        );
    }
    cell.live_durably(Duration::from_secs(40));
    assert!(cell.durably_held(2).is_some());
    let never_granted = cell::tenure(9, 3);
    cell.keep(3, 5, never_granted, Lasts::FOREVER);
    cell.live_durably(SECOND);
    assert!(matches!(cell.answers(5)[..], [Event::NotHeld { .. }]), "{:?}", cell.answers(5));
}

/// An inspection reports the lease with its end, and the fence.
#[test]
fn an_inspection_shows_a_durable_lease() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let tenure = cell.granted(1).expect("granted");
    cell.live_durably(Duration::from_secs(20));
    let now = cell.clock(2);
    cell.shard(2).inspect(now, Token(2), name(NAME)).expect("room");
    cell.collect();
    cell.settle_durably();
    let [Event::Inspected { accepted: Some(lease), .. }] = cell.answers(2)[..] else {
        panic!("{:?}", cell.answers(2));
    };
    assert_eq!((lease.seen.tenure, lease.lasts()), (tenure, Lasts::FOREVER));
    assert_eq!(lease.seen.label.holder(), Holder::new("me").expect("short"));
}

/// K9, P8: the client of a durable acquire leaves while it is stored. Nothing of it stays.
#[test]
fn an_abandoned_acquire_leaves_no_register() {
    let mut cell = durable_cell();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.accept();
    assert!(cell.write_disk(1));
    let now = cell.clock(1);
    assert!(cell.shard(1).abandon(now, name(NAME), Token(1)));
    cell.collect();
    cell.live_durably(Duration::from_secs(5));
    assert_eq!(cell.granted(1), None);
    cell.acquire_for(2, 2, NO_WAIT, TTL);
    cell.live_durably(SECOND);
    assert!(cell.granted(2).is_some(), "{:?}", cell.answers(2));
    assert_eq!(cell.shard(3).durable_counts().registers, 0);
}

#[test]
fn members_without_a_disk_or_without_room_refuse_it() {
    let start = Start::NewCell { counter: 0, disk: false };
    let adjust = |config: &mut Config| config.durability = Durability::Refused;
    let mut cell = TestCell::started(3, 0, adjust, start);
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let why = |cell: &TestCell, token| match cell.answers(token)[..] {
        [Event::NotKept { why, .. }] => Some(*why),
        _ => None,
    };
    assert_eq!(why(&cell, 1), Some(StoreRefusal::NoDisk));
    let mut cell = durable_cell();
    for id in [2, 3] {
        cell.shard(id).set_durable_room(false);
    }
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.live_durably(SECOND);
    assert_eq!(why(&cell, 1), Some(StoreRefusal::NoRoom));
    cell.live_durably(Duration::from_secs(3));
    assert!([1, 2, 3].into_iter().all(|id| cell.durably_held(id).is_none()));
    cell.acquire_for(2, 2, NO_WAIT, TTL);
    cell.live_durably(SECOND);
    assert!(cell.granted(2).is_some(), "ordinary leases need no room");
}

/// K14: without a disk, registers in memory still keep the lease for as long as a majority runs.
#[test]
fn a_volatile_lease_lasts_as_long_as_a_majority_runs() {
    let start = Start::NewCell { counter: 0, disk: false };
    let adjust = |config: &mut Config| config.durability = Durability::Volatile;
    let mut cell = TestCell::started(3, 0, adjust, start);
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle();
    let held = cell.granted(1).expect("stored by all");
    cell.live_durably(Duration::from_secs(30));
    cell.acquire_for(2, 2, NO_WAIT, TTL);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Denied { by, .. }] if by.tenure == held));
}

/// K13: in a joint epoch the new set gets every register, and the change may end only then.
#[test]
fn registers_move_to_the_members_of_the_next_epoch() {
    let start = Start::NewCell { counter: 0, disk: true };
    let members = |config: &mut Config| {
        let old: Vec<NodeId> = (1..=3).map(node).collect();
        config.cell = Cell::new(&old, config.cell.max_lease(), config.cell.drift()).expect("valid");
    };
    let mut cell = TestCell::started(4, 0, members, start);
    cell.collect();
    cell.settle_durably();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    let held = cell.granted(1).expect("granted");
    adopt(&mut cell, 1, &[1, 2, 3], &[1, 2, 4]);
    assert!(cell.shard(1).durable_left() > 0);
    // Member 3 is dead: it is the one that is replaced.
    let mut lived = 0;
    while cell.shard(1).durable_left() + cell.shard(2).durable_left() > 0 {
        live_without(&mut cell, Duration::from_millis(100), 3);
        lived += 1;
        assert!(lived < 100, "{:?}", cell.shard(1).durable_register(name(NAME)));
    }
    assert_eq!(cell.durably_held(4).map(|it| it.0), Some(held));
    adopt(&mut cell, 2, &[1, 2, 4], &[]);
    live_without(&mut cell, Duration::from_secs(2), 3);
    cell.release(4, 2, held);
    live_without(&mut cell, Duration::from_secs(2), 3);
    assert_eq!(is_held(&cell, 2), Some(true), "{:?}", cell.answers(2));
}

/// K13: what the new set of an aborted change stored says nothing about the next new set, and a
/// restart forgets what the members told.
#[test]
fn registers_have_to_move_in_every_joint_epoch() {
    let start = Start::NewCell { counter: 0, disk: true };
    let alone = |config: &mut Config| {
        config.cell =
            Cell::new(&[node(1)], config.cell.max_lease(), config.cell.drift()).expect("valid");
    };
    let mut cell = TestCell::started(3, 0, alone, start);
    cell.collect();
    cell.settle_durably();
    cell.acquire_durable(1, 1, Lasts::FOREVER);
    cell.settle_durably();
    assert!(cell.granted(1).is_some());
    assert_eq!(cell.shard(1).durable_left(), 0, "there is no change");
    adopt(&mut cell, 1, &[1], &[2]);
    // Without the new member nothing moves, however long it takes.
    live_without(&mut cell, Duration::from_secs(30), 2);
    assert_eq!(cell.shard(1).durable_left(), 1);
    cell.live_durably(Duration::from_secs(2));
    assert_eq!(cell.shard(1).durable_left(), 0);
    cell.crash(1);
    assert_eq!(cell.shard(1).durable_left(), 1, "it has to hear of that again");
    cell.letters.clear();
    cell.live_durably(Duration::from_secs(62));
    assert_eq!(cell.shard(1).durable_left(), 0);
    adopt(&mut cell, 2, &[1], &[]);
    adopt(&mut cell, 3, &[1], &[3]);
    assert_eq!(cell.shard(1).durable_left(), 1, "node 3 has not been asked");
    cell.live_durably(Duration::from_secs(2));
    assert_eq!(cell.shard(1).durable_left(), 0);
}

fn adopt(cell: &mut TestCell, epoch: u32, old: &[u16], new: &[u16]) {
    let ids = |set: &[u16]| -> Vec<NodeId> { set.iter().map(|id| node(*id)).collect() };
    let (old, new) = (ids(old), ids(new));
    let now = cell.now;
    for shard in &mut cell.shards {
        let sets = Sets { old: &old, new: &new };
        let era = shard.config().cell.era();
        let next = shard.config().cell.in_epoch(epoch, era, sets).expect("valid");
        shard.adopt(now, next, Ballot::ZERO);
    }
    cell.letters.clear();
    cell.collect();
}
