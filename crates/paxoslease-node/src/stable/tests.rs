//! Data folders on a disk in memory, and on a real one where that matters.

mod power;
mod real;
mod writer;

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use paxoslease_core::{
    Acquire, BALLOT_BLOCK, Cell, Config, Drift, Event, Holder, Instant, Name, NodeId, Record,
    Shard, Snapshot, Start, Token, Ttl,
};

use super::files::Files as _;
use super::*;

pub(super) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

/// Zero milliseconds stand for no lease ceiling.
pub(super) fn record(ballot_ceiling: u64, lease_millis: u32) -> Record {
    Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_millis) }
}

pub(super) const PLAIN: Wishes = Wishes {
    new_cell: false,
    reset: false,
    max_lease: Ttl::from_millis(60_000).unwrap(),
    counter: 1 << 40,
};
const RECORD: &str = "/var/node/record";
const SNAPSHOT: &str = "/var/node/snapshot";
const NEW_CELL: Wishes = Wishes { new_cell: true, ..PLAIN };
const RESET: Wishes = Wishes { reset: true, ..PLAIN };

/// A start without a record.
const fn no_record(disk: bool, reset: bool) -> Startup {
    let (counter, longest) = (PLAIN.counter, PLAIN.max_lease);
    Startup::Empty { start: Start::NoRecord { counter, longest, disk }, reset }
}

const fn crash(record: Record) -> Startup {
    Startup::Empty { start: Start::Crash(record), reset: false }
}

fn config() -> Config {
    let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
    let cell = Cell::new(&[node(1)], PLAIN.max_lease, drift).expect("a cell of one");
    Config::new(node(1), cell, 7)
}

impl Startup {
    fn new_shard(&self) -> Shard {
        self.shard(config(), Instant::ZERO, |_| true)
    }
}

impl VolatileFiles {
    fn with_record(record: Record) -> Self {
        let disk = Self::default();
        disk.folder().write_record(record).expect("room");
        disk
    }

    /// A node held leases of these names, and stopped cleanly.
    fn with_snapshot(names: &[&str]) -> Self {
        let disk = Self::default();
        let stopped = holding(&disk, names).stop(Instant::ZERO);
        assert!(disk.folder().write_snapshot(&[stopped]).expect("room"));
        disk
    }

    fn folder(&self) -> Folder {
        Folder::open_volatile(self, node(1)).expect("opens")
    }

    fn loaded(&self) -> Loaded {
        self.folder().load().expect("loads")
    }

    fn start(&self, wishes: Wishes) -> Result<Startup, StableError> {
        self.folder().start(wishes)
    }

    fn started(&self) -> Startup {
        self.start(PLAIN).expect("starts")
    }

    fn starts_after_a_crash(&self) -> bool {
        matches!(self.started(), Startup::Empty { start: Start::Crash(_), .. })
    }

    fn content(&self, file: &str) -> Option<Vec<u8>> {
        self.read(Path::new(file)).ok()
    }

    /// The record, while another process may write the next one.
    fn record(&self) -> Record {
        decode_record(node(1), &self.content(RECORD).expect("written")).expect("a record")
    }

    fn snapshot(&self) -> Vec<u8> {
        self.content(SNAPSHOT).expect("is there")
    }

    /// Replaces or removes a file behind the back of the node.
    fn tamper(&self, file: &str, bytes: Option<Vec<u8>>) {
        let path = Path::new(file);
        if self.exists(path) {
            self.unlink(path).expect("is there");
        }
        if let Some(bytes) = bytes {
            self.create(path).and_then(|mut file| file.write_all(&bytes)).expect("room");
        }
    }
}

fn acquire(shard: &mut Shard, name: &str, ttl: Duration) {
    let (token, holder, wait) = (Token(0), Holder::NONE, Duration::ZERO);
    let name = Name::new(name).expect("a name");
    let acquire = Acquire { token, name, holder, ttl, wait };
    shard.acquire(Instant::ZERO, acquire).expect("room");
}

