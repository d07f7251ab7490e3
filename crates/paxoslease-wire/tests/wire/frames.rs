//! Frames carry every message, in documented sizes and pinned bytes.

use crate::samples::{Parts, SHAPES, frame_of, messages_of, node, parts};
use paxoslease_core::{Ballot, Message};
use paxoslease_wire::{
    DecodeError, FRAME_LEN_MAX, FrameKind, FrameReader, FrameWriter, HEADER_LEN, Header,
    MESSAGE_LEN_MAX, split_frame,
};
use proptest::prelude::*;

#[test]
fn messages_have_their_documented_sizes() {
    let sizes: Vec<usize> = (0..SHAPES)
        .map(|shape| frame_of(&[Parts::typical(shape).message()]).len() - HEADER_LEN)
        .collect();
    assert_eq!(
        sizes,
        [26, 47, 38, 55, 26, 26, 9, 38, 9, 17, 46, 17, 9, 9, 9, 38, 47, 19, 31],
        "the table in the crate's documentation says so too"
    );
    assert_eq!(HEADER_LEN, 18);
}

#[test]
fn the_longest_message_is_a_heal() {
    let longest =
        |shape| Parts { name: "n".repeat(512), holder: "h".repeat(256), ..Parts::typical(shape) };
    let len = |shape| frame_of(&[longest(shape).message()]).len() - HEADER_LEN;
    assert_eq!(len(3), MESSAGE_LEN_MAX);
    assert_eq!((0..SHAPES).map(len).max(), Some(MESSAGE_LEN_MAX));
}

/// Version 1, byte by byte. A change here is a new version of the protocol.
#[test]
fn the_bytes_of_version_1_are_these() {
    let short = |shape| Parts {
        shape,
        name: "ab".into(),
        holder: "c".into(),
        ballot: 0x0102_0304_0506_0708,
        other: 0x1112_1314_1516_1718,
        fence: 0x2122_2324_2526_2728,
        millis: 0x3132_3334,
    };
    const BALLOT: &str = "0807060504030201";
    const OTHER: &str = "1817161514131211";
    const FENCE: &str = "2827262524232221";
    const TTL: &str = "34333231";
    const NAME: &str = "026162";
    const HOLDER: &str = "0163";
    let expected = [
        format!("01{BALLOT}{NAME}"),
        format!("02{BALLOT}{TTL}{NAME}{HOLDER}"),
        format!("03{BALLOT}{FENCE}{TTL}{NAME}"),
        format!("04{BALLOT}{FENCE}{TTL}{NAME}{HOLDER}"),
        format!("05{FENCE}{NAME}"),
        format!("06{OTHER}{NAME}"),
        format!("11{BALLOT}"),
        format!("91{BALLOT}{FENCE}{TTL}{HOLDER}"),
        format!("12{BALLOT}"),
        format!("13{BALLOT}{OTHER}"),
        format!("93{BALLOT}{OTHER}{FENCE}{TTL}{HOLDER}"),
        format!("14{BALLOT}{OTHER}"),
        format!("15{FENCE}"),
        format!("95{FENCE}"),
        format!("16{OTHER}"),
        format!("96{OTHER}{FENCE}{TTL}{HOLDER}"),
        format!("21{FENCE}{TTL}{HOLDER}{NAME}"),
        format!("2218{NAME}"),
        format!("02{BALLOT}{TTL}{NAME}00"),
    ];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (shape, body) in (0..SHAPES).zip(expected) {
        let frame = frame_of(&[short(shape).message()]);
        let len = (HEADER_LEN - 4 + body.len() / 2) as u8;
        let header = format!("{len:02x}000000504c010103000700000000000000");
        assert_eq!(hex(&frame), header + &body, "shape {shape}");
    }
    let long = Parts { name: "n".repeat(300), ..short(17) };
    let frame = frame_of(&[long.message()]);
    let begins = [0x22, 0x18, 0xac, 0x02, b'n'];
    assert_eq!(frame[HEADER_LEN..HEADER_LEN + 5], begins, "300 = 0x2c + 2 * 128");
}

