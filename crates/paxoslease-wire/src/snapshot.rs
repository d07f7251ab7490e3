//! Encodes and decodes the one-use snapshot of a clean stop (R4).
//!
//! A snapshot is valid as a whole or not at all: an acceptor that started without one of its leases
//! would let go of that lease early (invariant 4). So the reader checks every lease before it
//! returns the first one.
//!
//! A snapshot contains the ballot ceiling of the run that wrote it. Every start raises that
//! ceiling, so the ceiling identifies a snapshot that reappears after a later start. The caller
//! compares the ceilings, and never writes a snapshot in quarantine.

use alloc::vec::Vec;

use paxoslease_core::{NodeId, SnapshotLease, Tenure, Ttl};

use crate::bytes::{Cursor, put_text, put_u32, put_u64};
use crate::crc::Crc;
use crate::message::{holder, name};
use crate::record::{checked_body, preamble};
use crate::{DecodeError as E, StableError};

const MAGIC: [u8; 4] = *b"PLsn";
const CEILING_LEN: usize = 8;
const EPOCH_LEN: usize = 4;
const COUNT_LEN: usize = 8;
/// The flag of a dated record (E1).
const IS_DATED: u8 = 2;

/// Encodes the leases of a snapshot, one by one. Between calls the caller may write the buffer to a
/// file and clear it, so that millions of leases need no second copy.
#[derive(Debug)]
pub struct SnapshotWriter {
    crc: Crc,
    count: u64,
}

impl SnapshotWriter {
    /// Begins the snapshot of a node whose record has this ballot ceiling, in this epoch.
    #[must_use]
    pub fn begin(node: NodeId, ballot_ceiling: u64, epoch: u32, out: &mut Vec<u8>) -> Self {
        let mut writer = Self { crc: Crc::new(), count: 0 };
        writer.append(out, |out| {
            out.extend_from_slice(&preamble(MAGIC, node));
            put_u64(out, ballot_ceiling);
            put_u32(out, epoch);
        });
        writer
    }

    /// Appends a lease.
    pub fn push(&mut self, lease: &SnapshotLease<'_>, out: &mut Vec<u8>) {
        let SnapshotLease { name, holder, tenure, remaining, is_dated } = *lease;
        self.append(out, |out| {
            out.push(if is_dated { IS_DATED } else { 0 });
            put_u64(out, tenure.fence());
            put_u32(out, remaining.as_millis());
            put_text(out, holder.as_bytes());
            put_text(out, name.as_bytes());
        });
        self.count += 1;
    }

    /// Appends the number of leases and the checksum.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        let count = self.count;
        self.append(out, |out| put_u64(out, count));
        put_u32(out, self.crc.value());
    }

    fn append(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        write(out);
        self.crc.update(&out[start..]);
    }
}

/// The leases of a valid snapshot, in the order in which they were written.
#[derive(Clone, Debug)]
pub struct SnapshotReader<'a> {
    ballot_ceiling: u64,
    epoch: u32,
    leases: Cursor<'a>,
}

impl<'a> SnapshotReader<'a> {
    /// Checks the whole snapshot.
    ///
    /// # Errors
    /// When the bytes are not one whole snapshot of this node. The node then starts as after a
    /// crash (R3).
    pub fn new(node: NodeId, bytes: &'a [u8]) -> Result<Self, StableError> {
        let body = checked_body(MAGIC, node, bytes)?;
        let truncated = StableError::Truncated { len: bytes.len() };
        let (ceiling, body) = body.split_first_chunk::<CEILING_LEN>().ok_or(truncated)?;
        let (epoch, body) = body.split_first_chunk::<EPOCH_LEN>().ok_or(truncated)?;
        let (leases, count) = body.split_last_chunk::<COUNT_LEN>().ok_or(truncated)?;
        let stored = u64::from_le_bytes(*count);
        let mut cursor = Cursor(leases);
        let mut found = 0;
        while !cursor.0.is_empty() {
            decode_lease(&mut cursor).map_err(StableError::Lease)?;
            found += 1;
        }
        if stored != found {
            return Err(StableError::LeaseCount { stored, found });
        }
        let ballot_ceiling = u64::from_le_bytes(*ceiling);
        let epoch = u32::from_le_bytes(*epoch);
        Ok(Self { ballot_ceiling, epoch, leases: Cursor(leases) })
    }

    /// The ballot ceiling of the run that wrote the snapshot.
    #[must_use]
    pub const fn ballot_ceiling(&self) -> u64 {
        self.ballot_ceiling
    }

    /// E4: the epoch of that run.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl<'a> Iterator for SnapshotReader<'a> {
    type Item = SnapshotLease<'a>;

    fn next(&mut self) -> Option<SnapshotLease<'a>> {
        if self.leases.0.is_empty() {
            return None;
        }
        Some(decode_lease(&mut self.leases).expect("every lease was decoded once before"))
    }
}

impl core::iter::FusedIterator for SnapshotReader<'_> {}

fn decode_lease<'a>(cursor: &mut Cursor<'a>) -> Result<SnapshotLease<'a>, crate::DecodeError> {
    let flags = cursor.u8("flags")?;
    if flags & !IS_DATED != 0 {
        return Err(E::Flags(flags));
    }
    let number = cursor.u64("tenure")?;
    let tenure = Tenure::from_fence(number).ok_or(E::Tenure(number))?;
    let remaining = Ttl::from_millis(cursor.u32("remaining")?).ok_or(E::RemainingZero)?;
    let (holder, name) = (holder(cursor)?, name(cursor)?);
    let is_dated = flags & IS_DATED != 0;
    Ok(SnapshotLease { name, holder, tenure, remaining, is_dated })
}