/// Writes the records that the shard asks for.
fn settle(shard: &mut Shard, folder: &mut Folder) {
    while let Some(event) = shard.poll_event() {
        if let Event::Persist(record) = event {
            folder.write_record(record).expect("room");
            shard.record_written(Instant::ZERO, record);
        }
    }
}

/// A shard of a cell of one node that holds these names.
fn holding(disk: &VolatileFiles, names: &[&str]) -> Shard {
    let mut folder = disk.folder();
    let mut shard = folder.start(NEW_CELL).expect("starts").new_shard();
    settle(&mut shard, &mut folder);
    for name in names {
        acquire(&mut shard, name, Duration::from_secs(10));
        settle(&mut shard, &mut folder);
    }
    assert_eq!(held(&shard).len(), names.len());
    shard
}

/// The snapshot of a shard that holds this name, on another disk.
fn snapshot_of(name: &str) -> Option<Snapshot> {
    holding(&VolatileFiles::default(), &[name]).stop(Instant::ZERO)
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
    let disk = VolatileFiles::default();
    assert_eq!(disk.loaded(), Loaded::Fresh);
    for _ in 0..2 {
        assert_eq!(disk.started(), no_record(true, false), "no start before wrote a record");
    }
    disk.folder().write_record(record(5, 100)).expect("room");
    assert_eq!(disk.loaded(), Loaded::Record(record(5, 100)));
}

#[test]
fn a_lost_record_is_refused_and_a_reset_waits_for_max_lease() {
    let disk = VolatileFiles::with_record(record(5, 100));
    disk.tamper(RECORD, None);
    for wishes in [PLAIN, NEW_CELL] {
        assert!(matches!(disk.start(wishes), Err(StableError::Lost { .. })));
    }
    let reset = Wishes { reset: true, ..NEW_CELL };
    assert_eq!(disk.start(reset).expect("starts"), no_record(true, true));
    assert!(disk.start(PLAIN).is_err(), "it stays refused until a record was written");
    disk.folder().write_record(record(6, 100)).expect("room");
    assert_eq!(disk.started(), crash(record(7, 100)));
}

#[test]
fn a_record_with_any_byte_flipped_or_cut_off_is_refused() {
    let disk = VolatileFiles::with_record(record(5, 100));
    let bytes = disk.content(RECORD).expect("is there");
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        disk.tamper(RECORD, Some(flipped));
        assert!(matches!(disk.start(PLAIN), Err(StableError::Corrupt { .. })), "byte {at}");
        assert!(disk.start(RESET).is_ok(), "byte {at}");
        disk.tamper(RECORD, Some(bytes[..at].to_vec()));
        assert!(matches!(disk.folder().load(), Err(StableError::Corrupt { .. })), "{at} bytes");
    }
}

#[test]
fn the_record_of_another_node_is_refused() {
    let disk = VolatileFiles::with_record(record(5, 100));
    let mut folder = Folder::open_volatile(&disk, node(2)).expect("opens");
    let error = folder.start(PLAIN).expect_err("not ours");
    assert!(matches!(error, StableError::OtherNode { found: 1, .. }));
    assert!(error.to_string().contains("belongs to node 1, and this is node 2"), "{error}");
}

