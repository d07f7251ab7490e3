//! The file of durable leases: power failures, errors, damage, full disks and many restarts.

use std::collections::BTreeMap;

use paxoslease_core::{DurableRegister, DurableValue, DurableWrite, Label, Tenure};
use paxoslease_wire::{BootTime, ShardId};

use super::super::durable::{DurableFile, RESERVE, TICK_EVERY};
use super::super::file_time::RunStart;
use super::*;

const DURABLE: &str = "/var/node/durable";

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

/// A run that begins at this time, in a boot in which the machine's clock shows the same.
fn run(boot: u8, now: Instant) -> RunStart {
    RunStart { now, boot: BootTime { id: [boot; 16], nanos: now.as_nanos() } }
}

fn wishes_of(start: RunStart) -> Wishes {
    Wishes { durable: Some(DurableWish { start, registers_max: 1_000_000 }), ..new_cell() }
}

fn held(name: &str, ballot: u64, ends_at: Instant) -> DurableRegister {
    let ballot = Ballot::new(ballot, node(1));
    let tenure = Tenure::of(ballot).expect("not zero");
    let label = Label::new(Name::new(name).expect("a name"), Holder::new("x").expect("a holder"));
    DurableRegister { label, ballot, value: DurableValue::Held { tenure, fence: tenure, ends_at } }
}

fn free(name: &str, ballot: u64) -> DurableRegister {
    let ballot = Ballot::new(ballot, node(1));
    let tenure = Tenure::of(ballot).expect("not zero");
    let label = Label::new(Name::new(name).expect("a name"), Holder::NONE);
    let value = DurableValue::Free { tenure, fence: tenure, by: Ballot::ZERO };
    DurableRegister { label, ballot, value }
}

fn endless(name: &str, ballot: u64) -> DurableWrite {
    DurableWrite::Register(held(name, ballot, Instant::MAX))
}

fn forget(name: &str) -> DurableWrite {
    DurableWrite::Forget(free(name, 1).label)
}

type Registers = BTreeMap<String, DurableRegister>;

fn by_name(registers: impl IntoIterator<Item = DurableRegister>) -> Registers {
    registers.into_iter().map(|register| (register.name().to_string(), register)).collect()
}

/// What a file should have after these writes of one shard.
fn after(writes: &[DurableWrite]) -> Registers {
    let mut registers = Registers::new();
    for write in writes {
        match write {
            DurableWrite::Register(register) => {
                registers.insert(register.name().to_string(), register.clone());
            }
            DurableWrite::Forget(label) => {
                registers.remove(&label.name().to_string());
            }
            DurableWrite::Clear => registers.clear(),
            DurableWrite::Tick => {}
        }
    }
    registers
}

impl VolatileFiles {
    fn durable(&self, start: RunStart) -> DurableFile {
        let mut folder = self.folder();
        folder.start(&wishes_of(start)).expect("starts");
        folder.take_durable().expect("it keeps one")
    }

    fn registers(&self, start: RunStart) -> Registers {
        by_name(self.durable(start).registers())
    }
}

/// Takes the writes, and makes them durable as one batch.
fn write(file: &mut DurableFile, writes: &[DurableWrite]) -> io::Result<()> {
    writes.iter().for_each(|write| file.take(ShardId::WHOLE, write));
    file.commit(Instant::ZERO)
}

fn now() -> RunStart {
    run(1, Instant::ZERO)
}

/// Batches with every kind of write.
fn batches() -> [Vec<DurableWrite>; 4] {
    [
        vec![endless("a", 1), endless("b", 2)],
        vec![DurableWrite::Register(free("a", 3)), DurableWrite::Tick],
        vec![forget("a"), endless("c", 4)],
        vec![DurableWrite::Clear, endless("d", 5)],
    ]
}

/// What the disk confirmed to processes, one after the other.
#[derive(Clone, Default)]
struct Told {
    /// All writes, by batch.
    writes: Vec<Vec<DurableWrite>>,
    /// How many of these batches were confirmed.
    confirmed: usize,
}

impl Told {
    /// A process starts, and writes some batches. `None` if it dies.
    fn live(&mut self, files: &VolatileFiles) -> Option<()> {
        let mut folder = Folder::open_volatile(files, node(1)).ok()?;
        let started = match folder.start(&wishes_of(now())) {
            Err(StableError::Io { .. }) => return None,
            started => started.expect("its files are sound"),
        };
        let found = by_name(started.registers);
        let is_found = |count: &usize| after(&self.writes[..*count].concat()) == found;
        let count = (self.confirmed..=self.writes.len()).rev().find(is_found);
        let count = count.unwrap_or_else(|| panic!("{found:?} was never confirmed"));
        // A start makes durable what it found.
        self.writes.truncate(count);
        self.confirmed = count;
        let mut file = folder.take_durable().expect("it keeps one");
        for batch in batches() {
            self.writes.push(batch.clone());
            write(&mut file, &batch).ok()?;
            self.confirmed = self.writes.len();
        }
        Some(())
    }
}

