//! A stream of arbitrary bytes: nothing panics, and whatever decodes has exactly that encoding.
//!
//! The input is tried as a stream of frames, and as the messages of one frame whose envelope and
//! header are sound, so that the fuzzer need not guess those first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paxoslease_core::{Message, NodeId};
use paxoslease_wire::{FRAME_LEN_MAX, FrameReader, FrameWriter, split_frame};

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Ok(Some((frame, rest))) = split_frame(stream) {
        check(frame);
        stream = rest;
    }
    let mut frame = FrameWriter::new(NodeId::MAX).finish(7).to_vec();
    frame.extend_from_slice(bytes);
    if frame.len() <= FRAME_LEN_MAX {
        let len = u32::try_from(frame.len() - 4).expect("below the bound");
        frame[..4].copy_from_slice(&len.to_le_bytes());
        check(&frame);
    }
});

fn check(frame: &[u8]) {
    let Ok(reader) = FrameReader::new(frame) else { return };
    let header = reader.header();
    let Ok(messages) = reader.collect::<Result<Vec<Message<'_>>, _>>() else { return };
    let mut writer = FrameWriter::new(header.sender);
    for message in &messages {
        if !writer.push(message) {
            return; // The writer closes frames a little before the bound.
        }
    }
    assert_eq!(writer.finish(header.counter), frame);
}
