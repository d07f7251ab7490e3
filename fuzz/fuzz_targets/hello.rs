//! Greetings, farewells and heartbeats of arbitrary bytes: nothing panics, whatever decodes
//! survives another round trip, and a greeting gets along with itself in all but the node id.
//!
//! The input is tried as a frame, and as the body of a frame whose envelope is sound; its first
//! byte then chooses the version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use paxoslease_wire::{FRAME_LEN_MAX, Farewell, FrameKind, Heartbeat, Hello, Refused};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let Some((version, body)) = bytes.split_first() else { return };
    for kind in [FrameKind::Hello, FrameKind::Farewell, FrameKind::Ping, FrameKind::Pong] {
        let mut frame = vec![0, 0, 0, 0, b'P', b'L', *version, kind as u8];
        frame.extend_from_slice(body);
        if frame.len() <= FRAME_LEN_MAX {
            let len = u32::try_from(frame.len() - 4).expect("below the bound");
            frame[..4].copy_from_slice(&len.to_le_bytes());
            check(&frame);
        }
    }
});

fn check(frame: &[u8]) {
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
