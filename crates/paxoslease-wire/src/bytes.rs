//! Encodes and decodes numbers and texts. Decoding checks every step and never trusts a length.
//! This module knows nothing about messages.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::DecodeError;

/// The bytes that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError::Truncated(field))?;
        self.0 = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A length and that many bytes. A length below 128 takes one byte. A longer one takes two: the
    /// first holds the low seven bits and a set top bit, the second holds the upper eight bits,
    /// which are never zero.
    #[inline]
    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let low = self.u8(field)?;
        let mut len = usize::from(low & 0x7f);
        if low & 0x80 != 0 {
            let high = self.u8(field)?;
            if high == 0 {
                return Err(DecodeError::LengthNotMinimal(field));
            }
            len |= usize::from(high) << 7;
        }
        let (text, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated(field))?;
        self.0 = rest;
        Ok(text)
    }

    /// Fails if bytes are left.
    pub(crate) fn end(self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing(extra)),
        }
    }
}

#[inline]
pub(crate) fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

#[inline]
pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

#[inline]
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// The inverse of [`Cursor::text`]. Every text type is bounded far below the 15 bits available.
#[inline]
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let len = text.len();
    debug_assert!(len < 1 << 15, "texts are bounded by their types");
    if len < 0x80 {
        out.push(len as u8);
    } else {
        out.extend_from_slice(&[len as u8 | 0x80, (len >> 7) as u8]);
    }
    out.extend_from_slice(text);
}

/// Appends a text of at most `len_max` bytes. A longer one is cut between two characters.
pub(crate) fn put_bounded(out: &mut Vec<u8>, text: &dyn fmt::Display, len_max: usize) {
    let mut bounded = Bounded { out, room: len_max };
    // The writer fails only when it is full, and then it holds as much as fits.
    let _cut_short = write!(bounded, "{text}");
}

struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    room: usize,
}

impl Write for Bounded<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(self.room);
        self.out.extend_from_slice(&text.as_bytes()[..fits]);
        // After a cut, no later piece may follow.
        self.room = if fits == text.len() { self.room - fits } else { 0 };
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
