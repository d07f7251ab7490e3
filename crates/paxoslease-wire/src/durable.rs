//! Encodes and decodes the file of durable leases (K2, K11, K12).
//!
//! A file has a header and batches. A header and every batch end with checksums, and every checksum
//! covers the checksum of the header first: a batch of another node, another birth or an earlier
//! generation is not valid. The bytes of all numbers are little-endian.
//!
//! | part | bytes |
//! |---|---|
//! | header | magic `PLdu`, format (1), node (2), birth (8), generation (8), checksum (4) |
//! | head of a batch | magic `PLba`, sequence (8), length of the records (8), file time (8) |
//! | its rest | boot (16), time since the boot (8), checksum (4) |
//! | records of a batch | records; checksum (4) |
//! | mark | the lower half of the sequence (4), checksum (4) |
//!
//! The first batch has all registers of a generation, and the file takes its name after a sync. A
//! later batch is appended and synced, then its mark is appended. So only a last batch without a
//! mark can be torn. [`read_durable`] leaves that one out, and refuses all other damage.
//!
//! Ends of registers are instants of the file's clock: in nanoseconds, so that a time that is
//! converted and converted back is the same.

use alloc::boxed::Box;
use alloc::vec::Vec;

use paxoslease_core::{
    Birth, DurableRegister, DurableValue, DurableWrite, Holder, Instant, Label, Name, NodeId,
};

use crate::bytes::{Cursor, put_text, put_u16, put_u32, put_u64};
use crate::crc::Crc;
use crate::message::{ballot, holder, name, tenure};
use crate::record::{CRC_LEN, PREAMBLE_LEN, checked_body, preamble};
use crate::{DecodeError as E, ShardId, StableError};

const MAGIC: [u8; 4] = *b"PLdu";
const BATCH: [u8; 4] = *b"PLba";
const HEADER_LEN: usize = PREAMBLE_LEN + 8 + 8 + CRC_LEN;
const HEAD_LEN: usize = 4 + 8 + 8 + 8 + 16 + 8 + CRC_LEN;
const MARK_LEN: usize = 8;

mod tag {
    /// Held until it is released.
    pub(super) const ENDLESS: u8 = 1;
    /// Held until an end.
    pub(super) const TIMED: u8 = 2;
    pub(super) const FREE: u8 = 3;
    pub(super) const FORGET: u8 = 4;
    pub(super) const CLEAR: u8 = 5;
}

/// A moment of one boot of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BootTime {
    /// The random id of the boot; zero if the system does not tell it.
    pub id: [u8; 16],
    /// The nanoseconds since the boot.
    pub nanos: u64,
}

/// What a batch says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHead {
    /// One more than that of the batch before, over all generations of a file.
    pub sequence: u64,
    /// The time of the file's clock: at least that of every write in the batch (K11).
    pub file_time: Instant,
    /// The same moment, by the machine's clock.
    pub boot: BootTime,
}

/// Encodes one generation of a file.
#[derive(Clone, Copy, Debug)]
pub struct DurableWriter {
    /// The checksum of the header.
    seed: u32,
}

impl DurableWriter {
    /// Begins a generation with its header.
    #[must_use]
    pub fn begin(node: NodeId, birth: Birth, generation: u64, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&preamble(MAGIC, node));
        put_u64(out, birth.0);
        put_u64(out, generation);
        let seed = Crc::of(&out[start..]);
        put_u32(out, seed);
        Self { seed }
    }

    /// Appends a batch.
    pub fn batch(self, head: &BatchHead, records: &[u8], out: &mut Vec<u8>) {
        let mut batch = self.begin_batch(head, records.len(), out);
        out.extend_from_slice(records);
        batch.update(records);
        batch.finish(out);
    }

    /// Appends the head of a batch, whose records follow piece by piece, `len` bytes in all.
    #[must_use]
    pub fn begin_batch(self, head: &BatchHead, len: usize, out: &mut Vec<u8>) -> BatchWriter {
        let start = out.len();
        out.extend_from_slice(&BATCH);
        put_u64(out, head.sequence);
        put_u64(out, len as u64);
        put_u64(out, head.file_time.as_nanos());
        out.extend_from_slice(&head.boot.id);
        put_u64(out, head.boot.nanos);
        let crc = seeded(self.seed, &out[start..]);
        put_u32(out, crc.value());
        BatchWriter(seeded(self.seed, &[]))
    }

    /// Appends the mark: the batch of this sequence was synced.
    pub fn mark(self, sequence: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&mark(self.seed, sequence as u32));
    }
}

