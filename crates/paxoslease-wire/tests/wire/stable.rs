//! The files of a node decode to what was written, or are refused.

use crate::membership::members;
use crate::samples::{Parts, node, parts};
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, DecisionNumber, DurableRegister, DurableValue,
    DurableWrite, Holder, Instant, Label, Lasts, Name, Record, SnapshotLease, StableConfiguration,
    Tenure, Ttl, Vote,
};
use paxoslease_wire::{
    BatchHead, BootTime, DurableEnd, DurableError, DurableRecord, DurableWriter, ShardId,
    SnapshotReader, SnapshotWriter, StableError, StableRecord, StoredRegister, decode_record,
    encode_record, encode_write, read_durable,
};
use proptest::prelude::*;

/// The configurations of a cell: not founded, founded, joint, and after an end or an abort.
fn configurations(from: &[u16], to: &[u16], floor: Ballot) -> [Configuration; 5] {
    let (from, to) = (members(from), members(to));
    let unfounded = Configuration::unfounded(&from);
    let founded = unfounded.after(&Change::Same(from), floor).expect("legal");
    let joint = founded.after(&Change::Begin(to), floor).expect("legal");
    let [ended, aborted] =
        [Change::End, Change::Abort].map(|change| joint.after(&change, floor).expect("legal"));
    [unfounded, founded, joint, ended, aborted]
}

fn record(configuration: Option<StableConfiguration>) -> StableRecord {
    let lease_ceiling = Ttl::from_millis(60_000);
    let ceilings = Record { ballot_ceiling: 0x0102_0304_0506, lease_ceiling };
    let has_durable = configuration.is_some();
    StableRecord { birth: BIRTH, ceilings, configuration, has_durable }
}

fn number(counter: u64) -> DecisionNumber {
    DecisionNumber { counter, node: node(3), birth: Birth(!counter) }
}

/// Records of a blank node, and of a node in a joint epoch that voted for its end.
fn records() -> [StableRecord; 2] {
    let [_, _, configuration, ended, _] =
        configurations(&[1, 2], &[2, 4], Ballot::above_counter(9));
    let vote = Vote { promised: Some(number(9)), accepted: Some((number(8), ended)) };
    [record(None), record(Some(StableConfiguration { configuration, vote }))]
}

fn lease(parts: &Parts) -> SnapshotLease<'_> {
    SnapshotLease {
        name: Name::new(&parts.name).expect("in bounds"),
        holder: Holder::new(&parts.holder).expect("in bounds"),
        tenure: Tenure::from_fence(parts.fence).expect("in bounds"),
        remaining: Ttl::from_millis(parts.millis).expect("not zero"),
        is_dated: parts.other.is_multiple_of(2),
    }
}

/// The ballot ceiling of the record when the snapshot is written.
const CEILING: u64 = 77 << 40;
const EPOCH: u32 = 5;

fn snapshot(leases: &[SnapshotLease<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = SnapshotWriter::begin(node(2), CEILING, EPOCH, &mut out);
    for lease in leases {
        writer.push(lease, &mut out);
    }
    writer.finish(&mut out);
    out
}

#[test]
fn a_file_with_a_flipped_bit_or_cut_anywhere_is_refused() {
    let all = [Parts::typical(0), Parts { name: "other".into(), ..Parts::typical(0) }];
    let [blank, joint] = records().map(|record| encode_record(node(2), &record));
    let snapshot = snapshot(&[lease(&all[0]), lease(&all[1])]);
    let is_record: fn(&[u8]) -> bool = |bytes| decode_record(node(2), bytes).is_ok();
    let is_snapshot: fn(&[u8]) -> bool = |bytes| SnapshotReader::new(node(2), bytes).is_ok();
    for (bytes, is_sound) in [(blank, is_record), (joint, is_record), (snapshot, is_snapshot)] {
        for cut in 0..bytes.len() {
            assert!(!is_sound(&bytes[..cut]), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sound(&flipped), "bit {bit}");
        }
    }
}

fn member_ids() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::btree_set(1..=12u16, 1..=9).prop_map(|ids| ids.into_iter().collect())
}

