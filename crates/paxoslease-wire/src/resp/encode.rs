//! Values and commands to bytes, appended to a buffer that is used again and again: nothing here
//! allocates once the buffer has grown.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use super::LINE_LEN_MAX;

/// Which version a connection speaks. Only the second knows null, maps and pushes as such.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// What every connection speaks until it says otherwise.
    #[default]
    Resp2,
    /// What a connection speaks after `HELLO 3`.
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

    /// No value, where a string could stand.
    pub fn put_null(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Resp2 => b"$-1\r\n",
            Self::Resp3 => b"_\r\n",
        });
    }

    /// No value, where an array could stand: some clients of the first version care.
    pub fn put_null_array(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Resp2 => b"*-1\r\n",
            Self::Resp3 => b"_\r\n",
        });
    }

    /// True or false; in the first version 1 or 0.
    pub fn put_boolean(self, out: &mut Vec<u8>, yes: bool) {
        out.extend_from_slice(match (self, yes) {
            (Self::Resp2, true) => b":1\r\n",
            (Self::Resp2, false) => b":0\r\n",
            (Self::Resp3, true) => b"#t\r\n",
            (Self::Resp3, false) => b"#f\r\n",
        });
    }

    /// Opens a map: so many keys follow, each with its value. In the first version an array.
    pub fn put_map(self, out: &mut Vec<u8>, pairs: usize) {
        match self {
            Self::Resp2 => put_array(out, pairs * 2),
            Self::Resp3 => put_head(out, b'%', pairs as u64),
        }
    }

    /// Opens what answers no request: so many values follow. In the first version an array, which
    /// only a client that subscribed to something will understand.
    pub fn put_push(self, out: &mut Vec<u8>, items: usize) {
        match self {
            Self::Resp2 => put_array(out, items),
            Self::Resp3 => put_head(out, b'>', items as u64),
        }
    }
}

/// Opens an array: so many values follow.
#[inline]
pub fn put_array(out: &mut Vec<u8>, items: usize) {
    put_head(out, b'*', items as u64);
}

/// Any bytes.
#[inline]
pub fn put_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    put_head(out, b'$', bytes.len() as u64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A number as a string, as arguments of commands are.
#[inline]
pub fn put_bulk_integer(out: &mut Vec<u8>, number: u64) {
    put_bulk(out, itoa::Buffer::new().format(number).as_bytes());
}

/// A whole number.
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

/// An error, whose first word tells a program which. A line break in it becomes a space, so that
/// nothing a client sent and hears again can pass for another reply; what goes beyond
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
    // The end of the line has to fit too.
    let mut line = Line { room: LINE_LEN_MAX - 2, out };
    // The only error is "no room left", and then as much as there was room for is written.
    let _cut_short = write!(line, "{text}");
    out.extend_from_slice(b"\r\n");
}

/// Takes whole characters as long as there is room, and keeps them on one line.
struct Line<'a> {
    out: &'a mut Vec<u8>,
    room: usize,
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(self.room);
        let printed = text.as_bytes()[..fits].iter();
        self.out
            .extend(printed.map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
        // Once cut, no later piece may follow.
        self.room = if fits == text.len() { self.room - fits } else { 0 };
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
