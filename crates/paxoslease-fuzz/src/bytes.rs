//! Targets that only decode: frames, greetings, RESP, files. Decoding never panics. What decodes
//! encodes to the same bytes, or survives another round trip.

use paxoslease_core::{Cell, Config, Drift, Instant, Message, NodeId, Record, Shard, Ttl};
use paxoslease_wire::resp::{Request, Value, put_command};
use paxoslease_wire::{
    FRAME_LEN_MAX, Farewell, FrameKind, FrameReader, FrameWriter, Heartbeat, Hello, Refused,
    SnapshotReader, SnapshotWriter, VERSION, decode_membership, decode_record, encode_membership,
    encode_record, split_frame,
};

const NODE: NodeId = NodeId::MAX;

/// A stream of frames between nodes.
///
/// The input is used as a stream, and as the messages of one frame with a valid envelope and
/// header, so that the fuzzer need not guess those first; and as a message about members.
pub fn frame(bytes: &[u8]) {
    let mut stream = bytes;
    while let Ok(Some((frame, rest))) = split_frame(stream) {
        check_frame(frame);
        stream = rest;
    }
    let messages = FrameWriter::new(NODE).finish(7).to_vec();
    let membership = vec![0, 0, 0, 0, b'P', b'L', VERSION, FrameKind::Membership as u8];
    for mut frame in [messages, membership] {
        frame.extend_from_slice(bytes);
        if set_len(&mut frame) {
            check_frame(&frame);
        }
    }
}

fn check_frame(frame: &[u8]) {
    if let Ok(message) = decode_membership(frame) {
        let mut out = Vec::new();
        encode_membership(&message, &mut out);
        assert_eq!(out, frame);
    }
    let Ok(reader) = FrameReader::new(frame) else { return };
    let header = reader.header();
    let Ok(messages) = reader.collect::<Result<Vec<Message<'_>>, _>>() else { return };
    let mut writer = FrameWriter::new(header.sender);
    writer.set_epoch(header.epoch);
    for message in &messages {
        if !writer.push(message) {
            return; // The writer closes frames a little before the bound.
        }
    }
    assert_eq!(writer.finish(header.counter), frame);
}

/// Sets the length at the beginning of a frame. `false` if the frame would be too long.
pub(crate) fn set_len(frame: &mut [u8]) -> bool {
    if frame.len() > FRAME_LEN_MAX {
        return false;
    }
    let len = u32::try_from(frame.len() - 4).expect("below the bound");
    frame[..4].copy_from_slice(&len.to_le_bytes());
    true
}

/// Greetings, farewells and heartbeats. A greeting matches itself in everything except the node id.
///
/// The input is used as a frame, and as the body of a frame with a valid envelope. Its first byte
/// is then the version.
pub fn hello(bytes: &[u8]) {
    check_hello(bytes);
    let Some((version, body)) = bytes.split_first() else { return };
    for kind in [FrameKind::Hello, FrameKind::Farewell, FrameKind::Ping, FrameKind::Pong] {
        let mut frame = vec![0, 0, 0, 0, b'P', b'L', *version, kind as u8];
        frame.extend_from_slice(body);
        if set_len(&mut frame) {
            check_hello(&frame);
        }
    }
}

fn check_hello(frame: &[u8]) {
    if let Ok(hello) = Hello::decode(frame) {
        let mut out = Vec::new();
        hello.encode(&mut out);
        assert_eq!(Hello::decode(&out), Ok(hello));
        assert_eq!(hello.check(&hello), Err(Refused::SameNode(hello.node)));
    }
    if let Ok(farewell) = Farewell::decode(frame) {
        let mut out = Vec::new();
        Farewell::encode(&farewell.as_str(), &mut out);
        assert_eq!(Farewell::decode(&out), Ok(farewell));
        assert!(!farewell.to_string().contains(char::is_control));
    }
    if let Ok(beat) = Heartbeat::decode(frame) {
        let mut out = Vec::new();
        beat.encode(&mut out);
        assert_eq!(out, frame);
    }
}

