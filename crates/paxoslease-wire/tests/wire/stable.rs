//! Records and snapshots decode to what was written, or are refused.

use crate::samples::{Parts, node, parts};
use paxoslease_core::{Ballot, Holder, Lasts, Name, Record, SnapshotLease, Standing, Tenure, Ttl};
use paxoslease_wire::{SnapshotReader, SnapshotWriter, decode_record, encode_record};
use proptest::prelude::*;

fn record() -> Record {
    Record { ballot_ceiling: 0x0102_0304_0506, lease_ceiling: Ttl::from_millis(60_000) }
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

fn snapshot(leases: &[SnapshotLease<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = SnapshotWriter::begin(node(2), CEILING, &mut out);
    for lease in leases {
        writer.push(lease, &mut out);
    }
    writer.finish(&mut out);
    out
}

#[test]
fn a_file_with_a_flipped_bit_or_cut_anywhere_is_refused() {
    let all = [Parts::typical(0), Parts { name: "other".into(), ..Parts::typical(0) }];
    let record = encode_record(node(2), &record()).to_vec();
    let snapshot = snapshot(&[lease(&all[0]), lease(&all[1])]);
    let is_record: fn(&[u8]) -> bool = |bytes| decode_record(node(2), bytes).is_ok();
    let is_snapshot: fn(&[u8]) -> bool = |bytes| SnapshotReader::new(node(2), bytes).is_ok();
    for (bytes, is_sound) in [(record, is_record), (snapshot, is_snapshot)] {
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

proptest! {
    #[test]
    fn records_come_back_as_they_were_written(
        ballot_ceiling in 0..=Ballot::COUNTER_MAX,
        lease_ceiling in any::<u32>(),
        id in 1..=1023u16,
    ) {
        let record = Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_ceiling) };
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
        let mut writer = SnapshotWriter::begin(node(2), CEILING, &mut out);
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
        prop_assert_eq!(reader.ballot_ceiling(), CEILING);
        prop_assert_eq!(reader.collect::<Vec<_>>(), leases);
    }
}
