//! What must be true of a data folder, whatever disk it is on; a real one where that matters.

mod power;
mod real;
mod writer;

use std::io::ErrorKind;
use std::time::Duration;

use paxoslease_core::{
    Acquire, BALLOT_BLOCK, Cell, Config, Drift, Event, Holder, Instant, Name, NodeId, Record,
    Shard, Snapshot, Token, Ttl,
};

use super::*;

pub(super) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

pub(super) fn ttl(millis: u32) -> Ttl {
    Ttl::from_millis(millis).expect("not zero")
}

/// With no lease ceiling for zero.
pub(super) fn record(ballot_ceiling: u64, lease_millis: u32) -> Record {
    Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_millis) }
}

pub(super) const PLAIN: Wishes = Wishes {
    new_cell: false,
    reset: false,
    max_lease: Ttl::from_millis(60_000).unwrap(),
    counter: 1 << 40,
};

fn config() -> Config {
    let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
    let cell = Cell::new(&[node(1)], PLAIN.max_lease, drift).expect("a cell of one");
    Config::new(node(1), cell, 7)
}

fn on(disk: &MemoryDisk) -> Folder {
    Folder::on(disk.clone(), node(1))
}

pub(super) fn acquire(shard: &mut Shard, name: &str, ttl: Duration) {
    let (token, holder, wait) = (Token(0), Holder::NONE, Duration::ZERO);
    let name = Name::new(name).expect("a name");
    let acquire = Acquire { token, name, holder, ttl, wait };
    shard.acquire(Instant::ZERO, acquire).expect("room");
}

/// Writes what the shard wants written.
fn settle(shard: &mut Shard, folder: &mut Folder) {
    while let Some(event) = shard.poll_event() {
        if let Event::Persist(record) = event {
            folder.write_record(record).expect("room");
            shard.record_written(Instant::ZERO, record);
        }
    }
}

/// A shard of a cell of one node that holds these names.
fn holding(disk: &MemoryDisk, names: &[&str]) -> Shard {
    let mut folder = on(disk);
    let start = folder.start(Wishes { new_cell: true, ..PLAIN }).expect("starts");
    let mut shard = start.shard(config(), Instant::ZERO, |_| true);
    settle(&mut shard, &mut folder);
    for name in names {
        acquire(&mut shard, name, Duration::from_secs(10));
        settle(&mut shard, &mut folder);
    }
    assert_eq!(held(&shard).len(), names.len());
    shard
}

fn held(shard: &Shard) -> Vec<String> {
    let slots = 0..shard.slot_count();
    let leases = slots.filter_map(|slot| shard.lease_in(Instant::ZERO, slot, |_| true));
    let mut names: Vec<String> = leases.map(|lease| lease.label.name().to_string()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_is_fresh_until_a_record_was_written() {
    let disk = MemoryDisk::default();
    assert_eq!(on(&disk).load().expect("loads"), Loaded::Fresh);
    on(&disk).write_record(record(5, 100)).expect("room");
    assert_eq!(on(&disk).load().expect("loads"), Loaded::Record(record(5, 100)));
}

#[test]
fn a_first_start_that_crashed_before_its_record_was_written_was_none() {
    let disk = MemoryDisk::default();
    for _ in 0..2 {
        let start = on(&disk).start(PLAIN).expect("starts");
        assert!(matches!(start, Startup::NoRecord { disk: true, reset: false, .. }), "{start:?}");
    }
}

#[test]
fn a_record_that_is_gone_is_refused_and_a_reset_waits_for_max_lease() {
    let disk = MemoryDisk::default();
    on(&disk).write_record(record(5, 100)).expect("room");
    disk.tamper(DataFile::Record, None);
    assert!(matches!(on(&disk).start(PLAIN), Err(StableError::Lost { .. })));
    let new_cell = Wishes { new_cell: true, ..PLAIN };
    assert!(matches!(on(&disk).start(new_cell), Err(StableError::Lost { .. })));
    let reset = Wishes { reset: true, ..new_cell };
    let (counter, longest) = (PLAIN.counter, PLAIN.max_lease);
    let anew = Startup::NoRecord { counter, longest, disk: true, reset: true };
    assert_eq!(on(&disk).start(reset).expect("starts"), anew);
    assert!(on(&disk).start(PLAIN).is_err(), "and still is, until a record was written");
    on(&disk).write_record(record(6, 100)).expect("room");
    assert_eq!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(record(7, 100)));
}

#[test]
fn a_record_with_any_byte_flipped_is_refused() {
    let disk = MemoryDisk::default();
    on(&disk).write_record(record(5, 100)).expect("room");
    let bytes = disk.read(DataFile::Record).expect("reads").expect("is there");
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        disk.tamper(DataFile::Record, Some(flipped));
        assert!(matches!(on(&disk).start(PLAIN), Err(StableError::Corrupt { .. })), "byte {at}");
        assert!(on(&disk).start(Wishes { reset: true, ..PLAIN }).is_ok(), "byte {at}");
    }
    for len in 0..bytes.len() {
        disk.tamper(DataFile::Record, Some(bytes[..len].to_vec()));
        assert!(matches!(on(&disk).load(), Err(StableError::Corrupt { .. })), "{len} bytes");
    }
}

