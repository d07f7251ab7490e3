//! Bytes and what they decode to, as text in `bytes.txt`: a kind, and bytes in hexadecimal digits
//! or between quotes. `"x"*5` repeats, and `crc` is the checksum of all bytes before it. In a file
//! of durable leases, `sum` is that of the header's checksum and the bytes since the last checksum.
//!
//! What decodes must encode to the same bytes again, so the table pins the bytes of version 1 in
//! both directions. A change of an old line there is a new version of the protocol, or a file that
//! can no longer be read.

use std::fmt::{Debug, Display};
use std::path::Path;

use crate::samples::{crc, encoded, frame_in, frame_with, node, ours};
use crate::stable::BIRTH;
use paxoslease_core::{DurableRegister, Message, SnapshotLease};
use paxoslease_wire::resp::{Request, Value};
use paxoslease_wire::{
    DurableRecord, Farewell, FrameReader, Heartbeat, Hello, SnapshotReader, SnapshotWriter,
    VERSION, decode_record, encode_record, read_durable, split_frame,
};

use paxoslease_rig::check_transcript;

#[test]
fn bytes_decode_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/bytes.txt");
    check_transcript(&path, |line| {
        let (kind, text) = line.split_once(' ').expect("a kind and bytes");
        let bytes = bytes(text);
        match kind {
            "stream" => stream(&bytes),
            "frame" => frame(&bytes),
            "message" => frame(&frame_with(&bytes)),
            "hello" => hello(&bytes),
            "farewell" => farewell(&bytes),
            "heartbeat" => heartbeat(&bytes),
            "record" => record(&bytes),
            "snapshot" => snapshot(&bytes),
            "durable" => durable(&bytes),
            "request" => request(&bytes),
            "value" => value(&bytes),
            _ => panic!("unknown kind: {line}"),
        }
    });
}

fn bytes(mut text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut summed = 0;
    while !text.is_empty() {
        let part = if let Some(quoted) = text.strip_prefix('"') {
            let (inside, rest) = quoted.split_once('"').expect("a second quote");
            text = rest;
            inside.replace("\\r", "\r").replace("\\n", "\n").into_bytes()
        } else if let Some(rest) = text.strip_prefix("crc") {
            text = rest;
            summed = out.len() + 4;
            crc(&out).to_le_bytes().to_vec()
        } else if let Some(rest) = text.strip_prefix("sum") {
            text = rest;
            let sum = crc(&[&out[23..27], &out[summed..]].concat());
            summed = out.len() + 4;
            sum.to_le_bytes().to_vec()
        } else {
            let (digits, rest) = text.split_at(text.find([' ', '*']).unwrap_or(text.len()));
            text = rest;
            let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
            (0..digits.len()).step_by(2).map(byte).collect()
        };
        let (count, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
        text = rest.trim_start();
        let count = count.strip_prefix('*').map_or(1, |count| count.parse().expect("a count"));
        out.extend(part.repeat(count));
    }
    out
}

fn refused(error: impl Debug + Display) -> String {
    format!("{error:?}: {error}")
}

fn stream(bytes: &[u8]) -> String {
    match split_frame(bytes) {
        Ok(None) => "incomplete".to_owned(),
        Ok(Some((frame, rest))) => format!("{} bytes, then {}", frame.len(), rest.len()),
        Err(error) => refused(error),
    }
}

fn frame(bytes: &[u8]) -> String {
    let reader = match FrameReader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return refused(error),
    };
    let epoch = reader.header().epoch;
    let messages: Vec<_> = reader.collect();
    if let Ok(messages) = messages.iter().copied().collect::<Result<Vec<Message<'_>>, _>>() {
        assert_eq!(frame_in(epoch, &messages), bytes);
    }
    let shown = messages.into_iter().map(|message| match message {
        Ok(message) => format!("{message:?}\n"),
        Err(error) => refused(error),
    });
    let header = if epoch == 0 { String::new() } else { format!("epoch {epoch}\n") };
    header + &shown.collect::<String>()
}