#[test]
fn a_full_frame_keeps_the_bound_and_the_next_has_room() {
    let parts = Parts::typical(1);
    let mut writer = FrameWriter::new(node(3));
    let mut pushed = 0;
    while writer.push(&parts.message()) {
        pushed += 1;
    }
    let full = writer.finish(1).to_vec();
    assert!(full.len() <= FRAME_LEN_MAX && full.len() + MESSAGE_LEN_MAX > FRAME_LEN_MAX);
    assert_eq!(messages_of(&full).expect("whole").len(), pushed);

    assert!(writer.push(&parts.message()), "a fresh frame has room for any message");
    let next = writer.finish(2).to_vec();
    assert_eq!(writer.finished(), [full.as_slice(), &next].concat());
    let (first, rest) = split_frame(writer.finished()).expect("sound").expect("whole");
    assert_eq!((first, rest), (full.as_slice(), next.as_slice()));
}

#[test]
fn consuming_keeps_unsent_bytes_and_the_open_frame() {
    let parts = Parts::typical(8);
    let mut writer = FrameWriter::new(node(3));
    assert!(!writer.is_open());
    assert!(writer.push(&parts.message()));
    assert!(writer.is_open() && writer.finished().is_empty());
    let frame = writer.finish(1).to_vec();
    assert!(!writer.is_open());

    assert!(writer.push(&parts.message()));
    writer.consume(5);
    assert_eq!(writer.finished(), &frame[5..]);
    writer.clear();
    assert!(writer.finished().is_empty() && writer.is_open());
    assert_eq!(writer.finish(1), frame, "the open frame moved, and is whole");
}

#[test]
fn an_empty_frame_carries_the_counter_alone() {
    let mut writer = FrameWriter::new(node(9));
    let mut reader = FrameReader::new(writer.finish(42)).expect("sound");
    assert_eq!(reader.header(), Header { sender: node(9), counter: 42 });
    assert_eq!(reader.next(), None);
}

#[test]
fn a_counter_above_the_limit_is_neither_sent_nor_taken() {
    let mut writer = FrameWriter::new(node(9));
    let mut frame = writer.finish(u64::MAX).to_vec();
    let limit = Ballot::COUNTER_LIMIT;
    assert_eq!(FrameReader::new(&frame).expect("sound").header().counter, limit);
    frame[10..18].copy_from_slice(&(limit + 1).to_le_bytes());
    assert_eq!(FrameReader::new(&frame).unwrap_err(), DecodeError::Counter(limit + 1));
}

proptest! {
    #[test]
    fn frames_of_many_messages_come_back_in_order(
        all in prop::collection::vec(parts(), 0..100),
        sender in 1..=1023u16,
        counter in 0..=Ballot::COUNTER_LIMIT,
    ) {
        let messages: Vec<Message<'_>> = all.iter().map(Parts::message).collect();
        let mut writer = FrameWriter::new(node(sender));
        for message in &messages {
            prop_assert!(writer.push(message));
        }
        let frame = writer.finish(counter);
        prop_assert_eq!(FrameKind::of(frame), Ok(FrameKind::Messages));
        let reader = FrameReader::new(frame).expect("sound");
        prop_assert_eq!(reader.header(), Header { sender: node(sender), counter });
        prop_assert_eq!(reader.collect::<Result<Vec<_>, _>>(), Ok(messages));
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_frames(
        all in prop::collection::vec(prop::collection::vec(parts(), 0..4), 1..6),
        chunk in 1..200usize,
    ) {
        let mut writer = FrameWriter::new(node(1));
        for messages in &all {
            for parts in messages {
                prop_assert!(writer.push(&parts.message()));
            }
            writer.finish(1);
        }
        let mut received = Vec::new();
        let mut counts = Vec::new();
        for bytes in writer.finished().chunks(chunk) {
            received.extend_from_slice(bytes);
            while let Some((frame, rest)) = split_frame(&received).expect("sound") {
                counts.push(messages_of(frame).expect("sound").len());
                received = rest.to_vec();
            }
        }
        prop_assert!(received.is_empty());
        prop_assert_eq!(counts, all.iter().map(Vec::len).collect::<Vec<_>>());
    }
}
