//! RESP, the protocol of Redis, in both its versions: what clients say to a node and what they
//! hear. Requests and replies are read in place, from whatever bytes have come so far; nothing is
//! copied or allocated, and nothing is believed that the bytes themselves do not show.
//!
//! Knows no command and no lease. Left out, because no node says them: attributes, and strings and
//! aggregates that are streamed without a length.

mod encode;
mod reply;
mod request;
mod scan;

use core::fmt;

pub use encode::{
    Protocol, put_array, put_bulk, put_bulk_integer, put_command, put_error, put_integer,
    put_simple,
};
pub use reply::{Items, Value};
pub use request::Request;

/// The longest request, in bytes; a buffer of this size always holds one whole.
pub const REQUEST_LEN_MAX: usize = 64 * 1024;

/// The most arguments of a request, the command's own name included.
pub const ARGUMENTS_MAX: usize = 1024;

/// The longest line: an inline command, a simple string or an error.
pub const LINE_LEN_MAX: usize = 4096;

/// The longest reply, in bytes.
pub const REPLY_LEN_MAX: usize = 4 * 1024 * 1024;

/// How deep aggregates of a reply may nest.
pub const DEPTH_MAX: usize = 8;

/// What was wrong with the bytes. Nothing was changed; the stream they came from is out of step
/// and not worth reading on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RespError {
    /// Another type than must stand here.
    UnexpectedType {
        /// What must stand here.
        expected: u8,
        /// What does.
        found: u8,
    },
    /// No known type of value.
    UnknownType(u8),
    /// Not a number, or none that fits.
    Number,
    /// A length or count that cannot be, such as -2.
    Length(i64),
    /// Neither `t` nor `f`.
    Boolean,
    /// A verbatim string without its format.
    Verbatim,
    /// A line or a string that does not end in CR LF.
    Unterminated,
    /// A line above [`LINE_LEN_MAX`].
    LineTooLong,
    /// A request above [`REQUEST_LEN_MAX`], or a reply above [`REPLY_LEN_MAX`].
    TooLong {
        /// The bound.
        max: usize,
    },
    /// A request of more than [`ARGUMENTS_MAX`].
    TooManyArguments,
    /// A reply nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnexpectedType { expected, found } => {
                let (expected, found) = (expected.escape_ascii(), found.escape_ascii());
                write!(f, "expected '{expected}', found '{found}'")
            }
            Self::UnknownType(found) => write!(f, "unknown type '{}'", found.escape_ascii()),
            Self::Number => write!(f, "a number was expected, in decimal and at most 64 bits"),
            Self::Length(len) => write!(f, "impossible length {len}"),
            Self::Boolean => write!(f, "a boolean must be 't' or 'f'"),
            Self::Verbatim => write!(f, "a verbatim string must open with its format and ':'"),
            Self::Unterminated => write!(f, "CR LF was expected at the end of a line or string"),
            Self::LineTooLong => write!(f, "a line of more than {LINE_LEN_MAX} bytes"),
            Self::TooLong { max } => write!(f, "more than {max} bytes at once"),
            Self::TooManyArguments => write!(f, "more than {ARGUMENTS_MAX} arguments"),
            Self::TooDeep => write!(f, "nested deeper than {DEPTH_MAX}"),
        }
    }
}

impl core::error::Error for RespError {}
