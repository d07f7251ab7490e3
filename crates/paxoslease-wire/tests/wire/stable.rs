//! Records and snapshots decode to what was written, or are refused.

use crate::membership::members;
use crate::samples::{Parts, node, parts};
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, DecisionNumber, Holder, Lasts, Name, Record,
    SnapshotLease, StableConfiguration, Standing, Tenure, Ttl, Vote,
};
use paxoslease_wire::{SnapshotReader, SnapshotWriter, StableRecord, decode_record, encode_record};
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
    StableRecord { birth: Birth(0x1112_1314_1516_1718), ceilings, configuration }
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
        standing: Lasts::from_millis(parts.other % 3).map(|lasts| {
            let version = Ballot::from_u64(parts.ballot).expect("in bounds");
            Standing { lasts, version }
        }),
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
    ) {
        prop_assume!(from != to);
        let all = configurations(&from, &to, Ballot::above_counter(floor));
        let accepted = next.map(|next| (number(floor), all[next].clone()));
        let vote = Vote { promised: promised.map(number), accepted };
        let configuration =
            now.map(|now| StableConfiguration { configuration: all[now].clone(), vote });
        let ceilings = Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_ceiling) };
        let record = StableRecord { birth: Birth(birth), ceilings, configuration };
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
