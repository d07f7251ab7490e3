//! Why bytes from a peer do not decode as a frame, message, hello or farewell.

use paxoslease_core::{Ballot, CellError, ChangeError, Drift, NodeId, TextError};

use crate::{FRAME_LEN_MAX, FrameKind, VERSION};

/// Why decoding failed. Decoding changed nothing. The stream has lost its frame boundaries, so the
/// caller must close the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of an error says what it is")]
pub enum DecodeError {
    /// The length prefix is above [`FRAME_LEN_MAX`] - 4.
    #[error("a frame of 4 + {0} bytes, at most {FRAME_LEN_MAX} allowed")]
    FrameTooLong(u32),
    /// The length prefix is too small for an envelope.
    #[error("a frame of 4 + {0} bytes is too short")]
    FrameTooShort(u32),
    #[error("not the PaxosLease peer protocol (magic {0:02x?})")]
    Magic([u8; 2]),
    #[error("protocol version {0}, not {VERSION}")]
    Version(u8),
    #[error("unknown kind of frame {0}")]
    UnknownKind(u8),
    #[error("a {found:?} frame where {expected:?} was expected")]
    UnexpectedKind { expected: FrameKind, found: FrameKind },
    /// The bytes end inside the field of this name.
    #[error("the bytes end inside the {0}")]
    Truncated(&'static str),
    #[error("{0} bytes are left over after the last field")]
    Trailing(usize),
    /// A length below 128 is written in two bytes, in the text field of this name.
    #[error("the {0}'s length takes two bytes where one will do")]
    LengthNotMinimal(&'static str),
    #[error("sender {0} is not a valid node id")]
    Sender(u16),
    /// The sender's counter is in the refused last tenth of the space (A1).
    #[error("counter {0} is above the limit of {limit}", limit = Ballot::COUNTER_LIMIT)]
    Counter(u64),
    #[error("unknown message {0:#04x}")]
    UnknownMessage(u8),
    #[error("invalid name: {0}")]
    Name(#[source] TextError),
    #[error("invalid holder: {0}")]
    Holder(#[source] TextError),
    #[error("a ttl of zero")]
    TtlZero,
    #[error("a durable lease lasts at least 1 ms")]
    LastsZero,
    #[error("an end that never comes")]
    EndNever,
    #[error("unknown record {0:#04x}")]
    UnknownRecord(u8),
    #[error("a live lease with no time remaining")]
    RemainingZero,
    #[error("ballot {0} has more than 63 bits")]
    Ballot(u64),
    #[error("promised ballot {0} has more than 63 bits")]
    Promised(u64),
    #[error("{0} is not a valid fence")]
    Tenure(u64),
    /// A lease in a snapshot, a Promise of a register, or a field that may be absent, has flags
    /// that are not known.
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    #[error("invalid configuration: {0}")]
    Configuration(#[source] ChangeError),
    /// A value has one encoding, so members are in the order of their ids.
    #[error("member {0} is not in the order of ids")]
    MembersUnordered(NodeId),
    #[error("the {0} is not valid UTF-8")]
    NotUtf8(&'static str),
    #[error("invalid cell name: {0}")]
    CellName(#[source] TextError),
    #[error("invalid address for clients: {0}")]
    ClientAddress(#[source] TextError),
    /// The id of the greeting node is not valid.
    #[error("{0} is not a valid node id")]
    Node(u16),
    #[error("member {0} is not a valid node id")]
    Member(u16),
    #[error("a max_lease of zero")]
    MaxLeaseZero,
    /// The drift is above [`Drift::PPM_MAX`].
    #[error("a drift of {0} ppm, at most {most} allowed", most = Drift::PPM_MAX)]
    DriftPpm(u32),
    #[error("invalid cell: {0}")]
    Cell(#[source] CellError),
    #[error("shard {index} is not one of {count} shards")]
    Shard { index: u16, count: u16 },
    #[error("invalid farewell: {0}")]
    Farewell(#[source] TextError),
}