/// The checksum of the records of a batch.
#[derive(Debug)]
pub struct BatchWriter(Crc);

impl BatchWriter {
    /// Adds the next records.
    pub fn update(&mut self, records: &[u8]) {
        self.0.update(records);
    }

    /// Appends the checksum of all records.
    pub fn finish(self, out: &mut Vec<u8>) {
        put_u32(out, self.0.value());
    }
}

/// Appends what a shard wants on disk as a record of a batch; nothing for a tick. Ends are instants
/// of the file's clock.
pub fn encode_write(write: &DurableWrite, shard: ShardId, out: &mut Vec<u8>) {
    match write {
        DurableWrite::Register(register) => put_register(register, out),
        DurableWrite::Forget(label) => {
            out.push(tag::FORGET);
            put_text(out, label.name().as_bytes());
        }
        // K13: each shard forgets its own names, and other shards may have stored new ones by then.
        DurableWrite::Clear => {
            out.push(tag::CLEAR);
            put_u16(out, shard.index());
            put_u16(out, shard.count());
        }
        DurableWrite::Tick => {}
    }
}

fn put_register(register: &DurableRegister, out: &mut Vec<u8>) {
    out.push(match register.value {
        DurableValue::Held { ends_at: Instant::MAX, .. } => tag::ENDLESS,
        DurableValue::Held { .. } => tag::TIMED,
        DurableValue::Free { .. } => tag::FREE,
    });
    put_text(out, register.name().as_bytes());
    put_u64(out, register.ballot.as_u64());
    match register.value {
        DurableValue::Held { tenure, fence, ends_at } => {
            put_u64(out, tenure.fence());
            put_u64(out, fence.fence());
            if ends_at != Instant::MAX {
                put_u64(out, ends_at.as_nanos());
            }
            put_text(out, register.holder().as_bytes());
        }
        DurableValue::Free { tenure, fence, by } => {
            put_u64(out, tenure.fence());
            put_u64(out, fence.fence());
            put_u64(out, by.as_u64());
        }
    }
}

/// A register as the file has it, in as many bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRegister(Box<[u8]>);

impl StoredRegister {
    /// Encodes a register, whose end is an instant of the file's clock.
    #[must_use]
    pub fn new(register: &DurableRegister) -> Self {
        let mut bytes = Vec::new();
        put_register(register, &mut bytes);
        Self(bytes.into())
    }

    /// Reads the register at the cursor.
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, E> {
        let bytes = cursor.0;
        register(cursor)?;
        Ok(Self(bytes[..bytes.len() - cursor.0.len()].into()))
    }

    /// The record of the register.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> Name<'_> {
        name(&mut Cursor(&self.0[1..])).expect("it is encoded or was decoded before")
    }

    /// Whether it is held until an end.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        self.0[0] == tag::TIMED
    }

    /// The register, whose end is an instant of the file's clock.
    #[must_use]
    pub fn decode(&self) -> DurableRegister {
        register(&mut Cursor(&self.0)).expect("it is encoded or was decoded before")
    }
}