/// RESP as a server and as a client read it. Every value has an end, bytes after it make no
/// difference, and a request that is encoded again reads the same.
pub fn resp(bytes: &[u8]) {
    let mut stream = bytes;
    while let Ok(Some((request, consumed))) = Request::parse(stream) {
        assert!(consumed > 0 && consumed <= stream.len());
        assert!(Request::parse(&stream[..consumed - 1]).is_ok_and(|before| before.is_none()));
        if request.len() == request.args().len() {
            check_request(&request);
        }
        stream = &stream[consumed..];
    }
    let mut stream = bytes;
    while let Ok(Some((value, consumed))) = Value::parse(stream) {
        assert!(consumed > 0 && consumed <= stream.len());
        assert!(Value::parse(&stream[..consumed - 1]).is_ok_and(|before| before.is_none()));
        walk(value);
        stream = &stream[consumed..];
    }
}

fn check_request(request: &Request<'_>) {
    let mut out = Vec::new();
    put_command(&mut out, request.args());
    // Encoding may lengthen the lengths of arguments, which may exceed the bound.
    if let Ok(read) = Request::parse(&out) {
        let (second, consumed) = read.expect("written whole");
        assert_eq!((second.args(), consumed), (request.args(), out.len()));
    }
}

pub(crate) fn walk(value: Value<'_>) {
    if let Some(items) = value.items() {
        let expected = items.len();
        assert_eq!(items.map(walk).count(), expected);
    }
}

/// The two files of a node.
///
/// The input is used as it is, and as the body of a file with a valid preamble and checksum, so
/// that the fuzzer need not forge those first.
pub fn stable(bytes: &[u8]) {
    check_file(bytes);
    for magic in [b"PLrc", b"PLsn"] {
        check_file(&sealed(*magic, bytes));
    }
}

fn check_file(file: &[u8]) {
    if let Ok(record) = decode_record(NODE, file) {
        assert_eq!(encode_record(NODE, &record), file);
    }
    if let Ok(leases) = SnapshotReader::new(NODE, file) {
        let mut out = Vec::new();
        let mut writer =
            SnapshotWriter::begin(NODE, leases.ballot_ceiling(), leases.epoch(), &mut out);
        leases.for_each(|lease| writer.push(&lease, &mut out));
        writer.finish(&mut out);
        assert_eq!(out, file);
    }
}

/// A valid snapshot with arbitrary leases. A shard starts with it, and its next snapshot contains
/// only leases of the first, none with more time.
pub fn snapshot(bytes: &[u8]) {
    let file = sealed(*b"PLsn", bytes);
    let Ok(leases) = SnapshotReader::new(NODE, &file) else { return };
    let max_lease = Ttl::from_millis(60_000).expect("not zero");
    let cell = Cell::new(&[NODE], max_lease, Drift::NONE).expect("a cell of one");
    let record = Record { ballot_ceiling: 1 << 30, lease_ceiling: Some(max_lease) };
    let now = Instant::from_nanos(1 << 40);
    let config = Config::new(NODE, cell, 7);
    let shard = Shard::start_from_snapshot(config, now, record, leases.clone());
    assert!(shard.entries() <= leases.clone().count());
    let stopped = shard.stop(now).expect("it was not quarantined");
    for kept in stopped.leases() {
        let given = leases.clone().any(|lease| {
            (lease.name, lease.tenure) == (kept.name, kept.tenure)
                && lease.remaining >= kept.remaining
        });
        assert!(given, "{kept:?} is not in the first snapshot");
    }
}

fn sealed(magic: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mut file = [&magic, [1].as_slice(), &NODE.get().to_le_bytes(), body].concat();
    file.extend_from_slice(&crc(&file).to_le_bytes());
    file
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78))
    })
}
