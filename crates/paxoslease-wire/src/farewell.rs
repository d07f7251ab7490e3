//! The text that a node sends before it closes a connection. It is for people: a program already
//! knows the reason from the greeting it received.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use paxoslease_core::TextError;

use crate::bytes::put_bounded;
use crate::frame::{Envelope, FrameKind, VERSION};
use crate::{DecodeError, DecodeError as E};

/// Why the peer closes the connection, in the peer's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Farewell<'a>(&'a str);

impl<'a> Farewell<'a> {
    /// The text of a node that stops.
    pub const STOPPING: &'static str = "this node is stopping";

    /// The longest text, in bytes.
    pub const LEN_MAX: usize = 512;

    /// Appends a farewell as one frame. A reason longer than [`Self::LEN_MAX`] is cut short.
    pub fn encode(reason: &dyn fmt::Display, out: &mut Vec<u8>) {
        Envelope { version: VERSION, kind: FrameKind::Farewell }.write(out, |out| {
            put_bounded(out, reason, Self::LEN_MAX);
        });
    }

    /// Reads exactly one frame, of any protocol version.
    ///
    /// # Errors
    /// When the bytes are not one whole farewell.
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let (_any_version, cursor) = Envelope::expect(FrameKind::Farewell, frame)?;
        let len = cursor.0.len();
        if len > Self::LEN_MAX {
            return Err(E::Farewell(TextError::TooLong { len, max: Self::LEN_MAX }));
        }
        let text = core::str::from_utf8(cursor.0).map_err(|_| E::Farewell(TextError::NotUtf8))?;
        Ok(Self(text))
    }

    /// The text as received. It may contain control characters.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// Escapes control characters, so that a farewell cannot steer a terminal.
impl fmt::Display for Farewell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() { write!(f, "{}", c.escape_default()) } else { f.write_char(c) }
        })
    }
}
