//! Encodes and decodes the stable record (R1, R2), and says why bytes from disk are refused (R6).
//!
//! A record contains the id of its node: a node that used another node's record would issue ballots
//! twice. The caller replaces the file atomically and syncs it.

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
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of an error says what it is")]
pub enum StableError {
    #[error("cut short after {len} bytes")]
    Truncated { len: usize },
    #[error("{0} bytes too long")]
    Trailing(usize),
    #[error("not a file of PaxosLease (magic {0:02x?})")]
    Magic([u8; 4]),
    /// Another version of the program wrote the file, in this format version.
    #[error("written in format version {0}")]
    Version(u8),
    /// The file is corrupt.
    #[error("corrupt: checksum {computed:08x}, {stored:08x} expected")]
    Checksum { stored: u32, computed: u32 },
    #[error("belongs to node {found}, this is node {expected}")]
    Node { expected: NodeId, found: u16 },
    /// The ballot ceiling is above [`Ballot::COUNTER_MAX`].
    #[error("ballot ceiling {0} is out of range")]
    BallotCeiling(u64),
    #[error("invalid lease: {0}")]
    Lease(#[source] DecodeError),
    #[error("contains {found} leases, {stored} expected")]
    LeaseCount { stored: u64, found: u64 },
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
        return Err(StableError::Trailing(body.0.len()));
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
        return Err(StableError::Magic([m0, m1, m2, m3]));
    }
    if version != VERSION {
        return Err(StableError::Version(version));
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