#[test]
fn what_was_confirmed_survives_a_power_failure_at_every_write() {
    let mut failures = 0;
    for first in 0.. {
        let (files, mut told) = (VolatileFiles::default(), Told::default());
        files.dies_after(first);
        let lived = told.live(&files).is_some();
        for files in files.survivors() {
            // The power fails again, while the next process starts or writes.
            for second in (0..).step_by(3) {
                let (files, mut told) = (files.fork(), told.clone());
                files.dies_after(second);
                let lived = told.live(&files).is_some();
                for files in files.survivors() {
                    failures += 1;
                    told.clone().live(&files).expect("the power stays on");
                }
                if lived {
                    break;
                }
            }
        }
        if lived {
            break;
        }
    }
    assert!(failures > 1000, "{failures}");
}

#[test]
fn a_batch_torn_at_any_byte_leaves_the_batches_before_it() {
    let [one, two, ..] = batches();
    let before = after(&one);
    let torn_at = |byte: usize| {
        let files = VolatileFiles::default();
        let mut file = files.durable(now());
        write(&mut file, &one).expect("room");
        // The batch is appended, and not synced.
        files.dies_after(1);
        write(&mut file, &two).expect_err("the process dies");
        let mut most = 0;
        files.lose_power(|choices| {
            most = most.max(choices);
            if choices > 4 { (4 + byte).min(choices - 1) } else { 0 }
        });
        (files.registers(now()), most - 4)
    };
    let (_, bytes) = torn_at(0);
    assert!(bytes > 60, "{bytes}");
    for byte in 0..bytes {
        assert_eq!(torn_at(byte).0, before, "{byte} of {bytes} bytes");
    }
}

#[test]
fn a_file_with_a_flipped_bit_is_refused_or_says_the_same() {
    let files = VolatileFiles::default();
    let mut file = files.durable(now());
    for batch in batches() {
        write(&mut file, &batch).expect("room");
    }
    drop(file);
    let (bytes, expected) = (files.content(DURABLE).expect("is there"), after(&batches().concat()));
    let mut refused = 0;
    for bit in 0..bytes.len() * 8 {
        let files = files.fork();
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        files.tamper(DURABLE, Some(flipped));
        match files.start(&wishes_of(now())) {
            Ok(started) => assert_eq!(by_name(started.registers), expected, "bit {bit}"),
            Err(StableError::DurableCorrupt { offset, .. }) if offset <= bit / 8 => refused += 1,
            Err(other) => panic!("bit {bit}: {other}"),
        }
    }
    // All but the marks, and the batch that clears everything, whose effect is that of no other.
    assert!(refused >= (bytes.len() - 5 * 8) * 8, "{refused}");
}

#[test]
fn a_lost_damaged_or_foreign_file_prevents_the_start() {
    let files = VolatileFiles::default();
    write(&mut files.durable(now()), &[endless("a", 1)]).expect("room");
    let others = VolatileFiles::default();
    let birth = Birth(BIRTH.0 + 1);
    drop(others.folder().start(&Wishes { birth, ..wishes_of(now()) }).expect("starts"));
    let mut of_node_2 = Vec::new();
    let writer = paxoslease_wire::DurableWriter::begin(node(2), BIRTH, 1, &mut of_node_2);
    let boot = BootTime { id: [1; 16], nanos: 0 };
    let head = paxoslease_wire::BatchHead { sequence: 1, file_time: Instant::ZERO, boot };
    writer.batch(&head, &[], &mut of_node_2);
    for (content, text) in [
        (None, "/var/node/durable is gone, although one was begun"),
        (Some(Vec::new()), "/var/node/durable cannot be used: at byte 0: cut short after 0 bytes"),
        (others.content(DURABLE), "at byte 0: belongs to birth"),
        (Some(of_node_2), "at byte 0: belongs to node 2, this is node 1"),
    ] {
        let files = files.fork();
        files.tamper(DURABLE, content);
        let error = files.start(&wishes_of(now())).expect_err("it cannot vote").to_string();
        assert!(error.contains(text), "{error}");
        assert!(error.contains("`paxoslease members replace`"), "{error}");
        let birth = Birth(5);
        let reset = Wishes { birth, reset: true, ..wishes_of(now()) };
        let started = files.start(&reset).expect("starts as another member");
        assert_eq!((started.membership.birth, started.registers), (birth, vec![]));
        assert_eq!(files.started().membership.birth, birth);
    }
}

