//! The file of durable leases (K2, K3, K11, K12): registers come back after any crash, or the node
//! does not start.
//!
//! [`DurableFile`] owns the rules of its writes. Every start, and every error, begins a new
//! generation: a file of which a write or a sync failed is never synced again, because a sync that
//! fails once may succeed the next time without having written anything. That holds for the file of
//! an earlier process too, of which nobody knows whether a sync failed.
//!
//! Keeps all registers in memory as they are encoded, which takes about 40 bytes more than on disk,
//! so that a generation can be written without reading the one before. Deliberately lacks threads:
//! `DurableWorker` has the clock and the retries.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::time::Duration;

use paxoslease_core::{Birth, DurableRegister, DurableWrite, Instant, NodeId};
use paxoslease_wire::{
    BatchHead, DurableRecord, DurableWriter, ShardId, StoredRegister, encode_write, read_durable,
};

use super::file_time::{FileClock, RunStart};
use super::log::Log;
use super::{CHUNK_LEN, StableError};

/// A file below this size is not compacted.
const COMPACT_MIN: u64 = 4 << 20;
/// What is reserved for releases and the time of the file when the disk is full.
pub(super) const RESERVE: u64 = 1 << 20;
/// While a timed register exists, the file has a batch as often as this (K11).
pub(super) const TICK_EVERY: Duration = Duration::from_secs(10);

/// What the stable record says about the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    /// The birth of the folder is new, or no file was begun in it.
    No,
    /// There is a file of this birth.
    Yes,
}

/// The file, with a new generation for each run.
pub(crate) struct DurableFile {
    log: Box<dyn Log>,
    node: NodeId,
    birth: Birth,
    clock: FileClock,
    generation: u64,
    /// Writes to the generation that is open; `None` if the next write has to begin a new one.
    writer: Option<DurableWriter>,
    /// The last batch on disk.
    last: Option<BatchHead>,
    /// When the last batch was handed over, by the clock of the run.
    written_at: Instant,
    live: LiveRegisters,
    /// Records that the next batch takes.
    records: Vec<u8>,
    /// The length of the open generation.
    len: u64,
    /// Up to here, appending does not fill the disk.
    reserved: u64,
    /// The length from which the file is compacted.
    compact_from: u64,
    /// How many registers there may be.
    registers_max: usize,
}

impl DurableFile {
    /// Reads the file and begins a generation, so that everything in it is durable.
    pub(super) fn open(
        log: Box<dyn Log>,
        node: NodeId,
        birth: Birth,
        begun: Begun,
        start: RunStart,
        registers_max: usize,
    ) -> Result<Self, StableError> {
        let path = log.path();
        let failed = |doing| {
            let path = path.clone();
            move |source| StableError::Io { doing, path, source }
        };
        let content = match begun {
            Begun::No => None,
            Begun::Yes => Some(log.read().map_err(failed("read"))?),
        };
        let mut live = LiveRegisters::default();
        let end = match content {
            None => None,
            Some(None) => return Err(StableError::DurableLost { path }),
            Some(Some(bytes)) => {
                let end = read_durable(node, birth, &bytes, |record| live.change(record));
                let end = end.map_err(|error| {
                    let (offset, why) = (error.offset, error.why);
                    StableError::DurableCorrupt { path: path.clone(), offset, why }
                })?;
                if end.torn > 0 {
                    let (path, bytes) = (path.display(), end.torn);
                    tracing::info!(%path, bytes, "a write was torn; nothing in it was confirmed");
                }
                Some(end)
            }
        };
        let last = end.map(|end| end.last);
        let mut file = Self {
            log,
            node,
            birth,
            clock: FileClock::new(start, last.as_ref()),
            generation: end.map_or(0, |end| end.generation),
            writer: None,
            last,
            written_at: start.now,
            live,
            records: Vec::new(),
            len: 0,
            reserved: 0,
            compact_from: 0,
            registers_max,
        };
        file.commit(start.now).map_err(failed("begin a new generation of"))?;
        Ok(file)
    }

    /// All registers, with ends of the run's clock.
    pub(crate) fn registers(&self) -> impl Iterator<Item = DurableRegister> {
        self.live.iter().map(|stored| self.clock.register_from_file(stored.decode()))
    }

    /// Takes a write for the next batch.
    pub(super) fn take(&mut self, shard: ShardId, write: &DurableWrite) {
        let write = self.clock.write_to_file(write);
        encode_write(&write, shard, &mut self.records);
        match &write {
            DurableWrite::Register(register) => {
                self.live.change(DurableRecord::Register(StoredRegister::new(register)));
            }
            DurableWrite::Forget(label) => self.live.change(DurableRecord::Forget(label.name())),
            DurableWrite::Clear => self.live.change(DurableRecord::Clear(shard)),
            DurableWrite::Tick => {}
        }
    }

    /// Makes durable what was taken, and that the clock of the run shows `now` (K3). After an error
    /// the next commit includes what this one was for.
    pub(super) fn commit(&mut self, now: Instant) -> io::Result<()> {
        let file_time = self.clock.file_time(now);
        let head = BatchHead {
            sequence: self.last.map_or(1, |last| last.sequence + 1),
            file_time: self.last.map_or(file_time, |last| last.file_time.max(file_time)),
            boot: self.clock.boot(now),
        };
        let written = match self.writer {
            Some(writer) if self.len < self.compact_from => self.append(writer, &head),
            Some(writer) => self.begin_generation(&head).or_else(|error| {
                // Nothing is wrong with the file as long as it has its name.
                if !self.log.is_open() {
                    return Err(error);
                }
                self.compact_from = self.len + self.len / 8;
                self.append(writer, &head)
            }),
            None => self.begin_generation(&head),
        };
        if let Err(error) = written {
            self.writer = None;
            self.log.close();
            self.records = Vec::new();
            return Err(error);
        }
        self.records.clear();
        self.last = Some(head);
        self.written_at = now;
        self.reserve();
        Ok(())
    }

