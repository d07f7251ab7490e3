//! What a node is told before it is hung up on. For people to read; a program knows the same from
//! the greeting it heard.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use paxoslease_core::TextError;

use crate::frame::{Envelope, FrameKind, VERSION};
use crate::{DecodeError, DecodeError as E};

/// Why the other side will not speak to us, in its own words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Farewell<'a>(&'a str);

impl<'a> Farewell<'a> {
    /// The longest text, in bytes.
    pub const LEN_MAX: usize = 512;

    /// Appends a farewell as one frame. A reason longer than [`Self::LEN_MAX`] is cut short.
    pub fn encode(reason: &dyn fmt::Display, out: &mut Vec<u8>) {
        Envelope { version: VERSION, kind: FrameKind::Farewell }.write(out, |out| {
            let mut text = Bounded { out, room: Self::LEN_MAX };
            // The only error is "no room left", and then as much as there was room for is written.
            let _cut_short = write!(text, "{reason}");
        });
    }

    /// Reads exactly one frame, of any version.
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

    /// The text as it came; it may hold control characters.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// Safe to show: control characters are escaped.
impl fmt::Display for Farewell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() { write!(f, "{}", c.escape_default()) } else { f.write_char(c) }
        })
    }
}

/// Takes whole characters as long as there is room.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    room: usize,
}

impl Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(self.room);
        self.out.extend_from_slice(&text.as_bytes()[..fits]);
        // Once cut, no later piece may follow.
        self.room = if fits == text.len() { self.room - fits } else { 0 };
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