#[test]
fn a_file_whose_sync_failed_is_never_synced_again() {
    let [one, two, three, _] = batches();
    // The syncs of a batch, of a new generation, and of the folder.
    for (fails_after, attempts) in [(0, 1), (1, 1)] {
        let files = VolatileFiles::default();
        let mut file = files.durable(now());
        write(&mut file, &one).expect("room");
        files.state().syncs_left = 0;
        write(&mut file, &two).expect_err("the sync fails");
        assert!(!file.has_room());
        for _ in 0..attempts {
            files.state().syncs_left = fails_after;
            file.commit(Instant::ZERO).expect_err("the sync fails");
        }
        files.state().syncs_left = u64::MAX;
        write(&mut file, &three).expect("the disk works again");
        assert!(file.has_room());
        // What was not synced is lost.
        files.lose_power(|_| 0);
        assert_eq!(
            files.registers(now()),
            after(&[one.clone(), two.clone(), three.clone()].concat())
        );
    }
}

#[test]
fn a_full_disk_takes_releases_and_ticks_and_recovers() {
    let files = VolatileFiles::default();
    let mut file = files.durable(now());
    write(&mut file, &[endless("a", 1)]).expect("room");
    assert!(file.has_room());
    // Others fill the disk.
    files.set_room(0);
    let mut batches = 0;
    while file.has_room() {
        write(&mut file, &[endless("a", 2)]).expect("it is reserved");
    }
    let begun = file.bytes();
    while write(&mut file, &[DurableWrite::Register(free("a", 3))]).is_ok() {
        assert!(!file.has_room());
        batches += 1;
    }
    let taken = file.bytes() - begun;
    assert!((RESERVE - 1000..=RESERVE).contains(&taken), "{taken} bytes in {batches} batches");
    assert!(file.due_at().is_some(), "it looks for room");
    file.commit(Instant::ZERO).expect_err("the disk is full");
    files.set_room(u64::MAX);
    file.commit(Instant::ZERO).expect("room");
    assert!(file.has_room() && file.due_at().is_none());
    files.lose_power(|_| 0);
    let released = after(&[DurableWrite::Register(free("a", 3))]);
    assert_eq!(files.registers(now()), released);
}

#[test]
fn a_file_is_compacted_and_goes_on_if_that_fails() {
    let files = VolatileFiles::default();
    let mut file = files.durable(now());
    let names: Vec<String> = (0..2000).map(|i| format!("{i:0>500}")).collect();
    let all = |ballot| names.iter().map(|name| endless(name, ballot)).collect::<Vec<_>>();
    let mut longest = 0;
    for ballot in 1..20 {
        write(&mut file, &all(ballot)).expect("room");
        longest = longest.max(file.bytes());
    }
    let live = 2000 * 530;
    assert!(longest < (4 << 20) + 2 * live, "{longest} bytes");
    while file.bytes() < 4 << 20 {
        write(&mut file, &all(20)).expect("room");
    }
    // No second file has room, but half of the registers have.
    for ballot in 21..25 {
        let before = file.bytes();
        files.set_room(live / 2);
        write(&mut file, &all(ballot)[..1000]).expect("room to append");
        assert!(file.bytes() > before, "it is not compacted");
    }
    files.set_room(u64::MAX);
    // Compaction is not tried again at once.
    (0..3).for_each(|_| write(&mut file, &all(99)[1000..]).expect("room"));
    assert!(file.bytes() < 4 << 20, "{} bytes", file.bytes());
    drop(file);
    let written = [&all(24)[..1000], &all(99)[1000..]].concat();
    assert_eq!(files.registers(now()), after(&written));
}

#[test]
fn a_shard_clears_its_own_registers() {
    let files = VolatileFiles::default();
    let mut file = files.durable(now());
    let shard = |name: &str| ShardId::of(Name::new(name).expect("a name"), 2);
    let names: Vec<String> = (0..20).map(|i| format!("name-{i}")).collect();
    for name in &names {
        file.take(shard(name), &endless(name, 1));
    }
    let first = ShardId::new(0, 2).expect("one of two");
    file.take(first, &DurableWrite::Clear);
    let again = names.iter().find(|name| shard(name) == first).expect("half of them");
    file.take(first, &endless(again, 2));
    file.commit(Instant::ZERO).expect("room");
    let found = by_name(file.registers());
    drop(file);
    assert_eq!(files.registers(now()), found);
    let kept = |name: &&String| shard(name) != first || *name == again;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), {
        let mut kept: Vec<String> = names.iter().filter(kept).cloned().collect();
        kept.sort();
        kept
    });
    assert!(names.iter().filter(|name| shard(name) == first).count() > 1);
}

