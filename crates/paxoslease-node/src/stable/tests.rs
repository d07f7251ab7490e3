//! Data folders on a disk in memory, and on a real one where that matters.

mod durable;
mod durable_writer;
mod folder;
mod power;
mod real;
mod writer;

use std::fmt::Debug;
use std::io::{ErrorKind, Write as _};
use std::str::FromStr;
use std::time::Duration;

use paxoslease_core::{
    Acquire, Ballot, Birth, Cell, Change, Config, Configuration, DecisionNumber, Drift, Event,
    Holder, Instant, Member, Members, Name, NodeId, Record, Shard, Snapshot, StableConfiguration,
    Start, Token, Ttl, Vote,
};

use paxoslease_wire::ListUse;

use super::files::Files as _;
use super::*;

pub(super) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
}

/// Zero milliseconds stand for no lease ceiling.
pub(super) fn record(ballot_ceiling: u64, lease_millis: u32) -> Record {
    Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_millis) }
}

fn number<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a number")
}

/// A record as the scripts write it.
fn record_of(text: &str) -> Record {
    let (ballot_ceiling, lease_millis) = text.split_once('/').expect("a record");
    record(number(ballot_ceiling), number(lease_millis))
}

const MAX_LEASE: Ttl = Ttl::from_millis(60_000).unwrap();
/// Of the folders in these tests.
const BIRTH: Birth = Birth(77);

fn members(birth: Birth) -> Members {
    Members::new(vec![Member { node: node(1), birth, peer: "a:1".into() }]).expect("valid")
}

pub(super) fn plain() -> Wishes {
    Wishes {
        new_cell: false,
        reset: false,
        max_lease: MAX_LEASE,
        counter: 1 << 40,
        birth: BIRTH,
        list: members(Birth::UNKNOWN),
        proposes: false,
        durable: None,
    }
}

fn new_cell() -> Wishes {
    Wishes { new_cell: true, ..plain() }
}

fn reset() -> Wishes {
    Wishes { reset: true, ..plain() }
}

/// The record of a node that is no member yet.
pub(super) fn stable_record(ceilings: Record) -> StableRecord {
    StableRecord { birth: BIRTH, ceilings, configuration: None, has_durable: false }
}

/// A cell of one: epoch 1, with a vote of the node for the next epoch.
fn founded(vote: Vote) -> StableConfiguration {
    let founding = Change::Same(members(BIRTH));
    let configuration = Configuration::unfounded(&members(BIRTH)).after(&founding, Ballot::ZERO);
    StableConfiguration { configuration: configuration.expect("legal"), vote }
}

/// The record of the only member of a cell.
fn member_record(ceilings: Record) -> StableRecord {
    StableRecord { configuration: Some(founded(Vote::default())), ..stable_record(ceilings) }
}

const RECORD: &str = "/var/node/record";
const SNAPSHOT: &str = "/var/node/snapshot";

const fn crash(record: Record) -> Leases {
    Leases::None(Start::Crash(record))
}

fn config() -> Config {
    let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
    let cell = Cell::new(&[node(1)], MAX_LEASE, drift).expect("a cell of one");
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
        disk.folder().write_record(&member_record(record)).expect("room");
        disk
    }

    fn with_snapshot(names: &[&str]) -> Self {
        let disk = Self::default();
        disk.hold(names);
        disk
    }

    /// A node held leases of these names, and stopped cleanly.
    fn hold(&self, names: &[&str]) {
        let stopped = holding(self, names).stop(Instant::ZERO);
        assert!(self.folder().write_snapshot(&[stopped]).expect("room"));
    }

    fn folder(&self) -> Folder {
        Folder::open_volatile(self, node(1)).expect("opens")
    }

    fn start(&self, wishes: &Wishes) -> Result<Startup, StableError> {
        self.folder().start(wishes)
    }

    fn started(&self) -> Startup {
        self.start(&plain()).expect("starts")
    }

    fn starts_after_a_crash(&self) -> bool {
        matches!(self.started().leases, Leases::None(Start::Crash(_)))
    }

    fn content(&self, file: &str) -> Option<Vec<u8>> {
        self.read(Path::new(file)).ok()
    }

    /// The record, while another process may write the next one.
    fn record(&self) -> StableRecord {
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
            folder.write_record(&member_record(record)).expect("room");
            shard.record_written(Instant::ZERO, record);
        }
    }
}

