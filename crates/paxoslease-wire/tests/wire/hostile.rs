//! Every kind of malformed input has its own error. That no input causes a panic, and that what
//! decodes encodes to the same bytes again, is checked by the fuzz targets.

use crate::samples::{Parts, SHAPES, encoded, frame_of, hello, messages_of};
use paxoslease_core::{CellError, Message, TextError};
use paxoslease_wire::{
    DecodeError as E, FRAME_LEN_MAX, Farewell, FrameKind, FrameReader, HEADER_LEN, Hello,
    split_frame,
};

/// A frame with one message, given as bytes.
fn frame_with(body: &[u8]) -> Vec<u8> {
    let mut frame = frame_of(&[]);
    frame.extend_from_slice(body);
    let len = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&len.to_le_bytes());
    frame
}

/// A message of this shape, with the bytes at one place overwritten.
fn spoiled(shape: u8, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame_of(&[Parts::typical(shape).message()]);
    frame[HEADER_LEN + at..HEADER_LEN + at + bytes.len()].copy_from_slice(bytes);
    frame
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
    let propose = frame_of(&[Parts::typical(1).message()]);
    let field_at = |cut: usize| error_of(&frame_with(&propose[HEADER_LEN..HEADER_LEN + cut]));
    assert_eq!(field_at(8), E::Truncated("ballot"));
    assert_eq!(field_at(12), E::Truncated("ttl"));
    assert_eq!(field_at(29), E::Truncated("name"));
    assert_eq!(field_at(30), E::Truncated("holder"));
}

#[test]
fn an_impossible_length_is_refused_before_anything_is_buffered() {
    let too_long = (FRAME_LEN_MAX as u32 - 3).to_le_bytes();
    assert_eq!(split_frame(&too_long), Err(E::FrameTooLong(FRAME_LEN_MAX as u32 - 3)));
    assert_eq!(split_frame(&[0xff; 4]), Err(E::FrameTooLong(u32::MAX)));
    assert_eq!(split_frame(&(FRAME_LEN_MAX as u32 - 4).to_le_bytes()), Ok(None));
    for len in 0..4 {
        assert_eq!(split_frame(&[len, 0, 0, 0]), Err(E::FrameTooShort(len.into())));
    }
}

#[test]
fn other_protocols_are_noticed_at_once() {
    assert!(matches!(split_frame(b"GET / HTTP/1.1\r\n"), Err(E::FrameTooLong(_))));
    assert!(matches!(split_frame(b"*1\r\n$4\r\nPING\r\n"), Err(E::FrameTooLong(_))));
    let found = *b"XY";
    assert_eq!(split_frame(b"\xff\0\0\0XY"), Err(E::Magic(found)), "with 251 bytes to come");
}

#[test]
fn a_frame_of_another_version_or_kind_says_so() {
    let mut frame = frame_of(&[]);
    frame[6] = 2;
    assert_eq!(FrameReader::new(&frame).unwrap_err(), E::Version(2));
    frame[7] = 9;
    assert_eq!(FrameReader::new(&frame).unwrap_err(), E::UnknownKind(9));
    let (expected, found) = (FrameKind::Messages, FrameKind::Hello);
    let error = FrameReader::new(&encoded(&hello())).unwrap_err();
    assert_eq!(error, E::UnexpectedKind { expected, found });
}

#[test]
fn bytes_behind_a_frame_or_a_greeting_are_an_error() {
    let mut frame = frame_of(&[]);
    frame.extend_from_slice(b"xyz");
    assert_eq!(FrameReader::new(&frame).unwrap_err(), E::Trailing(3));
    let mut greeting = encoded(&hello());
    greeting.push(0);
    assert_eq!(Hello::decode(&greeting), Err(E::Trailing(1)));
    greeting[0] += 1;
    assert_eq!(Hello::decode(&greeting), Err(E::Trailing(1)), "inside the frame");
}

#[test]
fn each_malformed_field_of_a_header_or_message_is_named() {
    let mut frame = frame_of(&[]);
    frame[8..10].copy_from_slice(&1024u16.to_le_bytes());
    assert_eq!(FrameReader::new(&frame).unwrap_err(), E::Sender(1024));
    frame.truncate(12);
    frame[0] = 8;
    frame[8] = 1;
    frame[9] = 0;
    assert_eq!(FrameReader::new(&frame).unwrap_err(), E::Truncated("counter"));

    let huge = (1u64 << 63).to_le_bytes();
    let without_node = 1024u64.to_le_bytes();
    assert_eq!(error_of(&frame_with(&[0x7f])), E::UnknownMessage(0x7f));
    assert_eq!(error_of(&frame_with(&[0x92])), E::UnknownMessage(0x92), "an Accept has no lease");
    assert_eq!(error_of(&spoiled(0, 1, &huge)), E::Ballot(1 << 63));
    assert_eq!(error_of(&spoiled(11, 9, &huge)), E::Promised(1 << 63));
    assert_eq!(error_of(&spoiled(4, 1, &without_node)), E::Tenure(1024));
    assert_eq!(error_of(&spoiled(7, 9, &[0; 8])), E::Tenure(0));
    assert_eq!(error_of(&spoiled(1, 9, &[0; 4])), E::TtlZero);
    assert_eq!(error_of(&spoiled(7, 17, &[0; 4])), E::RemainingZero);
    assert_eq!(error_of(&spoiled(17, 3, b"\xff")), E::Name(TextError::NotUtf8));
    assert_eq!(error_of(&spoiled(7, 22, b"\xff")), E::Holder(TextError::NotUtf8));
    assert_eq!(error_of(&frame_with(&[0x22, 0, 0])), E::Name(TextError::Empty));
    let not_minimal = error_of(&frame_with(&[0x22, 0, 0x81, 0x00, b'x']));
    assert_eq!(not_minimal, E::LengthNotMinimal("name"));
}