#[test]
fn the_record_of_another_node_is_refused() {
    let disk = MemoryDisk::default();
    on(&disk).write_record(record(5, 100)).expect("room");
    let error = Folder::on(disk, node(2)).start(PLAIN).expect_err("not ours");
    assert!(matches!(error, StableError::OtherNode { found: 1, .. }));
    assert!(error.to_string().contains("belongs to node 1, and this is node 2"), "{error}");
}

#[test]
fn every_refusal_says_how_to_begin_anew_and_what_that_rests_on() {
    let path = || "record".into();
    let why = paxoslease_wire::StableError::Truncated { len: 3 };
    for error in [
        StableError::Lost { path: path() },
        StableError::Corrupt { path: path(), why },
        StableError::OtherNode { path: path(), node: node(1), found: 2 },
    ] {
        let text = error.to_string();
        for word in ["--reset-stable-record", "max_lease", "wall clock", "one node at a time"] {
            assert!(text.contains(word), "{word} in: {text}");
        }
    }
}

#[test]
fn a_reset_keeps_counting_what_is_still_legible() {
    let disk = MemoryDisk::default();
    on(&disk).write_record(record(PLAIN.counter + 9, 90_000)).expect("room");
    let start = on(&disk).start(Wishes { reset: true, ..PLAIN }).expect("starts");
    let (counter, longest) = (PLAIN.counter + 10, ttl(90_000));
    assert_eq!(start, Startup::NoRecord { counter, longest, disk: true, reset: true });
}

#[test]
fn a_snapshot_restores_the_leases_of_every_shard_and_is_used_once() {
    let disk = MemoryDisk::default();
    let one = holding(&disk, &["a", "b"]).stop(Instant::ZERO);
    let other = {
        let disk = MemoryDisk::default();
        holding(&disk, &["c"]).stop(Instant::ZERO)
    };
    assert!(on(&disk).write_snapshot(&[one, other]).expect("room"));
    let start = on(&disk).start(PLAIN).expect("starts");
    // The process dies right here, before it has done anything with it.
    assert!(matches!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(_)));
    let all = start.shard(config(), Instant::ZERO, |_| true);
    assert_eq!(held(&all), ["a", "b", "c"]);
    assert_eq!(all.quarantine_remaining(Instant::ZERO), Duration::ZERO);
    let some = start.shard(config(), Instant::ZERO, |name| name.as_bytes() != b"b");
    assert_eq!(held(&some), ["a", "c"]);
    assert_eq!(all.record().lease_ceiling, Some(ttl(10_000)), "stays in force");
}