fn register(cursor: &mut Cursor<'_>) -> Result<DurableRegister, E> {
    let tag = cursor.u8("record")?;
    if !matches!(tag, tag::ENDLESS | tag::TIMED | tag::FREE) {
        return Err(E::UnknownRecord(tag));
    }
    let name = name(cursor)?;
    let changed_by = ballot(cursor)?;
    let (tenure, fence) = (tenure(cursor)?, tenure(cursor)?);
    let (value, holder) = if tag == tag::FREE {
        let by = ballot(cursor)?;
        (DurableValue::Free { tenure, fence, by }, Holder::NONE)
    } else {
        let ends_at = if tag == tag::TIMED { end(cursor)? } else { Instant::MAX };
        (DurableValue::Held { tenure, fence, ends_at }, holder(cursor)?)
    };
    Ok(DurableRegister { label: Label::new(name, holder), ballot: changed_by, value })
}

/// A record of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DurableRecord<'a> {
    /// The register of a name, in place of an earlier one.
    Register(StoredRegister),
    /// This name has no register any more.
    Forget(Name<'a>),
    /// No name of this shard has a register any more.
    Clear(ShardId),
}

/// The state of a file after its last whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurableEnd {
    /// The number of the generation.
    pub generation: u64,
    /// What the last batch says.
    pub last: BatchHead,
    /// How many bytes of a torn batch were left out.
    pub torn: usize,
}

/// Why a file is refused, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("at byte {offset}: {why}")]
pub struct DurableError {
    /// Where the damaged header or batch begins.
    pub offset: usize,
    /// What is wrong with it.
    pub why: StableError,
}

/// Reads a file, and hands over its records in their order. After an error they mean nothing.
///
/// # Errors
/// When the bytes are anything but what a node wrote, and a power failure tore.
pub fn read_durable<'a>(
    node: NodeId,
    birth: Birth,
    bytes: &'a [u8],
    mut take: impl FnMut(DurableRecord<'a>),
) -> Result<DurableEnd, DurableError> {
    let refused = |offset| move |why| DurableError { offset, why };
    let (seed, generation) = header(node, birth, bytes).map_err(refused(0))?;
    let mut at = HEADER_LEN;
    // It was synced before the file took its name, so it cannot be torn.
    let first = batch(seed, &bytes[at..]).map_err(refused(at))?;
    let mut last = first.head;
    first.records(&mut take).map_err(refused(at))?;
    at += first.len;
    loop {
        // A batch that is valid needs no mark: whether it was synced only matters if it is not.
        let end = at;
        at += MARK_LEN;
        if bytes.len() <= at {
            return Ok(DurableEnd { generation, last, torn: 0 });
        }
        let next = match batch(seed, &bytes[at..]) {
            Ok(next) => next,
            Err(why) => {
                if is_marked(seed, last.sequence, &bytes[at..]) {
                    return Err(DurableError { offset: at, why });
                }
                return Ok(DurableEnd { generation, last, torn: bytes.len() - end });
            }
        };
        let is_next = last.sequence.checked_add(1) == Some(next.head.sequence);
        if !is_next || next.head.file_time < last.file_time {
            return Err(DurableError { offset: at, why: StableError::Order });
        }
        next.records(&mut take).map_err(refused(at))?;
        last = next.head;
        at += next.len;
    }
}

/// Whether these bytes have the mark of a later batch, so that the first batch in them was synced.
fn is_marked(seed: u32, last: u64, bytes: &[u8]) -> bool {
    // More batches do not fit. The bound keeps a torn batch from having a mark by chance.
    let most = bytes.len().div_ceil(HEAD_LEN + CRC_LEN + MARK_LEN) as u32;
    bytes.windows(MARK_LEN).any(|found| {
        let low = u32::from_le_bytes([found[0], found[1], found[2], found[3]]);
        let after = low.wrapping_sub(last as u32);
        (1..=most).contains(&after) && found == mark(seed, low)
    })
}

