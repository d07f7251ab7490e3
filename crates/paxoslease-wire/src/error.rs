//! Why bytes from a peer do not decode as a frame, message, hello or farewell.

use core::fmt;

use paxoslease_core::{Ballot, CellError, Drift, TextError};

use crate::{FRAME_LEN_MAX, FrameKind, VERSION};

/// Why decoding failed. Decoding changed nothing. The stream has lost its frame boundaries, so the
/// caller must close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The length prefix is above [`FRAME_LEN_MAX`] - 4.
    FrameTooLong {
        /// The length prefix.
        len: u32,
    },
    /// The length prefix is too small for an envelope.
    FrameTooShort {
        /// The length prefix.
        len: u32,
    },
    /// The frame does not begin with our magic bytes.
    Magic {
        /// The bytes in place of the magic.
        found: [u8; 2],
    },
    /// The frame has an unsupported protocol version.
    Version {
        /// The frame's version.
        found: u8,
    },
    /// The kind of frame is unknown.
    UnknownKind {
        /// The number in place of a kind.
        found: u8,
    },
    /// The frame is of another kind than the caller expected.
    UnexpectedKind {
        /// The kind the caller expected.
        expected: FrameKind,
        /// The frame's kind.
        found: FrameKind,
    },
    /// The bytes end inside a field.
    Truncated {
        /// The name of that field.
        field: &'static str,
    },
    /// Bytes are left over after the last field.
    Trailing {
        /// The number of bytes left over.
        extra: usize,
    },
    /// A length below 128 is written in two bytes.
    LengthNotMinimal {
        /// The name of the text field.
        field: &'static str,
    },
    /// The sender is not a valid node id.
    Sender(u16),
    /// The sender's counter is in the refused last tenth of the space (A1).
    Counter(u64),
    /// The message tag is unknown.
    UnknownMessage(u8),
    /// The name is not a valid lease name.
    Name(TextError),
    /// The holder is not a valid holder text.
    Holder(TextError),
    /// The ttl is zero.
    TtlZero,
    /// A live lease has no time remaining.
    RemainingZero,
    /// The ballot has more than 63 bits.
    Ballot(u64),
    /// The promised ballot has more than 63 bits.
    Promised(u64),
    /// The number is not a valid fence.
    Tenure(u64),
    /// The cell's name is not valid.
    CellName(TextError),
    /// The id of the greeting node is not valid.
    Node(u16),
    /// The id of a listed member is not valid.
    Member(u16),
    /// `max_lease` is zero.
    MaxLeaseZero,
    /// The drift is above [`Drift::PPM_MAX`].
    DriftPpm(u32),
    /// The cell's configuration is not valid.
    Cell(CellError),
    /// The shard's index is not below the number of shards.
    Shard {
        /// The shard's index.
        index: u16,
        /// The number of shards.
        count: u16,
    },
    /// The farewell's text is not valid.
    Farewell(TextError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameTooLong { len } => {
                write!(f, "a frame of 4 + {len} bytes, at most {FRAME_LEN_MAX} allowed")
            }
            Self::FrameTooShort { len } => write!(f, "a frame of 4 + {len} bytes is too short"),
            Self::Magic { found } => {
                write!(f, "not the PaxosLease peer protocol (magic {found:02x?})")
            }
            Self::Version { found } => write!(f, "protocol version {found}, not {VERSION}"),
            Self::UnknownKind { found } => write!(f, "unknown kind of frame {found}"),
            Self::UnexpectedKind { expected, found } => {
                write!(f, "a {found:?} frame where {expected:?} was expected")
            }
            Self::Truncated { field } => write!(f, "the bytes end inside the {field}"),
            Self::Trailing { extra } => {
                write!(f, "{extra} bytes are left over after the last field")
            }
            Self::LengthNotMinimal { field } => {
                write!(f, "the {field}'s length takes two bytes where one will do")
            }
            Self::Sender(id) => write!(f, "sender {id} is not a valid node id"),
            Self::Counter(counter) => {
                write!(f, "counter {counter} is above the limit of {}", Ballot::COUNTER_LIMIT)
            }
            Self::UnknownMessage(tag) => write!(f, "unknown message {tag:#04x}"),
            Self::Name(error) => write!(f, "invalid name: {error}"),
            Self::Holder(error) => write!(f, "invalid holder: {error}"),
            Self::TtlZero => write!(f, "a ttl of zero"),
            Self::RemainingZero => write!(f, "a live lease with no time remaining"),
            Self::Ballot(number) => write!(f, "ballot {number} has more than 63 bits"),
            Self::Promised(number) => write!(f, "promised ballot {number} has more than 63 bits"),
            Self::Tenure(number) => write!(f, "{number} is not a valid fence"),
            Self::CellName(error) => write!(f, "invalid cell name: {error}"),
            Self::Node(id) => write!(f, "{id} is not a valid node id"),
            Self::Member(id) => write!(f, "member {id} is not a valid node id"),
            Self::MaxLeaseZero => write!(f, "a max_lease of zero"),
            Self::DriftPpm(ppm) => {
                write!(f, "a drift of {ppm} ppm, at most {} allowed", Drift::PPM_MAX)
            }
            Self::Cell(error) => write!(f, "invalid cell: {error}"),
            Self::Shard { index, count } => write!(f, "shard {index} is not one of {count} shards"),
            Self::Farewell(error) => write!(f, "invalid farewell: {error}"),
        }
    }
}

impl core::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Name(error)
            | Self::Holder(error)
            | Self::CellName(error)
            | Self::Farewell(error) => Some(error),
            Self::Cell(error) => Some(error),
            _ => None,
        }
    }
}
