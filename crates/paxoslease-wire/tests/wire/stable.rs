//! Records and snapshots decode to what was written, or are refused with a reason.

use crate::samples::{Parts, node, parts};
use paxoslease_core::{Ballot, Holder, Name, Record, SnapshotLease, Tenure, Ttl};
use paxoslease_wire::{
    DecodeError, RECORD_LEN, SnapshotReader, SnapshotWriter, StableError as E, decode_record,
    encode_record,
};
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

/// Replaces the checksum by the right one.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sealed_len = bytes.len() - 4;
    let crc = bytes[..sealed_len].iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0xedb8_8320))
    });
    bytes[sealed_len..].copy_from_slice(&(!crc).to_le_bytes());
    bytes
}

/// Version 1, byte by byte: files of this version must stay readable.
#[test]
fn the_bytes_of_a_record_are_these() {
    let bytes = encode_record(node(2), &record());
    let expected = b"PLrc\x01\x02\0\x06\x05\x04\x03\x02\x01\0\0\x60\xea\0\0";
    assert_eq!(bytes[..RECORD_LEN - 4], expected[..]);
    assert_eq!(bytes[..], resealed(bytes.to_vec()), "the checksum is a CRC-32 of all before it");
}

#[test]
fn the_bytes_of_a_snapshot_are_these() {
    let parts = Parts { name: "ab".into(), holder: "c".into(), ..Parts::typical(0) };
    let bytes = snapshot(&[lease(&parts)]);
    let expected = [
        b"PLsn\x01\x02\0".as_slice(),
        &CEILING.to_le_bytes(),
        &parts.fence.to_le_bytes(),
        b"\x10\x27\0\0\x01c\x02ab",
        b"\x01\0\0\0\0\0\0\0",
    ];
    assert_eq!(bytes[..bytes.len() - 4], expected.concat());
    assert_eq!(bytes, resealed(bytes.clone()));
}

#[test]
fn a_record_with_any_bit_flipped_is_refused() {
    let bytes = encode_record(node(2), &record());
    for bit in 0..RECORD_LEN * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_record(node(2), &flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn a_record_cut_anywhere_or_too_long_is_refused() {
    let bytes = encode_record(node(2), &record());
    for cut in 0..RECORD_LEN {
        assert!(decode_record(node(2), &bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert_eq!(decode_record(node(2), b""), Err(E::Truncated { len: 0 }));
    let mut long = bytes.to_vec();
    long.extend_from_slice(b"more");
    assert!(matches!(decode_record(node(2), &long), Err(E::Checksum { .. })));
    assert_eq!(decode_record(node(2), &resealed(long)), Err(E::Trailing(4)));
    let short = resealed(bytes[..RECORD_LEN - 1].to_vec());
    assert_eq!(decode_record(node(2), &short), Err(E::Truncated { len: RECORD_LEN - 1 }));
}

#[test]
fn each_thing_wrong_with_a_record_is_named() {
    let spoil = |at: usize, byte: u8| {
        let mut bytes = encode_record(node(2), &record()).to_vec();
        bytes[at] = byte;
        bytes
    };
    let error_of = |bytes: &[u8]| decode_record(node(2), bytes).expect_err("spoiled");
    assert_eq!(error_of(&spoil(0, b'X')), E::Magic(*b"XLrc"));
    assert_eq!(error_of(&spoil(4, 2)), E::Version(2));
    assert!(matches!(error_of(&spoil(7, 0)), E::Checksum { .. }));
    assert_eq!(error_of(&resealed(spoil(5, 3))), E::Node { expected: node(2), found: 3 });
    let ceiling = 0xff00_0102_0304_0506;
    assert_eq!(error_of(&resealed(spoil(14, 0xff))), E::BallotCeiling(ceiling));
    assert_eq!(error_of(&snapshot(&[])), E::Magic(*b"PLsn"), "a snapshot");
}

#[test]
fn a_snapshot_with_a_flipped_bit_or_cut_anywhere_is_refused() {
    let all = [Parts::typical(0), Parts { name: "other".into(), ..Parts::typical(0) }];
    let bytes = snapshot(&[lease(&all[0]), lease(&all[1])]);
    for cut in 0..bytes.len() {
        assert!(SnapshotReader::new(node(2), &bytes[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(SnapshotReader::new(node(2), &flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn each_thing_wrong_with_a_snapshot_is_named() {
    let parts = Parts::typical(0);
    let bytes = snapshot(&[lease(&parts)]);
    let error_of = |bytes: Vec<u8>| {
        SnapshotReader::new(node(2), &resealed(bytes)).map(|_| ()).expect_err("spoiled")
    };
    let spoil = |at: usize, with: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        error_of(bytes)
    };
    assert_eq!(spoil(15, &[0; 8]), E::Lease(DecodeError::Tenure(0)));
    assert_eq!(spoil(23, &[0; 4]), E::Lease(DecodeError::RemainingZero));
    assert_eq!(spoil(bytes.len() - 12, &[2]), E::LeaseCount { stored: 2, found: 1 });
    let mut cut = bytes.clone();
    cut.remove(28);
    assert_eq!(error_of(cut), E::Lease(DecodeError::Truncated("name")));
    let headless = bytes[..15].to_vec();
    assert_eq!(error_of(headless), E::Truncated { len: 15 });
    let theirs = SnapshotReader::new(node(3), &bytes).map(|_| ());
    assert_eq!(theirs, Err(E::Node { expected: node(3), found: 2 }));
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