fn hello(bytes: &[u8]) -> String {
    let hello = match Hello::decode(bytes) {
        Ok(hello) => hello,
        Err(error) => return refused(error),
    };
    let is_same = encoded(&hello) == bytes;
    let differs = if is_same { "" } else { "encodes to other bytes" };
    assert!(is_same || hello.version > VERSION || hello.check(&ours()).is_ok());
    assert_eq!(hello.check(&ours()).is_ok(), ours().check(&hello).is_ok(), "both sides agree");
    let answer = match hello.check(&ours()) {
        Ok(()) => "accepted".to_owned(),
        Err(refused) => format!("refused: {refused}"),
    };
    let Hello { version, cell_name, cell, list, node, boot, shard, birth, epoch, .. } = hello;
    let Hello { clients, durable_leases, .. } = hello;
    let (members, drift) = (cell.members(), cell.drift());
    format!(
        "version {version}, cell {cell_name}, members {members:?}, max_lease {}, drift {} ppm and {:?}
         node {node}, boot {boot:#x}, {shard:?}
         {list:?}, {birth:?}, epoch {epoch}, clients {clients:?}, durable leases on {durable_leases}
         {differs}
         {answer}",
        cell.max_lease(),
        drift.ppm(),
        drift.granularity(),
    )
}

fn farewell(bytes: &[u8]) -> String {
    Farewell::decode(bytes).map_or_else(refused, |farewell| {
        let mut out = Vec::new();
        Farewell::encode(&farewell.as_str(), &mut out);
        assert_eq!(out, bytes);
        farewell.to_string()
    })
}

fn heartbeat(bytes: &[u8]) -> String {
    Heartbeat::decode(bytes).map_or_else(refused, |beat| {
        let mut out = Vec::new();
        beat.encode(&mut out);
        assert_eq!(out, bytes);
        assert!((0..out.len()).all(|cut| Heartbeat::decode(&out[..cut]).is_err()));
        format!("{beat:?}")
    })
}

fn record(bytes: &[u8]) -> String {
    decode_record(node(2), bytes).map_or_else(refused, |record| {
        assert_eq!(encode_record(node(2), &record), bytes);
        format!("{record:?}")
    })
}

fn snapshot(bytes: &[u8]) -> String {
    SnapshotReader::new(node(2), bytes).map_or_else(refused, |reader| {
        let (ceiling, epoch) = (reader.ballot_ceiling(), reader.epoch());
        let leases: Vec<SnapshotLease<'_>> = reader.collect();
        let mut out = Vec::new();
        let mut writer = SnapshotWriter::begin(node(2), ceiling, epoch, &mut out);
        leases.iter().for_each(|lease| writer.push(lease, &mut out));
        writer.finish(&mut out);
        assert_eq!(out, bytes);
        format!("ceiling {ceiling}, epoch {epoch}, {leases:?}")
    })
}

fn durable(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let read = read_durable(node(2), BIRTH, bytes, |record| match record {
        DurableRecord::Register(register) => {
            let DurableRegister { label, ballot, value } = register.decode();
            shown += &format!("{:?}, {:?}, {ballot}: {value:?}\n", label.name(), label.holder());
        }
        other => shown += &format!("{other:?}\n"),
    });
    let read = read.map(|end| format!("{shown}{end:?}"));
    read.unwrap_or_else(refused)
}

fn request(bytes: &[u8]) -> String {
    match Request::parse(bytes) {
        Ok(None) => "incomplete".to_owned(),
        Ok(Some((request, consumed))) => {
            let shown = request.args().iter().map(|arg| match arg.len() {
                0..100 => format!("\"{}\"", arg.escape_ascii()),
                len => format!("{len} bytes"),
            });
            let shown = shown.take(4).collect::<Vec<_>>().join(" ");
            format!("{} arguments: {shown}; {consumed} of {} bytes", request.len(), bytes.len())
        }
        Err(error) => refused(error),
    }
}

fn value(bytes: &[u8]) -> String {
    match Value::parse(bytes) {
        Ok(None) => "incomplete".to_owned(),
        Ok(Some((value, consumed))) => {
            assert_eq!(consumed, bytes.len());
            show(value)
        }
        Err(error) => refused(error),
    }
}

fn show(value: Value<'_>) -> String {
    let debug = format!("{value:?}");
    let kind = debug.split('(').next().unwrap_or_default();
    if let Some(items) = value.items() {
        return format!("{kind} [{}]", items.map(show).collect::<Vec<_>>().join(", "));
    }
    match value {
        Value::Simple(text) | Value::Error(text) | Value::Bulk(text) => {
            format!("{kind} \"{}\"", text.escape_ascii())
        }
        _ => debug,
    }
}
