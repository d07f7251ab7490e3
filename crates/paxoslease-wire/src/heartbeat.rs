//! Signs of life on a connection with nothing to say: a question and its echo. What silence means
//! is left to who keeps the connections.

use alloc::vec::Vec;

use crate::DecodeError;
use crate::bytes::put_u64;
use crate::frame::{Envelope, FrameKind, VERSION};

/// A number to be sent back as it came; the sender learns how long the way there and back took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heartbeat {
    /// Asks for the number back.
    Ping(u64),
    /// Sends it back.
    Pong(u64),
}

impl Heartbeat {
    /// Appends it as one frame.
    pub fn encode(self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Ping(number) => (FrameKind::Ping, number),
            Self::Pong(number) => (FrameKind::Pong, number),
        };
        Envelope { version: VERSION, kind }.write(out, |out| put_u64(out, number));
    }

    /// Reads exactly one frame.
    ///
    /// # Errors
    /// When the bytes are not one whole heartbeat of our version.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let kind = FrameKind::of(frame)?;
        let beat = if kind == FrameKind::Pong { Self::Pong } else { Self::Ping };
        let expected = if kind == FrameKind::Pong { kind } else { FrameKind::Ping };
        let (version, mut cursor) = Envelope::expect(expected, frame)?;
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let number = cursor.u64("heartbeat")?;
        cursor.end()?;
        Ok(beat(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_survives_the_way_there_and_back() {
        for beat in [Heartbeat::Ping(7), Heartbeat::Pong(u64::MAX)] {
            let mut frame = Vec::new();
            beat.encode(&mut frame);
            assert_eq!(Heartbeat::decode(&frame), Ok(beat));
            for len in 0..frame.len() {
                assert!(Heartbeat::decode(&frame[..len]).is_err());
            }
        }
    }

    #[test]
    fn another_frame_is_no_heartbeat() {
        let mut frame = Vec::new();
        crate::Farewell::encode(&"12345678", &mut frame);
        assert!(matches!(
            Heartbeat::decode(&frame),
            Err(DecodeError::UnexpectedKind { expected: FrameKind::Ping, .. })
        ));
    }
}
