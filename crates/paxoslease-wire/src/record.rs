//! Encodes and decodes the stable record (R1, R2, W1, W2), and says why bytes from disk are refused
//! (R6).
//!
//! A record contains the id of its node: a node that used another node's record would issue ballots
//! twice. The caller replaces the file atomically and syncs it.

use alloc::vec::Vec;

use paxoslease_core::{Ballot, Birth, NodeId, Record, StableConfiguration, Ttl, Vote};

use crate::DecodeError;
use crate::bytes::{Cursor, put_u32, put_u64};
use crate::crc::Crc;
use crate::membership::{
    accepted, configuration, flag, number, option, put_accepted, put_configuration, put_number,
    put_option,
};

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
    #[error("invalid configuration: {0}")]
    Configuration(#[source] DecodeError),
    #[error("invalid mark of a file of durable leases: {0}")]
    Durable(#[source] DecodeError),
    #[error("invalid lease: {0}")]
    Lease(#[source] DecodeError),
    /// The file was written by a member that is no more.
    #[error("belongs to birth {:016x}, this is birth {:016x}", found.0, expected.0)]
    Birth { expected: Birth, found: Birth },
    #[error("out of order")]
    Order,
    #[error("invalid register: {0}")]
    Register(#[source] DecodeError),
    #[error("contains {found} leases, {stored} expected")]
    LeaseCount { stored: u64, found: u64 },
}

/// What a node keeps on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StableRecord {
    /// The birth of the data_dir.
    pub birth: Birth,
    /// The ceilings of ballots and leases.
    pub ceilings: Record,
    /// The configuration and the vote on the next one; `None` in a node that was never told to
    /// found a cell and has adopted nothing.
    pub configuration: Option<StableConfiguration>,
    /// Whether a file of durable leases was begun (K12): a folder without that file has lost it.
    pub has_durable: bool,
}

/// The record of a node, as written to disk.
#[must_use]
pub fn encode_record(node: NodeId, record: &StableRecord) -> Vec<u8> {
    let StableRecord { birth, ceilings, configuration, has_durable } = record;
    let mut bytes = preamble(MAGIC, node).to_vec();
    put_u64(&mut bytes, birth.0);
    put_u64(&mut bytes, ceilings.ballot_ceiling);
    put_u32(&mut bytes, ceilings.lease_ceiling.map_or(0, Ttl::as_millis));
    put_option(&mut bytes, configuration.as_ref(), |out, stable| {
        put_configuration(out, &stable.configuration);
        put_option(out, stable.vote.promised.as_ref(), |out, n| put_number(out, *n));
        put_accepted(out, stable.vote.accepted.as_ref());
    });
    bytes.push(u8::from(*has_durable));
    let crc = Crc::of(&bytes);
    put_u32(&mut bytes, crc);
    bytes
}

/// Decodes what [`encode_record`] wrote for the same node.
///
/// # Errors
/// When the bytes are anything else.
pub fn decode_record(node: NodeId, bytes: &[u8]) -> Result<StableRecord, StableError> {
    let mut body = Cursor(checked_body(MAGIC, node, bytes)?);
    let truncated = |_| StableError::Truncated { len: bytes.len() };
    let birth = Birth(body.u64("birth").map_err(truncated)?);
    let ballot_ceiling = body.u64("ballot ceiling").map_err(truncated)?;
    let lease_ceiling = body.u32("lease ceiling").map_err(truncated)?;
    let configuration = option(&mut body, |body| {
        let configuration = configuration(body)?;
        let vote = Vote { promised: option(body, number)?, accepted: accepted(body)? };
        Ok(StableConfiguration { configuration, vote })
    });
    let configuration = configuration.map_err(StableError::Configuration)?;
    let has_durable = flag(&mut body).map_err(StableError::Durable)?;
    if !body.0.is_empty() {
        return Err(StableError::Trailing(body.0.len()));
    }
    if ballot_ceiling > Ballot::COUNTER_MAX {
        return Err(StableError::BallotCeiling(ballot_ceiling));
    }
    let ceilings = Record { ballot_ceiling, lease_ceiling: Ttl::from_millis(lease_ceiling) };
    Ok(StableRecord { birth, ceilings, configuration, has_durable })
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