/// A shard of a cell of one node that holds these names.
fn holding(disk: &VolatileFiles, names: &[&str]) -> Shard {
    let mut folder = disk.folder();
    if folder.load().expect("loads") == Loaded::Fresh {
        folder.write_record(&member_record(record(1 << 40, 0))).expect("room");
    }
    let mut shard = folder.start(&plain()).expect("starts").new_shard();
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
fn a_record_with_any_byte_flipped_or_cut_off_is_refused() {
    let disk = VolatileFiles::with_record(record(5, 100));
    let bytes = disk.content(RECORD).expect("is there");
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        disk.tamper(RECORD, Some(flipped));
        assert!(matches!(disk.start(&plain()), Err(StableError::Corrupt { .. })), "byte {at}");
        assert!(disk.start(&reset()).is_ok(), "byte {at}");
        disk.tamper(RECORD, Some(bytes[..at].to_vec()));
        assert!(matches!(disk.folder().load(), Err(StableError::Corrupt { .. })), "{at} bytes");
    }
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
    folder.write_record(&stable_record(record(5, 100))).expect("room");
    assert_eq!(folder.start(&plain()).expect("starts").leases, crash(record(6, 100)));
    assert_eq!(others.content(SNAPSHOT), None);
}

#[test]
fn every_start_has_a_higher_counter_than_the_one_before() {
    let disk = VolatileFiles::default();
    drop(holding(&disk, &["a"]));
    let counters: Vec<u64> = (0..5).map(|_| disk.started().counter()).collect();
    assert!(counters[0] > 0 && counters.is_sorted_by(|one, next| one < next), "{counters:?}");
}

/// R5: an earlier folder of that id may be lost. The members know its ballots.
#[test]
fn a_node_that_is_no_member_asks_first_at_every_start() {
    let asks_first = |disk: &VolatileFiles, wishes: &Wishes| {
        disk.start(wishes).expect("starts").new_shard().config().asks_first
    };
    for wishes in [plain(), Wishes { proposes: true, ..plain() }] {
        let disk = VolatileFiles::default();
        assert!(asks_first(&disk, &wishes));
        assert!(asks_first(&disk, &wishes), "it may have crashed before it heard the members");
    }
    assert!(!asks_first(&VolatileFiles::default(), &new_cell()));
    assert!(!asks_first(&VolatileFiles::with_record(record(7, 0)), &plain()));
}

#[test]
fn a_folder_keeps_its_birth_and_a_reset_makes_another() {
    let disk = VolatileFiles::default();
    let start = |wishes: Wishes| disk.start(&wishes).expect("starts").membership.birth;
    assert_eq!(start(plain()), BIRTH);
    for wishes in [plain(), new_cell(), reset()] {
        assert_eq!(start(Wishes { birth: Birth(5), ..wishes }), BIRTH, "the record is readable");
    }
    disk.tamper(RECORD, None);
    assert_eq!(start(Wishes { birth: Birth(5), ..reset() }), Birth(5));
    assert_eq!(disk.started().membership.birth, Birth(5));
}

/// E4: it says nothing about which records count in the new epoch.
#[test]
fn a_snapshot_of_another_epoch_is_removed_and_not_used() {
    let disk = VolatileFiles::with_snapshot(&["a"]);
    let mut record = disk.record();
    let stable = record.configuration.as_mut().expect("a member");
    let newcomer = Member { node: node(2), birth: Birth(2), peer: "b:1".into() };
    let both = Members::new(vec![members(BIRTH)[0].clone(), newcomer]).expect("valid");
    let joint = stable.configuration.after(&Change::Begin(both), Ballot::ZERO).expect("legal");
    stable.configuration = joint;
    disk.folder().write_record(&record).expect("room");
    assert!(disk.starts_after_a_crash());
    assert_eq!(disk.content(SNAPSHOT), None);
}

#[test]
fn a_shard_that_has_not_changed_over_leaves_no_snapshot() {
    let disk = VolatileFiles::default();
    let stopped = holding(&disk, &["a"]).stop(Instant::ZERO);
    let mut record = disk.record();
    let stable = record.configuration.as_mut().expect("a member");
    let moved = Member { peer: "elsewhere:1".into(), ..members(BIRTH)[0].clone() };
    let same = Change::Same(Members::new(vec![moved]).expect("valid"));
    stable.configuration = stable.configuration.after(&same, Ballot::ZERO).expect("legal");
    disk.folder().write_record(&record).expect("room");
    assert!(!disk.folder().write_snapshot(&[stopped]).expect("nothing to do"));
}

#[test]
fn the_list_of_a_founding_can_be_corrected_until_it_is_accepted() {
    let disk = VolatileFiles::default();
    disk.start(&new_cell()).expect("starts");
    let moved = Member { node: node(1), birth: Birth::UNKNOWN, peer: "b:1".into() };
    let list = Members::new(vec![moved]).expect("valid");
    let corrected = Wishes { list: list.clone(), ..plain() };
    let start = disk.start(&corrected).expect("starts");
    assert_eq!(*start.membership.stable.configuration.old(), list);
    assert_eq!(start.membership.list, ListUse::Founding);
    // As a node that only proposes, it keeps what its record says.
    let proposer = disk.start(&Wishes { proposes: true, ..corrected }).expect("starts");
    assert!(proposer.record().expect("it has a folder").configuration.is_some());
}
