//! Files of arbitrary bytes: nothing panics, and whatever decodes has exactly that encoding.
//!
//! The input is tried as it is, and as the body of a file whose preamble and checksum are right,
//! so that the fuzzer need not forge those first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paxoslease_core::NodeId;
use paxoslease_wire::{SnapshotReader, SnapshotWriter, decode_record, encode_record};

const NODE: NodeId = NodeId::MAX;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    for magic in [b"PLrc", b"PLsn"] {
        let mut file = [magic, [1].as_slice(), &NODE.get().to_le_bytes(), bytes].concat();
        file.extend_from_slice(&crc(&file).to_le_bytes());
        check(&file);
    }
});

fn check(file: &[u8]) {
    if let Ok(record) = decode_record(NODE, file) {
        assert_eq!(encode_record(NODE, &record), file);
    }
    if let Ok(leases) = SnapshotReader::new(NODE, file) {
        let mut out = Vec::new();
        let mut writer = SnapshotWriter::begin(NODE, &mut out);
        leases.for_each(|lease| writer.push(&lease, &mut out));
        writer.finish(&mut out);
        assert_eq!(out, file);
    }
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0xedb8_8320))
    })
}
