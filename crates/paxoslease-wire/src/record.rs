//! Encodes and decodes the stable record (R1, R2), and says why bytes from disk are refused (R6).
//!
//! A record contains the id of its node: a node that used another node's record would issue ballots
//! twice. The caller replaces the file atomically and syncs it.

use core::fmt;

use paxoslease_core::{Ballot, NodeId, Record, Ttl};

use crate::DecodeError;
use crate::bytes::Cursor;
use crate::crc::Crc;

/// The length of an encoded record, in bytes.
pub const RECORD_LEN: usize = PREAMBLE_LEN + 8 + 4 + CRC_LEN;

/// Both files of a node begin with magic, version and node id.
pub(crate) const PREAMBLE_LEN: usize = 4 + 1 + 2;
pub(crate) const CRC_LEN: usize = 4;

const MAGIC: [u8; 4] = *b"PLrc";
const VERSION: u8 = 1;

/// Why bytes from disk are refused. Decoding changed nothing. The node must not start as if the
/// file were empty (R6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StableError {
    /// The file is too short.
    Truncated {
        /// The length of the file, in bytes.
        len: usize,
    },
    /// The file is too long.
    Trailing {
        /// The number of bytes left over.
        extra: usize,
    },
    /// The file does not begin with the expected magic bytes.
    Magic {
        /// The bytes in place of the magic.
        found: [u8; 4],
    },
    /// Another version of the program wrote the file.
    Version {
        /// The format version of the file.
        found: u8,
    },
    /// The file is corrupt.
    Checksum {
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the bytes in the file.
        computed: u32,
    },
    /// The file belongs to another node.
    Node {
        /// The node that reads the file.
        expected: NodeId,
        /// The node that wrote the file.
        found: u16,
    },
    /// The ballot ceiling is above [`Ballot::COUNTER_MAX`].
    BallotCeiling(u64),
    /// A lease in a snapshot does not decode.
    Lease(DecodeError),
    /// A snapshot contains another number of leases than it says.
    LeaseCount {
        /// The number that the snapshot says.
        stored: u64,
        /// The number of leases found.
        found: u64,
    },
}

impl fmt::Display for StableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { len } => write!(f, "cut short after {len} bytes"),
            Self::Trailing { extra } => write!(f, "{extra} bytes too long"),
            Self::Magic { found } => write!(f, "not a file of PaxosLease (magic {found:02x?})"),
            Self::Version { found } => write!(f, "written in format version {found}"),
            Self::Checksum { stored, computed } => {
                write!(f, "corrupt: checksum {computed:08x}, {stored:08x} expected")
            }
            Self::Node { expected, found } => {
                write!(f, "belongs to node {found}, this is node {expected}")
            }
            Self::BallotCeiling(counter) => write!(f, "ballot ceiling {counter} is out of range"),
            Self::Lease(error) => write!(f, "invalid lease: {error}"),
            Self::LeaseCount { stored, found } => {
                write!(f, "contains {found} leases, {stored} expected")
            }
        }
    }
}

impl core::error::Error for StableError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Lease(error) => Some(error),
            _ => None,
        }
    }
}

/// The record of a node, as written to disk.
#[must_use]
pub fn encode_record(node: NodeId, record: &Record) -> [u8; RECORD_LEN] {
    let mut bytes = [0; RECORD_LEN];
    let lease_ceiling = record.lease_ceiling.map_or(0, Ttl::as_millis);
    bytes[..PREAMBLE_LEN].copy_from_slice(&preamble(MAGIC, node));
    bytes[PREAMBLE_LEN..][..8].copy_from_slice(&record.ballot_ceiling.to_le_bytes());
    bytes[PREAMBLE_LEN + 8..][..4].copy_from_slice(&lease_ceiling.to_le_bytes());
    let crc = Crc::of(&bytes[..RECORD_LEN - CRC_LEN]);
    bytes[RECORD_LEN - CRC_LEN..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes what [`encode_record`] wrote for the same node.
///
/// # Errors
/// When the bytes are anything else.
pub fn decode_record(node: NodeId, bytes: &[u8]) -> Result<Record, StableError> {
    let mut body = Cursor(checked_body(MAGIC, node, bytes)?);
    let truncated = |_| StableError::Truncated { len: bytes.len() };
    let ballot_ceiling = body.u64("ballot ceiling").map_err(truncated)?;
    let lease_ceiling = body.u32("lease ceiling").map_err(truncated)?;
    if !body.0.is_empty() {
        return Err(StableError::Trailing { extra: body.0.len() });
    }
    if ballot_ceiling > Ballot::COUNTER_MAX {
        return Err(StableError::BallotCeiling(ballot_ceiling));
    }
    Ok(Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_ceiling) })
}

/// The first bytes of every file of a node.
pub(crate) fn preamble(magic: [u8; 4], node: NodeId) -> [u8; PREAMBLE_LEN] {
    let [m0, m1, m2, m3] = magic;
    let [low, high] = node.get().to_le_bytes();
    [m0, m1, m2, m3, VERSION, low, high]
}

/// Checks preamble and checksum, and returns the bytes between them.
pub(crate) fn checked_body(
    magic: [u8; 4],
    node: NodeId,
    bytes: &[u8],
) -> Result<&[u8], StableError> {
    let truncated = StableError::Truncated { len: bytes.len() };
    let (sealed, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or(truncated)?;
    let (preamble, body) = sealed.split_first_chunk::<PREAMBLE_LEN>().ok_or(truncated)?;
    let [m0, m1, m2, m3, version, low, high] = *preamble;
    if [m0, m1, m2, m3] != magic {
        return Err(StableError::Magic { found: [m0, m1, m2, m3] });
    }
    if version != VERSION {
        return Err(StableError::Version { found: version });
    }
    let (stored, computed) = (u32::from_le_bytes(*crc), Crc::of(sealed));
    if stored != computed {
        return Err(StableError::Checksum { stored, computed });
    }
    let found = u16::from_le_bytes([low, high]);
    if found != node.get() {
        return Err(StableError::Node { expected: node, found });
    }
    Ok(body)
}