#[test]
fn beyond_the_most_registers_there_is_no_room_for_more() {
    let files = VolatileFiles::default();
    let durable = Some(DurableWish { start: now(), registers_max: 2 });
    let mut folder = files.folder();
    folder.start(&Wishes { durable, ..new_cell() }).expect("starts");
    let mut file = folder.take_durable().expect("it keeps one");
    for (write_next, has_room) in
        [(endless("a", 1), true), (endless("b", 2), false), (forget("a"), true)]
    {
        write(&mut file, &[write_next]).expect("room");
        assert_eq!(file.has_room(), has_room);
    }
    assert_eq!(file.count(), 1);
}

#[test]
fn ends_come_late_by_the_time_off_and_never_early() {
    let files = VolatileFiles::default();
    let ends_at = seconds(1000);
    let mut file = files.durable(run(1, seconds(100)));
    assert_eq!(file.due_at(), None);
    file.take(ShardId::WHOLE, &DurableWrite::Register(held("a", 1, ends_at)));
    file.commit(seconds(200)).expect("room");
    assert_eq!(file.due_at(), Some(seconds(200).after(TICK_EVERY)));
    drop(file);
    let end = |files: &VolatileFiles, start| {
        let registers = files.fork().registers(start);
        let DurableValue::Held { ends_at, .. } = registers["a"].value else { panic!("free") };
        ends_at
    };
    // Within one boot nothing is lost, whatever the origin of the node's clock.
    assert_eq!(end(&files, run(1, seconds(700))), ends_at);
    let boot = BootTime { id: [1; 16], nanos: seconds(700).as_nanos() };
    assert_eq!(end(&files, RunStart { now: seconds(5), boot }), seconds(305));
    assert_eq!(
        end(&files, RunStart { now: seconds(5), boot: BootTime { nanos: 9, ..boot } }),
        seconds(805)
    );
    // After another boot the time from the last batch on is lost.
    assert_eq!(end(&files, run(2, seconds(3))), seconds(803));
    assert_eq!(end(&files, run(0, seconds(700))), seconds(1500), "no boot id");
}

/// K3: otherwise a member that said so would deny it.
#[test]
fn an_end_that_has_passed_on_disk_has_passed_at_every_start() {
    for (boot, shift) in [(1, 0), (1, 1), (1, 999), (2, 0), (2, 1_234_567)] {
        for ends_at in [at(1_000_001), at(1_000_002), at(5_999_999)] {
            let files = VolatileFiles::default();
            let mut file = files.durable(run(1, at(333)));
            file.take(ShardId::WHOLE, &DurableWrite::Register(held("a", 1, ends_at)));
            file.commit(ends_at).expect("room");
            let start = run(boot, at(ends_at.as_nanos() + shift));
            let DurableValue::Held { ends_at, .. } = files.registers(start)["a"].value else {
                panic!("free")
            };
            assert!(ends_at <= start.now, "{ends_at:?} in {start:?}");
        }
    }
}

#[test]
fn ten_thousand_restarts_of_one_folder_lose_nothing_but_time() {
    const RESTARTS: u64 = 10_000;
    let files = VolatileFiles::default();
    let end = Duration::from_secs(1_000_000);
    let mut now = seconds(1000);
    let begun_at = now;
    let mut lost = Duration::ZERO;
    for restart in 0..RESTARTS {
        // Every tenth time the machine starts as well, and its clock begins anew.
        let boot = (restart / 10 % 250 + 1) as u8;
        if restart % 10 == 0 && restart > 0 {
            lost += Duration::from_secs(7);
        }
        let mut file = files.durable(run(boot, now));
        if restart == 0 {
            let register = held("a", 1, now.after(end));
            file.take(ShardId::WHOLE, &DurableWrite::Register(register));
        } else {
            let registers = by_name(file.registers());
            let DurableValue::Held { ends_at, .. } = registers["a"].value else { panic!("free") };
            assert_eq!(ends_at, begun_at.after(end).after(lost), "restart {restart}");
        }
        now = now.after(Duration::from_secs(3));
        file.commit(now).expect("room");
        // The process is killed, and starts again after seven seconds.
        now = now.after(Duration::from_secs(7));
        assert!(file.bytes() < 400, "{} bytes", file.bytes());
    }
}
