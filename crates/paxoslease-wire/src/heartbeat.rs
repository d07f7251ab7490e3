//! Heartbeats on an idle connection: a Ping and its Pong.
//!
//! A Ping also carries the sender's quarantine, so that the receiver can tell a quarantined
//! acceptor from a silent one, and the sender's ballot counter, so that two nodes have the same
//! counter before their first round, and its epoch, so that a node that missed a change of the
//! members learns of it (C1). The caller decides what a missing Pong means.

use alloc::vec::Vec;

use crate::DecodeError;
use crate::bytes::{put_u32, put_u64};
use crate::frame::{Envelope, FrameKind, VERSION};

/// A number that the receiver sends back unchanged. The sender measures the round trip with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heartbeat {
    /// Asks for a Pong with the same number.
    Ping {
        /// The number to send back.
        number: u64,
        /// The milliseconds for which the sender, in quarantine, still answers no request. A hint.
        quarantine_ms: u32,
        /// The highest ballot counter the sender has seen, as in the header of every frame of
        /// messages.
        counter: u64,
        /// The sender's epoch.
        epoch: u32,
    },
    /// Answers a Ping, with the Ping's number.
    Pong(u64),
}

impl Heartbeat {
    /// Appends the heartbeat as one frame.
    pub fn encode(self, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Ping { .. } => FrameKind::Ping,
            Self::Pong(_) => FrameKind::Pong,
        };
        Envelope { version: VERSION, kind }.write(out, |out| match self {
            Self::Ping { number, quarantine_ms, counter, epoch } => {
                put_u64(out, number);
                put_u32(out, quarantine_ms);
                put_u64(out, counter);
                put_u32(out, epoch);
            }
            Self::Pong(number) => put_u64(out, number),
        });
    }

    /// Reads exactly one frame.
    ///
    /// # Errors
    /// When the bytes are not one whole heartbeat of our version.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let is_pong = FrameKind::of(frame)? == FrameKind::Pong;
        let expected = if is_pong { FrameKind::Pong } else { FrameKind::Ping };
        let (version, mut cursor) = Envelope::expect(expected, frame)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let number = cursor.u64("heartbeat")?;
        let beat = if is_pong {
            Self::Pong(number)
        } else {
            let quarantine_ms = cursor.u32("quarantine")?;
            let (counter, epoch) = (cursor.u64("counter")?, cursor.u32("epoch")?);
            Self::Ping { number, quarantine_ms, counter, epoch }
        };
        cursor.end()?;
        Ok(beat)
    }
}