#[test]
fn a_snapshot_of_many_chunks_comes_back_whole() {
    let disk = MemoryDisk::default();
    let names: Vec<String> = (0..1000).map(|i| format!("{i:0>300}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stopped: Option<Snapshot> = holding(&disk, &names).stop(Instant::ZERO);
    on(&disk).write_snapshot(&[stopped]).expect("room");
    let len = disk.read(DataFile::Snapshot).expect("reads").expect("is there").len();
    assert!(len > 3 * CHUNK_LEN);
    let start = on(&disk).start(PLAIN).expect("starts");
    assert_eq!(held(&start.shard(config(), Instant::ZERO, |_| true)), names);
}

#[test]
fn a_shard_without_a_snapshot_means_none_for_the_node() {
    let disk = MemoryDisk::default();
    let one = holding(&disk, &["a"]).stop(Instant::ZERO);
    assert!(!on(&disk).write_snapshot(&[one, None]).expect("nothing to do"));
    assert!(matches!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(_)));
}

#[test]
fn a_snapshot_that_is_corrupt_or_anothers_is_removed_and_counts_as_none() {
    let disk = MemoryDisk::default();
    let stopped = holding(&disk, &["a"]).stop(Instant::ZERO);
    on(&disk).write_snapshot(&[stopped]).expect("room");
    let bytes = disk.read(DataFile::Snapshot).expect("reads").expect("is there");
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x01;
        disk.tamper(DataFile::Snapshot, Some(flipped));
        assert!(matches!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(_)), "byte {at}");
        assert_eq!(disk.read(DataFile::Snapshot).expect("reads"), None, "byte {at}");
    }
    let others = MemoryDisk::default();
    others.tamper(DataFile::Snapshot, Some(bytes));
    let mut folder = Folder::on(others.clone(), node(2));
    folder.write_record(record(5, 100)).expect("room");
    assert!(matches!(folder.start(PLAIN).expect("starts"), Startup::Crash(_)));
    assert_eq!(others.read(DataFile::Snapshot).expect("reads"), None);
}

/// A backup, or a removal that was not durable after all.
#[test]
fn a_snapshot_that_reappears_is_not_used_again_whatever_was_done_between() {
    let disk = MemoryDisk::default();
    let stopped = holding(&disk, &["a"]).stop(Instant::ZERO);
    on(&disk).write_snapshot(&[stopped]).expect("room");
    let bytes = disk.read(DataFile::Snapshot).expect("reads").expect("is there");
    let start = on(&disk).start(PLAIN).expect("starts");
    assert!(matches!(start, Startup::Snapshot(..)), "{start:?}");
    // The process votes a little, and dies before it has written anything.
    for _ in 0..3 {
        disk.tamper(DataFile::Snapshot, Some(bytes.clone()));
        let start = on(&disk).start(PLAIN).expect("starts");
        assert!(matches!(start, Startup::Crash(_)), "{start:?}");
        assert_eq!(disk.read(DataFile::Snapshot).expect("reads"), None);
    }
    // It runs, and stops cleanly.
    let mut folder = on(&disk);
    let start = folder.start(PLAIN).expect("starts");
    let shard = start.shard(config(), Instant::ZERO, |_| true);
    let over_at = Instant::ZERO.after(Duration::from_secs(70));
    assert!(folder.write_snapshot(&[shard.stop(over_at)]).expect("room"));
    let newer = disk.read(DataFile::Snapshot).expect("reads").expect("is there");
    disk.tamper(DataFile::Snapshot, Some(bytes));
    assert!(matches!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(_)));
    disk.tamper(DataFile::Snapshot, Some(newer));
    assert!(matches!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(_)));
}

#[test]
fn every_start_has_a_higher_counter_than_the_one_before() {
    let disk = MemoryDisk::default();
    drop(holding(&disk, &["a"]));
    let mut last = 0;
    for _ in 0..5 {
        let counter = on(&disk).start(PLAIN).expect("starts").counter();
        assert!(counter > last);
        last = counter;
    }
}

#[test]
fn a_start_that_cannot_raise_the_ceiling_is_refused() {
    let disk = MemoryDisk::default();
    let stopped = holding(&disk, &["a"]).stop(Instant::ZERO);
    on(&disk).write_snapshot(&[stopped]).expect("room");
    assert!(matches!(on(&disk).start(PLAIN).expect("starts"), Startup::Snapshot(..)));
    disk.set_full(true);
    assert!(matches!(on(&disk).start(PLAIN), Err(StableError::Io { .. })));
}