/// Checks the header, and returns its checksum and the generation.
fn header(node: NodeId, birth: Birth, bytes: &[u8]) -> Result<(u32, u64), StableError> {
    let truncated = StableError::Truncated { len: bytes.len() };
    let header = bytes.first_chunk::<HEADER_LEN>().ok_or(truncated)?;
    let body = checked_body(MAGIC, node, header)?;
    let (found, generation) = body.split_at(8);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let found = Birth(number(found));
    if found != birth {
        return Err(StableError::Birth { expected: birth, found });
    }
    let (_, seed) = header.split_last_chunk::<CRC_LEN>().expect("it is longer");
    Ok((u32::from_le_bytes(*seed), number(generation)))
}

struct Batch<'a> {
    head: BatchHead,
    records: Cursor<'a>,
    /// Of all bytes of the batch.
    len: usize,
}

impl<'a> Batch<'a> {
    fn records(&self, take: &mut impl FnMut(DurableRecord<'a>)) -> Result<(), StableError> {
        let mut records = self.records;
        while !records.0.is_empty() {
            take(record(&mut records).map_err(StableError::Register)?);
        }
        Ok(())
    }
}

/// Checks the batch at the beginning of these bytes.
fn batch(seed: u32, bytes: &[u8]) -> Result<Batch<'_>, StableError> {
    let truncated = StableError::Truncated { len: bytes.len() };
    let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().ok_or(truncated)?;
    let (sealed, stored) = head.split_last_chunk::<CRC_LEN>().expect("it is longer");
    let magic = *sealed.first_chunk().expect("it is longer");
    if magic != BATCH {
        return Err(StableError::Magic(magic));
    }
    check(seed, sealed, *stored)?;
    let mut fields = Cursor(&sealed[BATCH.len()..]);
    let mut number = || fields.u64("head").expect("the length was checked");
    let (sequence, len, file_time) = (number(), number(), number());
    let id = fields.array("boot").expect("the length was checked");
    let nanos = fields.u64("boot").expect("the length was checked");
    let len = usize::try_from(len).map_err(|_| truncated)?;
    let (records, rest) = rest.split_at_checked(len).ok_or(truncated)?;
    check(seed, records, *rest.first_chunk().ok_or(truncated)?)?;
    let boot = BootTime { id, nanos };
    let head = BatchHead { sequence, file_time: Instant::from_nanos(file_time), boot };
    Ok(Batch { head, records: Cursor(records), len: HEAD_LEN + len + CRC_LEN })
}

fn record<'a>(cursor: &mut Cursor<'a>) -> Result<DurableRecord<'a>, E> {
    match cursor.0.first() {
        Some(&tag::FORGET) => {
            cursor.u8("record")?;
            Ok(DurableRecord::Forget(name(cursor)?))
        }
        Some(&tag::CLEAR) => {
            cursor.u8("record")?;
            let (index, count) = (cursor.u16("shard")?, cursor.u16("shards")?);
            let shard = ShardId::new(index, count).ok_or(E::Shard { index, count })?;
            Ok(DurableRecord::Clear(shard))
        }
        _ => StoredRegister::read(cursor).map(DurableRecord::Register),
    }
}

fn end(cursor: &mut Cursor<'_>) -> Result<Instant, E> {
    match cursor.u64("end")? {
        u64::MAX => Err(E::EndNever),
        nanos => Ok(Instant::from_nanos(nanos)),
    }
}

fn check(seed: u32, bytes: &[u8], stored: [u8; CRC_LEN]) -> Result<(), StableError> {
    let (stored, computed) = (u32::from_le_bytes(stored), seeded(seed, bytes).value());
    if stored == computed { Ok(()) } else { Err(StableError::Checksum { stored, computed }) }
}

fn seeded(seed: u32, bytes: &[u8]) -> Crc {
    let mut crc = Crc::new();
    crc.update(&seed.to_le_bytes());
    crc.update(bytes);
    crc
}

/// The mark of a batch, from the lower half of its sequence.
fn mark(seed: u32, low: u32) -> [u8; MARK_LEN] {
    let [a, b, c, d] = low.to_le_bytes();
    let [e, f, g, h] = seeded(seed, &[a, b, c, d]).value().to_le_bytes();
    [a, b, c, d, e, f, g, h]
}
