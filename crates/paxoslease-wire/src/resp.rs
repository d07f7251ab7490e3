//! RESP2 and RESP3, the protocols of Redis, between a client and a node. Requests and replies are
//! read in place from the bytes received so far. Reading copies nothing, allocates nothing and
//! trusts no length that the bytes do not bear out.
//!
//! Knows nothing about commands and leases. Omitted, because a node never sends them: attributes,
//! and strings and aggregates that are streamed without a length.

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

/// The longest request, in bytes. A buffer of this size holds any whole request.
pub const REQUEST_LEN_MAX: usize = 64 * 1024;

/// The most arguments of a request, the command's name included.
pub const ARGUMENTS_MAX: usize = 1024;

/// The longest line in bytes: an inline command, a simple string or an error.
pub const LINE_LEN_MAX: usize = 4096;

/// The longest reply, in bytes.
pub const REPLY_LEN_MAX: usize = 4 * 1024 * 1024;

/// How deep aggregates of a reply may nest.
pub const DEPTH_MAX: usize = 8;

/// Why reading failed. Reading changed nothing. The stream has lost its boundaries, so the caller
/// must close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RespError {
    /// A value of another type than required.
    UnexpectedType {
        /// The first byte of the required type.
        expected: u8,
        /// The first byte of the value.
        found: u8,
    },
    /// A value of an unknown type.
    UnknownType(u8),
    /// Not a decimal number of at most 64 bits.
    Number,
    /// An impossible length or count, such as -2.
    Length(i64),
    /// A boolean that is neither `t` nor `f`.
    Boolean,
    /// A verbatim string without its format.
    Verbatim,
    /// A line or a string that does not end in CR LF.
    Unterminated,
    /// A line above [`LINE_LEN_MAX`].
    LineTooLong,
    /// A request above [`REQUEST_LEN_MAX`], or a reply above [`REPLY_LEN_MAX`].
    TooLong {
        /// The bound, in bytes.
        max: usize,
    },
    /// A request of more than [`ARGUMENTS_MAX`] arguments.
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