proptest! {
    #[test]
    fn records_come_back_as_they_were_written(
        ballot_ceiling in 0..=Ballot::COUNTER_MAX,
        lease_ceiling in any::<u32>(),
        id in 1..=1023u16,
        birth in any::<u64>(),
        (from, to) in (member_ids(), member_ids()),
        (now, next) in (prop::option::of(0..5usize), prop::option::of(0..5usize)),
        (promised, floor) in (prop::option::of(any::<u64>()), 0..=Ballot::COUNTER_LIMIT),
        has_durable in any::<bool>(),
    ) {
        prop_assume!(from != to);
        let all = configurations(&from, &to, Ballot::above_counter(floor));
        let accepted = next.map(|next| (number(floor), all[next].clone()));
        let vote = Vote { promised: promised.map(number), accepted };
        let configuration =
            now.map(|now| StableConfiguration { configuration: all[now].clone(), vote });
        let ceilings = Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_ceiling) };
        let record = StableRecord { birth: Birth(birth), ceilings, configuration, has_durable };
        let bytes = encode_record(node(id), &record);
        prop_assert_eq!(decode_record(node(id), &bytes), Ok(record));
    }

    #[test]
    fn snapshots_decode_to_what_was_written(
        all in prop::collection::vec(parts(), 0..40),
        flush_every in 1..10usize,
    ) {
        let leases: Vec<SnapshotLease<'_>> = all.iter().map(lease).collect();
        let (mut file, mut out) = (Vec::new(), Vec::new());
        let mut writer = SnapshotWriter::begin(node(2), CEILING, EPOCH, &mut out);
        for (index, lease) in leases.iter().enumerate() {
            writer.push(lease, &mut out);
            if index % flush_every == 0 {
                file.append(&mut out);
            }
        }
        writer.finish(&mut out);
        file.append(&mut out);
        prop_assert_eq!(&file, &snapshot(&leases));
        let reader = SnapshotReader::new(node(2), &file).expect("whole");
        prop_assert_eq!((reader.ballot_ceiling(), reader.epoch()), (CEILING, EPOCH));
        prop_assert_eq!(reader.collect::<Vec<_>>(), leases);
    }
}

/// Of the files of durable leases.
pub(crate) const BIRTH: Birth = Birth(0x1112_1314_1516_1718);

fn register(parts: &Parts) -> DurableRegister {
    let lease = lease(parts);
    let ballot = Ballot::from_u64(parts.ballot).expect("in bounds");
    let (tenure, fence) = (lease.tenure, lease.tenure);
    let (holder, value) = match parts.shape % 3 {
        0 => (lease.holder, DurableValue::Held { tenure, fence, ends_at: Instant::MAX }),
        1 => {
            let ends_at = Instant::from_nanos(parts.other);
            (lease.holder, DurableValue::Held { tenure, fence, ends_at })
        }
        _ => (Holder::NONE, DurableValue::Free { tenure, fence, by: ballot }),
    };
    DurableRegister { label: Label::new(lease.name, holder), ballot, value }
}

const SHARD: ShardId = ShardId::new(1, 3).unwrap();

fn head(sequence: u64) -> BatchHead {
    let boot = BootTime { id: [9; 16], nanos: 1000 + sequence };
    BatchHead { sequence, file_time: Instant::from_nanos(sequence / 2), boot }
}

/// A file of these batches, the first of which has this sequence, and where each batch ends. Every
/// batch has its mark behind it, except the last one if `open`.
fn file(first: u64, batches: &[Vec<DurableWrite>], open: bool) -> (Vec<u8>, Vec<usize>) {
    let (mut out, mut ends) = (Vec::new(), Vec::new());
    let writer = DurableWriter::begin(node(2), BIRTH, 7, &mut out);
    for (sequence, writes) in (first..).zip(batches) {
        let mut records = Vec::new();
        writes.iter().for_each(|write| encode_write(write, SHARD, &mut records));
        writer.batch(&head(sequence), &records, &mut out);
        ends.push(out.len());
        if !open || ends.len() < batches.len() {
            writer.mark(sequence, &mut out);
        }
    }
    (out, ends)
}

/// What a file says, as text.
fn read(bytes: &[u8]) -> Result<(Vec<String>, DurableEnd), DurableError> {
    let mut seen = Vec::new();
    let end = read_durable(node(2), BIRTH, bytes, |record| {
        seen.push(match record {
            DurableRecord::Register(register) => format!("{:?}", register.decode()),
            other => format!("{other:?}"),
        });
    })?;
    Ok((seen, end))
}

fn expected(writes: &[DurableWrite]) -> Vec<String> {
    let text = |write: &DurableWrite| match write {
        DurableWrite::Register(register) => Some(format!("{register:?}")),
        DurableWrite::Forget(label) => Some(format!("{:?}", DurableRecord::Forget(label.name()))),
        DurableWrite::Clear => Some(format!("{:?}", DurableRecord::Clear(SHARD))),
        DurableWrite::Tick => None,
    };
    writes.iter().filter_map(text).collect()
}

/// Three batches with every kind of record.
fn every_kind() -> Vec<Vec<DurableWrite>> {
    let parts = |shape| register(&Parts { other: 77 << 10, ..Parts::typical(shape) });
    let label = Label::new(Name::new("gone").expect("in bounds"), Holder::NONE);
    vec![
        vec![DurableWrite::Register(parts(0)), DurableWrite::Register(parts(1))],
        vec![DurableWrite::Clear, DurableWrite::Forget(label)],
        vec![DurableWrite::Register(parts(2)), DurableWrite::Tick],
    ]
}