#[test]
fn oversized_texts_are_refused() {
    let mut freed = vec![0x22, 0, 0x81, 0x04];
    freed.extend_from_slice(&[b'n'; 513]);
    let max = 512;
    assert_eq!(error_of(&frame_with(&freed)), E::Name(TextError::TooLong { len: 513, max }));
    let mut promise = frame_of(&[Parts::typical(7).message()])[HEADER_LEN..][..21].to_vec();
    promise.extend_from_slice(&[0x81, 0x02]);
    promise.extend_from_slice(&[b'h'; 257]);
    let max = 256;
    assert_eq!(error_of(&frame_with(&promise)), E::Holder(TextError::TooLong { len: 257, max }));
}

#[test]
fn a_malformed_message_ends_the_frame_after_the_whole_ones() {
    let whole = Parts::typical(8);
    let mut body = frame_of(&[whole.message()])[HEADER_LEN..].to_vec();
    body.push(0xff);
    body.extend_from_slice(&body.clone());
    let frame = frame_with(&body);
    let mut reader = FrameReader::new(&frame).expect("a sound header");
    assert_eq!(reader.next(), Some(Ok(whole.message())));
    assert_eq!(reader.next(), Some(Err(E::UnknownMessage(0xff))));
    assert_eq!(reader.next(), None);
}

#[test]
fn each_malformed_field_of_a_greeting_is_named() {
    let spoil = |at: usize, bytes: &[u8]| {
        let mut frame = encoded(&hello());
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        Hello::decode(&frame).expect_err("spoiled")
    };
    assert_eq!(spoil(8, &[0, 0]), E::Node(0));
    assert_eq!(spoil(18, &[4, 0]), E::Shard { index: 4, count: 4 });
    assert_eq!(spoil(18, &[0, 0, 0, 0]), E::Shard { index: 0, count: 0 });
    assert_eq!(spoil(22, &[0; 4]), E::MaxLeaseZero);
    assert!(matches!(spoil(22, &[49, 0, 0, 0]), E::Cell(CellError::MaxLeaseTooShort(_))));
    assert_eq!(spoil(26, &[0xff; 4]), E::DriftPpm(u32::MAX));
    assert!(matches!(spoil(30, &[0xff; 4]), E::Cell(CellError::DriftTooLarge(_))));
    assert_eq!(spoil(35, b"\xff"), E::CellName(TextError::NotUtf8));
    assert_eq!(spoil(34, &[0]), E::CellName(TextError::Empty));
    assert_eq!(spoil(40, &[0]), E::Cell(CellError::MemberCount(0)));
    assert_eq!(spoil(40, &[10]), E::Cell(CellError::MemberCount(10)));
    assert_eq!(spoil(40, &[4]), E::Truncated("member"));
    assert_eq!(spoil(41, &[0, 4]), E::Member(1024));
    assert!(matches!(spoil(41, &[2, 0]), E::Cell(CellError::DuplicateMember(_))));
    let mut long = encoded(&hello());
    long.splice(34..40, [65].into_iter().chain([b'c'; 65]));
    long[0] += 60;
    let error = TextError::TooLong { len: 65, max: 64 };
    assert_eq!(Hello::decode(&long), Err(E::CellName(error)));
}

#[test]
fn a_farewell_of_invalid_or_too_much_text_is_refused() {
    let farewell = |text: &[u8]| {
        let mut frame = vec![0, 0, 0, 0, b'P', b'L', 1, 3];
        frame.extend_from_slice(text);
        let len = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&len.to_le_bytes());
        Farewell::decode(&frame).map(|_| ())
    };
    assert_eq!(farewell(&[b'x'; 512]), Ok(()));
    let error = TextError::TooLong { len: 513, max: 512 };
    assert_eq!(farewell(&[b'x'; 513]), Err(E::Farewell(error)));
    assert_eq!(farewell(b"\xff"), Err(E::Farewell(TextError::NotUtf8)));
}
