//! Frames carry every message, in documented sizes, and decode only when they are whole.

use crate::samples::{
    Parts, SHAPES, encoded, frame_of, frame_with, hello, messages_of, node, parts,
};
use paxoslease_core::{Ballot, Message};
use paxoslease_wire::{
    DecodeError as E, FRAME_LEN_MAX, Farewell, FrameKind, FrameReader, FrameWriter, HEADER_LEN,
    Header, Hello, MESSAGE_LEN_MAX, split_frame,
};
use proptest::prelude::*;

#[test]
fn messages_have_their_documented_sizes() {
    let sizes: Vec<usize> = (0..SHAPES)
        .map(|shape| frame_of(&[Parts::typical(shape).message()]).len() - HEADER_LEN)
        .collect();
    assert_eq!(
        sizes,
        [
            26, 47, 38, 55, 34, 26, 9, 38, 9, 17, 46, 17, 9, 17, 9, 38, 47, 19, 31, 35, 26, 67, 67,
            26, 10, 18, 59, 67, 59, 9, 17, 9, 9, 9, 50
        ],
        "the table in the crate's documentation says so too"
    );
    assert_eq!(HEADER_LEN, 22);
}

#[test]
fn the_longest_message_is_a_store() {
    let longest =
        |shape| Parts { name: "n".repeat(512), holder: "h".repeat(256), ..Parts::typical(shape) };
    let len = |shape| frame_of(&[longest(shape).message()]).len() - HEADER_LEN;
    assert_eq!(len(21), MESSAGE_LEN_MAX);
    assert_eq!((0..SHAPES).map(len).max(), Some(MESSAGE_LEN_MAX));
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
fn an_empty_frame_carries_counter_and_epoch_alone() {
    let mut writer = FrameWriter::new(node(9));
    writer.set_epoch(7);
    let mut reader = FrameReader::new(writer.finish(42)).expect("sound");
    assert_eq!(reader.header(), Header { sender: node(9), counter: 42, epoch: 7 });
    assert_eq!(reader.next(), None);
}

#[test]
fn an_epoch_holds_for_the_frames_opened_after_it() {
    let mut writer = FrameWriter::new(node(9));
    let parts = Parts::typical(8);
    for epoch in [0, 3, u32::MAX] {
        writer.set_epoch(epoch);
        assert!(writer.push(&parts.message()));
        assert_eq!(FrameReader::new(writer.finish(1)).expect("sound").header().epoch, epoch);
    }
}

#[test]
#[should_panic(expected = "a frame has one epoch")]
fn an_open_frame_keeps_its_epoch() {
    let mut writer = FrameWriter::new(node(9));
    assert!(writer.push(&Parts::typical(8).message()));
    writer.set_epoch(1);
}

#[test]
fn a_counter_above_the_limit_is_neither_sent_nor_taken() {
    let mut writer = FrameWriter::new(node(9));
    let mut frame = writer.finish(u64::MAX).to_vec();
    let limit = Ballot::COUNTER_LIMIT;
    assert_eq!(FrameReader::new(&frame).expect("sound").header().counter, limit);
    frame[10..18].copy_from_slice(&(limit + 1).to_le_bytes());
    assert_eq!(FrameReader::new(&frame).unwrap_err(), E::Counter(limit + 1));
}

fn error_of(frame: &[u8]) -> E {
    messages_of(frame).expect_err("spoiled")
}

#[test]
fn a_cut_frame_is_incomplete_and_never_decodes() {
    let all: Vec<Parts> = (0..SHAPES).map(Parts::typical).collect();
    let messages: Vec<Message<'_>> = all.iter().map(Parts::message).collect();
    let frame = frame_of(&messages);
    let hello = encoded(&hello());
    let mut farewell = Vec::new();
    Farewell::encode(&"no", &mut farewell);
    for cut in 0..frame.len() {
        assert_eq!(split_frame(&frame[..cut]), Ok(None));
        assert_eq!(error_of(&frame[..cut]), E::Truncated("frame"));
    }
    for cut in 0..hello.len() {
        assert_eq!(split_frame(&hello[..cut]), Ok(None));
        assert_eq!(Hello::decode(&hello[..cut]), Err(E::Truncated("frame")));
    }
    for cut in 0..farewell.len() {
        assert_eq!(Farewell::decode(&farewell[..cut]), Err(E::Truncated("frame")));
    }
}

#[test]
fn a_message_cut_at_any_byte_names_the_field_it_ends_in() {
    for shape in 0..SHAPES {
        let frame = frame_of(&[Parts::typical(shape).message()]);
        let body = &frame[HEADER_LEN..];
        for cut in 1..body.len() {
            let error = error_of(&frame_with(&body[..cut]));
            assert!(matches!(error, E::Truncated(_)), "shape {shape} cut at {cut}: {error:?}");
        }
    }
}

proptest! {
    #[test]
    fn frames_of_many_messages_come_back_in_order(
        all in prop::collection::vec(parts(), 0..100),
        sender in 1..=1023u16,
        counter in 0..=Ballot::COUNTER_LIMIT,
        epoch in any::<u32>(),
    ) {
        let messages: Vec<Message<'_>> = all.iter().map(Parts::message).collect();
        let mut writer = FrameWriter::new(node(sender));
        writer.set_epoch(epoch);
        for message in &messages {
            prop_assert!(writer.push(message));
        }
        let frame = writer.finish(counter);
        prop_assert_eq!(FrameKind::of(frame), Ok(FrameKind::Messages));
        let reader = FrameReader::new(frame).expect("sound");
        prop_assert_eq!(reader.header(), Header { sender: node(sender), counter, epoch });
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
