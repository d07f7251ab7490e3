//! Why bytes from a peer are no frame, message, hello or farewell.

use core::fmt;

use paxoslease_core::{Ballot, CellError, Drift, TextError};

use crate::{FRAME_LEN_MAX, FrameKind, VERSION};

/// What was wrong with the bytes. Nothing was changed; the stream they came from is out of step
/// and not worth reading on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// A length prefix above the bound.
    FrameTooLong {
        /// The length it gave.
        len: u32,
    },
    /// A length prefix too small for an envelope.
    FrameTooShort {
        /// The length it gave.
        len: u32,
    },
    /// Not our protocol.
    Magic {
        /// The bytes in place of the magic.
        found: [u8; 2],
    },
    /// A protocol version we do not speak.
    Version {
        /// The version.
        found: u8,
    },
    /// No known kind of frame.
    UnknownKind {
        /// The number in place of a kind.
        found: u8,
    },
    /// Another kind of frame than expected here.
    UnexpectedKind {
        /// What was expected.
        expected: FrameKind,
        /// What came.
        found: FrameKind,
    },
    /// The bytes end inside this field.
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// Bytes are left over.
    Trailing {
        /// How many.
        extra: usize,
    },
    /// A length below 128 written in two bytes.
    LengthNotMinimal {
        /// The text it belongs to.
        field: &'static str,
    },
    /// The sender is no node id.
    Sender(u16),
    /// The sender's counter is in the refused last tenth of the space (A1).
    Counter(u64),
    /// No known message.
    UnknownMessage(u8),
    /// The name is none.
    Name(TextError),
    /// The holder text is none.
    Holder(TextError),
    /// A ttl of zero.
    TtlZero,
    /// A live lease with no time remaining.
    RemainingZero,
    /// The ballot has more than 63 bits.
    Ballot(u64),
    /// The promised ballot has more than 63 bits.
    Promised(u64),
    /// The number names no tenure.
    Tenure(u64),
    /// The cell's name is none.
    CellName(TextError),
    /// The greeting node's id is none.
    Node(u16),
    /// A listed member is no node id.
    Member(u16),
    /// M is zero.
    MaxLeaseZero,
    /// The drift is above what a cell may assume.
    DriftPpm(u32),
    /// No cell can be configured so.
    Cell(CellError),
    /// No such shard.
    Shard {
        /// Which.
        index: u16,
        /// Of how many.
        count: u16,
    },
    /// The farewell's text is none.
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
            Self::Trailing { extra } => write!(f, "{extra} bytes are left over"),
            Self::LengthNotMinimal { field } => {
                write!(f, "the {field}'s length takes two bytes where one will do")
            }
            Self::Sender(id) => write!(f, "sender {id} is no node id"),
            Self::Counter(counter) => {
                write!(f, "counter {counter} is above the limit of {}", Ballot::COUNTER_LIMIT)
            }
            Self::UnknownMessage(tag) => write!(f, "unknown message {tag:#04x}"),
            Self::Name(error) => write!(f, "bad name: {error}"),
            Self::Holder(error) => write!(f, "bad holder: {error}"),
            Self::TtlZero => write!(f, "a ttl of zero"),
            Self::RemainingZero => write!(f, "a live lease with no time remaining"),
            Self::Ballot(number) => write!(f, "ballot {number} has more than 63 bits"),
            Self::Promised(number) => write!(f, "promised ballot {number} has more than 63 bits"),
            Self::Tenure(number) => write!(f, "{number} names no tenure"),
            Self::CellName(error) => write!(f, "bad cell name: {error}"),
            Self::Node(id) => write!(f, "{id} is no node id"),
            Self::Member(id) => write!(f, "member {id} is no node id"),
            Self::MaxLeaseZero => write!(f, "a max_lease of zero"),
            Self::DriftPpm(ppm) => {
                write!(f, "a drift of {ppm} ppm, at most {} allowed", Drift::PPM_MAX)
            }
            Self::Cell(error) => write!(f, "impossible cell: {error}"),
            Self::Shard { index, count } => write!(f, "no shard {index} of {count}"),
            Self::Farewell(error) => write!(f, "bad farewell: {error}"),
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