    fn append(&mut self, writer: DurableWriter, head: &BatchHead) -> io::Result<()> {
        let mut batch = Vec::new();
        writer.batch(head, &self.records, &mut batch);
        self.log.append(&batch)?;
        self.log.sync()?;
        self.len += batch.len() as u64;
        let mut mark = Vec::new();
        writer.mark(head.sequence, &mut mark);
        // The batch is durable whatever becomes of its mark, but nothing may follow half a mark.
        match self.log.append(&mark) {
            Ok(()) => self.len += mark.len() as u64,
            Err(_) => self.writer = None,
        }
        Ok(())
    }

    /// Writes all registers to a new generation.
    fn begin_generation(&mut self, head: &BatchHead) -> io::Result<()> {
        let generation = self.generation + 1;
        let (node, birth, live) = (self.node, self.birth, &self.live);
        let mut begun = None;
        self.log.replace(&mut |file| {
            let mut len = 0;
            let mut write = |chunk: &mut Vec<u8>| {
                len += chunk.len() as u64;
                file.write_all(chunk)?;
                chunk.clear();
                io::Result::Ok(())
            };
            let mut chunk = Vec::with_capacity(2 * CHUNK_LEN);
            let writer = DurableWriter::begin(node, birth, generation, &mut chunk);
            let mut batch = writer.begin_batch(head, live.bytes, &mut chunk);
            for register in live.iter() {
                batch.update(register.as_bytes());
                chunk.extend_from_slice(register.as_bytes());
                if chunk.len() >= CHUNK_LEN {
                    write(&mut chunk)?;
                }
            }
            batch.finish(&mut chunk);
            writer.mark(head.sequence, &mut chunk);
            write(&mut chunk)?;
            begun = Some((writer, len));
            Ok(())
        })?;
        let (writer, len) = begun.expect("it was written");
        self.generation = generation;
        self.writer = Some(writer);
        self.len = len;
        self.reserved = 0;
        self.compact_from = COMPACT_MIN.max(2 * len);
        Ok(())
    }

    fn reserve(&mut self) {
        if self.writer.is_none() || self.reserved >= self.len + RESERVE {
            return;
        }
        // Twice as much, so that not every batch asks for more.
        let reserved = self.len + 2 * RESERVE;
        let wanted = Range { start: self.len, end: reserved };
        match self.log.reserve(wanted) {
            Ok(()) => self.reserved = reserved,
            // The file system cannot promise room, or not to this process.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => self.reserved = u64::MAX,
            Err(_) => {}
        }
    }

    /// Whether there is room for more registers that are held.
    pub(super) fn has_room(&self) -> bool {
        self.is_reserved() && self.live.registers.len() < self.registers_max
    }

    /// Whether the reserve is whole. It is used up as the disk is full.
    fn is_reserved(&self) -> bool {
        self.writer.is_some() && self.reserved >= self.len + RESERVE
    }

    /// When the next batch is due even if there is nothing to write: to keep the time of the file
    /// while a timed register exists, and to see whether the disk has room again.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let is_due = self.live.timed > 0 || !self.is_reserved();
        is_due.then(|| self.written_at.after(TICK_EVERY))
    }

    /// The length of the file.
    pub(super) const fn bytes(&self) -> u64 {
        self.len
    }

    /// How many names have a register.
    pub(super) fn count(&self) -> usize {
        self.live.registers.len()
    }
}

/// All registers, as they are encoded.
#[derive(Default)]
struct LiveRegisters {
    registers: BTreeSet<ByName>,
    /// Of all of them.
    bytes: usize,
    /// How many have an end.
    timed: usize,
}

impl LiveRegisters {
    fn change(&mut self, record: DurableRecord<'_>) {
        match record {
            DurableRecord::Register(stored) => {
                self.bytes += stored.as_bytes().len();
                self.timed += usize::from(stored.is_timed());
                let before = self.registers.replace(ByName(stored));
                self.removed(before);
            }
            DurableRecord::Forget(name) => {
                let before = self.registers.take(name.as_bytes());
                self.removed(before);
            }
            DurableRecord::Clear(shard) => {
                let is_of = |stored: &ByName| ShardId::of(stored.0.name(), shard.count()) == shard;
                let cleared: Vec<ByName> = self.registers.extract_if(.., is_of).collect();
                cleared.into_iter().for_each(|stored| self.removed(Some(stored)));
            }
        }
    }

    fn removed(&mut self, before: Option<ByName>) {
        if let Some(ByName(stored)) = before {
            self.bytes -= stored.as_bytes().len();
            self.timed -= usize::from(stored.is_timed());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &StoredRegister> {
        self.registers.iter().map(|ByName(stored)| stored)
    }
}

/// A register, found by its name.
struct ByName(StoredRegister);

impl Borrow<[u8]> for ByName {
    fn borrow(&self) -> &[u8] {
        self.0.name().as_bytes()
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name().as_bytes().cmp(other.0.name().as_bytes())
    }
}
