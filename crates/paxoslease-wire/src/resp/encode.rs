//! Encodes values and commands into a buffer that the caller reuses: nothing here allocates once
//! the buffer has grown.

use alloc::vec::Vec;
use core::fmt;

use super::LINE_LEN_MAX;
use crate::bytes::put_bounded;

/// The version of RESP that a connection uses. Only RESP3 has nulls, booleans, maps and pushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// Every connection begins with this version.
    #[default]
    Resp2,
    /// A connection switches to this version with `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// The version's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }

    /// A null in place of a string.
    pub fn put_null(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Resp2 => b"$-1\r\n",
            Self::Resp3 => b"_\r\n",
        });
    }

    /// A null in place of an array. Some RESP2 clients tell the two nulls apart.
    pub fn put_null_array(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Resp2 => b"*-1\r\n",
            Self::Resp3 => b"_\r\n",
        });
    }

    /// A boolean; in RESP2 the integer 1 or 0.
    pub fn put_boolean(self, out: &mut Vec<u8>, yes: bool) {
        out.extend_from_slice(match (self, yes) {
            (Self::Resp2, true) => b":1\r\n",
            (Self::Resp2, false) => b":0\r\n",
            (Self::Resp3, true) => b"#t\r\n",
            (Self::Resp3, false) => b"#f\r\n",
        });
    }

    /// Opens a map of `pairs` keys, each followed by its value. In RESP2 an array.
    pub fn put_map(self, out: &mut Vec<u8>, pairs: usize) {
        match self {
            Self::Resp2 => put_array(out, pairs * 2),
            Self::Resp3 => put_head(out, b'%', pairs as u64),
        }
    }

    /// Opens a push, which answers no request, of `items` values. In RESP2 an array, which only a
    /// client that subscribed to something understands.
    pub fn put_push(self, out: &mut Vec<u8>, items: usize) {
        match self {
            Self::Resp2 => put_array(out, items),
            Self::Resp3 => put_head(out, b'>', items as u64),
        }
    }
}

/// Opens an array of `items` values.
#[inline]
pub fn put_array(out: &mut Vec<u8>, items: usize) {
    put_head(out, b'*', items as u64);
}

/// A string of any bytes.
#[inline]
pub fn put_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    put_head(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A number as a string, the form that arguments of commands take.
#[inline]
pub fn put_bulk_integer(out: &mut Vec<u8>, number: u64) {
    put_bulk(out, itoa::Buffer::new().format(number).as_bytes());
}

/// An integer.
#[inline]
pub fn put_integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A short text of our own, such as `OK`. A line break in it becomes a space.
pub fn put_simple(out: &mut Vec<u8>, text: &dyn fmt::Display) {
    put_line(out, b'+', text);
}

/// An error. Its first word is the code for programs. A line break in it becomes a space, so that
/// text from a client, echoed in an error, cannot pass for another reply. Text beyond
/// [`LINE_LEN_MAX`] is cut off.
pub fn put_error(out: &mut Vec<u8>, text: &dyn fmt::Display) {
    put_line(out, b'-', text);
}

/// A whole command: its name and arguments.
pub fn put_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    put_array(out, args.len());
    for arg in args {
        put_bulk(out, arg);
    }
}

#[inline]
fn put_head(out: &mut Vec<u8>, kind: u8, len: u64) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn put_line(out: &mut Vec<u8>, kind: u8, text: &dyn fmt::Display) {
    out.push(kind);
    let start = out.len();
    // CR LF must fit within the bound too.
    put_bounded(out, text, LINE_LEN_MAX - 2);
    for byte in &mut out[start..] {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}