#[test]
fn every_refusal_explains_a_reset_and_its_risks() {
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
fn a_reset_respects_a_readable_record() {
    let disk = VolatileFiles::with_record(record(PLAIN.counter + 9, 90_000));
    let (counter, longest) = (PLAIN.counter + 10, Ttl::from_millis(90_000).expect("not zero"));
    let start = Start::NoRecord { counter, longest, disk: true };
    let started = disk.start(RESET).expect("starts");
    assert_eq!(started, Startup::Empty { start, reset: true });
    // R6: leases that are longer than today's `max_lease` may be held.
    let mut shard = started.new_shard();
    assert!(shard.quarantine_remaining(Instant::ZERO) >= longest.as_duration());
    assert!(matches!(shard.poll_event(), Some(Event::Persist(_))), "the new record");
}

#[test]
fn a_snapshot_restores_the_leases_of_every_shard_once() {
    let disk = VolatileFiles::default();
    let one = holding(&disk, &["a", "b"]).stop(Instant::ZERO);
    assert!(disk.folder().write_snapshot(&[one, snapshot_of("c")]).expect("room"));
    let start = disk.started();
    // The process dies before it has used the snapshot.
    assert!(disk.starts_after_a_crash());
    let all = start.new_shard();
    assert_eq!(held(&all), ["a", "b", "c"]);
    assert_eq!(all.quarantine_remaining(Instant::ZERO), Duration::ZERO);
    let some = start.shard(config(), Instant::ZERO, |name| name.as_bytes() != b"b");
    assert_eq!(held(&some), ["a", "c"]);
    assert_eq!(all.record().lease_ceiling, Ttl::from_millis(10_000), "stays in force");
}

#[test]
fn a_snapshot_of_many_chunks_comes_back_whole() {
    let names: Vec<String> = (0..1000).map(|i| format!("{i:0>300}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let disk = VolatileFiles::with_snapshot(&names);
    assert!(disk.snapshot().len() > 3 * CHUNK_LEN);
    assert_eq!(held(&disk.started().new_shard()), names);
}

#[test]
fn without_the_snapshot_of_one_shard_the_node_has_none() {
    let disk = VolatileFiles::default();
    let one = holding(&disk, &["a"]).stop(Instant::ZERO);
    assert!(!disk.folder().write_snapshot(&[one, None]).expect("nothing to do"));
    assert!(disk.starts_after_a_crash());
}

#[test]
fn a_corrupt_or_foreign_snapshot_is_removed_and_not_used() {
    let disk = VolatileFiles::with_snapshot(&["a"]);
    let bytes = disk.snapshot();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x01;
        disk.tamper(SNAPSHOT, Some(flipped));
        assert!(disk.starts_after_a_crash(), "byte {at}");
        assert_eq!(disk.content(SNAPSHOT), None, "byte {at}");
    }
    let others = VolatileFiles::default();
    drop(others.folder());
    others.tamper(SNAPSHOT, Some(bytes));
    let mut folder = Folder::open_volatile(&others, node(2)).expect("opens");
    folder.write_record(record(5, 100)).expect("room");
    assert_eq!(folder.start(PLAIN).expect("starts"), crash(record(6, 100)));
    assert_eq!(others.content(SNAPSHOT), None);
}

/// It came from a backup, or its removal was not durable after all.
#[test]
fn a_snapshot_that_reappears_is_never_used_again() {
    let disk = VolatileFiles::with_snapshot(&["a"]);
    let bytes = disk.snapshot();
    assert!(matches!(disk.started(), Startup::Snapshot(..)));
    // The process votes a little, and dies before it has written anything.
    for _ in 0..3 {
        disk.tamper(SNAPSHOT, Some(bytes.clone()));
        assert!(disk.starts_after_a_crash());
        assert_eq!(disk.content(SNAPSHOT), None);
    }
    // It runs, and stops cleanly.
    let mut folder = disk.folder();
    let shard = folder.start(PLAIN).expect("starts").new_shard();
    let over_at = Instant::ZERO.after(Duration::from_secs(70));
    assert!(folder.write_snapshot(&[shard.stop(over_at)]).expect("room"));
    let newer = disk.snapshot();
    for snapshot in [bytes, newer] {
        disk.tamper(SNAPSHOT, Some(snapshot));
        assert!(disk.starts_after_a_crash());
    }
}

#[test]
fn every_start_has_a_higher_counter_than_the_one_before() {
    let disk = VolatileFiles::default();
    drop(holding(&disk, &["a"]));
    let counters: Vec<u64> = (0..5).map(|_| disk.started().counter()).collect();
    assert!(counters[0] > 0 && counters.is_sorted_by(|one, next| one < next), "{counters:?}");
}

#[test]
fn a_start_that_cannot_raise_the_ceiling_is_refused() {
    let disk = VolatileFiles::with_snapshot(&["a"]);
    assert!(matches!(disk.started(), Startup::Snapshot(..)));
    let mut folder = disk.folder();
    disk.set_fault(Some(ErrorKind::StorageFull));
    assert!(matches!(folder.start(PLAIN), Err(StableError::Io { .. })));
}

#[test]
fn a_snapshot_that_cannot_be_removed_is_not_used() {
    let disk = VolatileFiles::with_snapshot(&["a"]);
    let mut folder = disk.folder();
    disk.set_fault(Some(ErrorKind::ReadOnlyFilesystem));
    assert!(matches!(folder.start(PLAIN), Err(StableError::Io { .. })));
}

#[test]
fn a_full_disk_keeps_the_record_it_has() {
    let disk = VolatileFiles::with_record(record(5, 100));
    let mut folder = disk.folder();
    disk.set_fault(Some(ErrorKind::StorageFull));
    let error = folder.write_record(record(9, 100)).expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(folder.write_snapshot(&[snapshot_of("a")]).is_err());
    disk.set_fault(None);
    assert_eq!(disk.started(), crash(record(6, 100)));
}

#[test]
fn the_start_follows_from_the_folder_and_the_wishes() {
    let seen = record(5, 100);
    let (fresh, known) = (Some(Loaded::Fresh), Some(Loaded::Record(seen)));
    let leases = || Some(vec![1, 2, 3]);
    let reset = Wishes { reset: true, ..NEW_CELL };
    let new_cell = |disk| Startup::Empty {
        start: Start::NewCell { counter: PLAIN.counter, disk },
        reset: false,
    };
    for (loaded, snapshot, wishes, expected) in [
        (None, None, PLAIN, no_record(false, false)),
        (None, None, NEW_CELL, new_cell(false)),
        (None, None, RESET, no_record(false, false)),
        (fresh, None, PLAIN, no_record(true, false)),
        (fresh, None, NEW_CELL, new_cell(true)),
        (fresh, None, reset, no_record(true, true)),
        (fresh, leases(), PLAIN, no_record(true, false)),
        (known, None, PLAIN, crash(seen)),
        (known, None, NEW_CELL, crash(seen)),
        (known, leases(), NEW_CELL, Startup::Snapshot(seen, vec![1, 2, 3])),
        (known, leases(), reset, no_record(true, true)),
    ] {
        let start = Startup::decide(loaded, snapshot, wishes);
        assert_eq!(start, expected, "{loaded:?}, {wishes:?}");
        if !matches!(start, Startup::Snapshot(..)) {
            assert_eq!(start.new_shard().record(), start.record().unwrap_or_default(), "{start:?}");
        }
    }
}

#[test]
fn the_first_record_is_on_disk_before_any_ballot_is_used() {
    let mut shard = VolatileFiles::default().start(NEW_CELL).expect("starts").new_shard();
    let Some(Event::Persist(first)) = shard.poll_event() else { panic!("a record at once") };
    assert_eq!(first.ballot_ceiling, PLAIN.counter + 1 + BALLOT_BLOCK);
}

#[test]
fn every_start_says_whether_and_why_it_waits() {
    let known = Some(Loaded::Record(record(5, 15_000)));
    for (loaded, snapshot, wishes, words) in [
        (
            Some(Loaded::Fresh),
            None,
            PLAIN,
            "this node has no record: it votes after max_lease (60s)",
        ),
        (Some(Loaded::Fresh), None, PLAIN, "--new-cell (in Rust: new_cell(true))"),
        (known, None, PLAIN, "(15s)"),
        (known, Some(vec![]), PLAIN, "voting at once"),
        (None, None, PLAIN, "wall clock that does not go back across a restart"),
        (known, None, RESET, "wall clock"),
    ] {
        let text = Startup::decide(loaded, snapshot, wishes).to_string();
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}