#[test]
fn a_snapshot_that_cannot_be_removed_is_not_used() {
    let disk = MemoryDisk::default();
    let stopped = holding(&disk, &["a"]).stop(Instant::ZERO);
    on(&disk).write_snapshot(&[stopped]).expect("room");
    disk.set_fault(Some(ErrorKind::ReadOnlyFilesystem));
    assert!(matches!(on(&disk).start(PLAIN), Err(StableError::Io { .. })));
}

#[test]
fn a_full_disk_keeps_the_record_it_has() {
    let disk = MemoryDisk::default();
    on(&disk).write_record(record(5, 100)).expect("room");
    disk.set_full(true);
    let error = on(&disk).write_record(record(9, 100)).expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let stopped = Some(holding(&MemoryDisk::default(), &["a"]).stop(Instant::ZERO)).flatten();
    assert!(on(&disk).write_snapshot(&[stopped]).is_err());
    disk.set_full(false);
    assert_eq!(on(&disk).start(PLAIN).expect("starts"), Startup::Crash(record(6, 100)));
}

#[test]
fn the_start_follows_from_what_is_there_and_what_is_wished() {
    let seen = record(5, 100);
    let (counter, longest) = (PLAIN.counter, PLAIN.max_lease);
    let (new_cell, reset) =
        (Wishes { new_cell: true, ..PLAIN }, Wishes { reset: true, new_cell: true, ..PLAIN });
    let leases = || Some(vec![1, 2, 3]);
    let unknown = |disk, reset| Startup::NoRecord { counter, longest, disk, reset };
    let known = Some(Loaded::Record(seen));
    for (loaded, snapshot, wishes, expected) in [
        (None, None, PLAIN, unknown(false, false)),
        (None, None, new_cell, Startup::NewCell { counter, disk: false }),
        (Some(Loaded::Fresh), None, PLAIN, unknown(true, false)),
        (Some(Loaded::Fresh), None, new_cell, Startup::NewCell { counter, disk: true }),
        (Some(Loaded::Fresh), None, reset, unknown(true, true)),
        (Some(Loaded::Fresh), leases(), PLAIN, unknown(true, false)),
        (known, None, PLAIN, Startup::Crash(seen)),
        (known, None, new_cell, Startup::Crash(seen)),
        (known, leases(), new_cell, Startup::Snapshot(seen, vec![1, 2, 3])),
        (known, leases(), reset, unknown(true, true)),
    ] {
        assert_eq!(Startup::decide(loaded, snapshot, wishes), expected);
    }
}

#[test]
fn a_shard_begins_with_the_record_the_start_names() {
    let seen = record(5, 100);
    for loaded in [None, Some(Loaded::Fresh), Some(Loaded::Record(seen))] {
        for wishes in [PLAIN, Wishes { new_cell: true, ..PLAIN }] {
            let start = Startup::decide(loaded, None, wishes);
            let shard = start.shard(config(), Instant::ZERO, |_| true);
            assert_eq!(shard.record(), start.record().unwrap_or_default(), "{start:?}");
        }
    }
}

#[test]
fn the_first_record_is_on_disk_before_any_ballot_is_used() {
    let disk = MemoryDisk::default();
    let start = on(&disk).start(Wishes { new_cell: true, ..PLAIN }).expect("starts");
    let mut shard = start.shard(config(), Instant::ZERO, |_| true);
    let Some(Event::Persist(first)) = shard.poll_event() else { panic!("a record at once") };
    assert_eq!(first.ballot_ceiling, PLAIN.counter + 1 + BALLOT_BLOCK);
}

#[test]
fn every_start_says_why_it_waits_or_does_not() {
    let says = |loaded, snapshot, wishes| Startup::decide(loaded, snapshot, wishes).to_string();
    let known = Some(Loaded::Record(record(5, 15_000)));
    let fresh = says(Some(Loaded::Fresh), None, PLAIN);
    assert_eq!(fresh, "no stable record: waiting max_lease (60s) before voting");
    assert!(says(known, None, PLAIN).contains("(15s)"));
    assert!(says(known, Some(vec![]), PLAIN).contains("voting at once"));
    assert!(says(None, None, PLAIN).contains("wall clock not going back across a restart"));
    assert!(says(known, None, Wishes { reset: true, ..PLAIN }).contains("wall clock"));
}