#[test]
fn a_durable_file_with_a_flipped_bit_is_refused() {
    let batches = every_kind();
    let all = expected(&batches.concat());
    let (bytes, ends) = file(5, &batches, false);
    assert_eq!(read(&bytes).map(|read| read.0), Ok(all.clone()));
    let begins = [27, ends[0] + 8, ends[1] + 8];
    for bit in 0..bytes.len() * 8 {
        let (mut flipped, at) = (bytes.clone(), bit / 8);
        flipped[at] ^= 1 << (bit % 8);
        let read = read(&flipped);
        if let Some(batch) = (0..3).find(|batch| (begins[*batch]..ends[*batch]).contains(&at)) {
            assert_eq!(read.map_err(|error| error.offset), Err(begins[batch]), "bit {bit}");
        } else if at < begins[0] {
            assert_eq!(read.map_err(|error| error.offset), Err(0), "bit {bit}");
        } else {
            // A mark says only whether a damaged batch was synced.
            assert_eq!(read.map(|read| read.0), Ok(all.clone()), "bit {bit}");
        }
    }
}

#[test]
fn only_the_last_batch_of_a_durable_file_can_be_torn() {
    let batches = every_kind();
    let (bytes, ends) = file(5, &batches, true);
    let before = expected(&batches[..2].concat());
    let last = ends[1] + 8..ends[2];
    // Torn at any byte, with nothing or zeros behind it, or damaged.
    for at in last.clone() {
        let zeros = [&bytes[..at], &vec![0; bytes.len() - at]].concat();
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        for left in [&bytes[..at], &zeros, &flipped] {
            let Ok((seen, end)) = read(left) else { panic!("byte {at}") };
            assert_eq!((seen, end.last), (before.clone(), head(6)), "byte {at}");
            let torn = if at == last.start && left.len() == at { 0 } else { left.len() - ends[1] };
            assert_eq!(end.torn, torn, "byte {at}");
        }
    }
    // The first batch was synced before the file took its name.
    for at in 0..ends[0] {
        assert!(read(&bytes[..at]).is_err(), "{at} bytes");
    }
    for at in ends[0]..=ends[0] + 8 {
        assert_eq!(read(&bytes[..at]).map(|read| read.1.last), Ok(head(5)), "{at} bytes");
    }
}

#[test]
fn a_durable_file_is_refused_by_another_member_and_out_of_order() {
    let batches = every_kind();
    let (bytes, ends) = file(5, &batches, false);
    let read_as = |id, birth| read_durable(node(id), birth, &bytes, |_| {}).map_err(|at| at.why);
    assert_eq!(read_as(3, BIRTH), Err(StableError::Node { expected: node(3), found: 2 }));
    let wrong = StableError::Birth { expected: Birth(1), found: BIRTH };
    assert_eq!(read_as(2, Birth(1)), Err(wrong));
    // A batch is missing, is there twice, or is of an earlier generation.
    let second = ends[0]..ends[1];
    let missing = [&bytes[..second.start], &bytes[second.end..]].concat();
    let twice = [&bytes[..second.end], &bytes[second.clone()]].concat();
    for (bytes, offset) in [(missing, second.start + 8), (twice, second.end + 8)] {
        assert_eq!(read(&bytes).err(), Some(DurableError { offset, why: StableError::Order }));
    }
    let mut other = Vec::new();
    let writer = DurableWriter::begin(node(2), BIRTH, 8, &mut other);
    writer.batch(&head(5), &[], &mut other);
    writer.mark(5, &mut other);
    let stale = [&other, &bytes[second.start + 8..]].concat();
    assert_eq!(read(&stale).map(|read| (read.0, read.1.last)), Ok((vec![], head(5))));
}

proptest! {
    #[test]
    fn durable_files_say_what_was_written(
        batches in prop::collection::vec(prop::collection::vec((parts(), 0..6u8), 0..5), 1..6),
        first in any::<u32>(),
        open in any::<bool>(),
    ) {
        let write = |(parts, kind): &(Parts, u8)| match kind {
            0 => DurableWrite::Tick,
            1 => DurableWrite::Clear,
            2 => DurableWrite::Forget(register(parts).label),
            _ => DurableWrite::Register(register(parts)),
        };
        let batches: Vec<Vec<_>> =
            batches.iter().map(|batch| batch.iter().map(write).collect()).collect();
        let (bytes, _) = file(first.into(), &batches, open);
        let last = head(u64::from(first) + batches.len() as u64 - 1);
        let end = DurableEnd { generation: 7, last, torn: 0 };
        prop_assert_eq!(read(&bytes), Ok((expected(&batches.concat()), end)));
    }

    #[test]
    fn a_stored_register_is_what_it_was_made_of(parts in parts()) {
        let register = register(&parts);
        let stored = StoredRegister::new(&register);
        prop_assert_eq!(stored.name(), register.name());
        prop_assert_eq!(stored.is_timed(), matches!(register.value,
            DurableValue::Held { ends_at, .. } if ends_at != Instant::MAX));
        prop_assert_eq!(stored.decode(), register);
    }

    /// Only if its mark is damaged too, the last batch looks torn.
    #[test]
    fn damage_in_two_places_takes_at_most_the_last_batch(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 2),
    ) {
        let batches = every_kind();
        let (mut bytes, _) = file(5, &batches, false);
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        if let Ok((seen, _)) = read(&bytes) {
            let all = expected(&batches.concat());
            prop_assert!(all.starts_with(&seen), "{seen:?}");
            prop_assert!(seen.len() >= expected(&batches[..2].concat()).len(), "{seen:?}");
        }
    }
}
