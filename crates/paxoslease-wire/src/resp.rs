//! RESP2 and RESP3, the protocols of Redis, between a client and a node. Requests and replies are
//! read in place from the bytes received so far. Reading copies nothing, allocates nothing and
//! trusts no length that the bytes do not bear out.
//!
//! Knows nothing about commands and leases. Omitted, because a node never sends them: sets, big
//! numbers, verbatim strings, attributes, and strings and aggregates that are streamed without a
//! length.

mod encode;
mod reply;
mod request;
mod scan;

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
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of an error says what it is")]
pub enum RespError {
    #[error("expected '{}', found '{}'", .expected.escape_ascii(), .found.escape_ascii())]
    UnexpectedType { expected: u8, found: u8 },
    #[error("unknown type '{}'", .0.escape_ascii())]
    UnknownType(u8),
    #[error("a number was expected, in decimal and at most 64 bits")]
    Number,
    #[error("impossible length {0}")]
    Length(i64),
    #[error("a boolean must be 't' or 'f'")]
    Boolean,
    #[error("CR LF was expected at the end of a line or string")]
    Unterminated,
    #[error("a line of more than {LINE_LEN_MAX} bytes")]
    LineTooLong,
    /// A request above [`REQUEST_LEN_MAX`], or a reply above [`REPLY_LEN_MAX`]: this bound.
    #[error("more than {0} bytes at once")]
    TooLong(usize),
    #[error("more than {ARGUMENTS_MAX} arguments")]
    TooManyArguments,
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,
}
