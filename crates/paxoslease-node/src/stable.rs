//! The data folder: the stable record, the snapshot, which is used once (R1, R2, R4, R6), and the
//! file of durable leases (K12), and how a node starts with them.
//!
//! [`Folder`] owns the rules: the meaning of a missing or damaged file, the removal of a snapshot
//! before its use, the order of writes. The [`Disk`] makes bytes durable, the core computes the two
//! ceilings, and the [`RecordWriter`] and the [`DurableFileWriter`] wait for the disk in place of
//! the shards.

mod disk;
mod durable;
mod durable_writer;
mod error;
mod file_time;
mod files;
mod log;
mod merged;
mod probe;
mod startup;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "simulation"))]
mod volatile_files;
mod writer;

use std::io;
use std::path::Path;

use durable::Begun;
pub(crate) use durable::DurableFile;
pub(crate) use durable_writer::{DurableFileWriter, DurableNews, DurableWorker, HandedOver};
use paxoslease_core::{NodeId, Snapshot};
use paxoslease_wire::{SnapshotReader, SnapshotWriter, StableRecord, decode_record, encode_record};

use disk::FolderDisk;
pub(crate) use disk::{DataFile, Disk};
pub use error::StableError;
pub(crate) use file_time::RunStart;
use files::OsFiles;
pub(crate) use merged::Asked;
#[cfg(feature = "simulation")]
pub(crate) use merged::{MergedRecord, Write};
pub use probe::{DataDirCheck, check_data_dir};
#[cfg(any(test, feature = "trace"))]
pub(crate) use startup::Leases;
pub(crate) use startup::{DurableWish, Membership, Startup, Wishes};
#[cfg(any(test, feature = "simulation"))]
pub use volatile_files::VolatileFiles;
pub(crate) use writer::RecordWriter;

/// A snapshot is written in chunks of about this many bytes.
const CHUNK_LEN: usize = 64 * 1024;

/// The content of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per start")]
pub(crate) enum Loaded {
    /// No record was ever written.
    Fresh,
    /// The node ran before.
    Record(StableRecord),
}

/// A node's data folder, locked for as long as this value lives.
pub(crate) struct Folder {
    disk: Box<dyn Disk>,
    node: NodeId,
    /// The file of durable leases, from the start on, until it gets a thread of its own.
    durable: Option<DurableFile>,
}

impl Folder {
    /// Opens a folder on a real disk, or creates it, and locks it.
    pub(crate) fn open(path: &Path, node: NodeId) -> Result<Self, StableError> {
        Ok(Self::on(FolderDisk::open(OsFiles, path, node)?, node))
    }

    /// Opens the data folder of a simulated host.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn open_volatile(files: &VolatileFiles, node: NodeId) -> Result<Self, StableError> {
        Ok(Self::on(FolderDisk::open(files.clone(), Path::new("/var/node"), node)?, node))
    }

    pub(crate) fn on(disk: impl Disk + 'static, node: NodeId) -> Self {
        Self { disk: Box::new(disk), node, durable: None }
    }

    /// Decides how the node starts. Removes the snapshot, even if it cannot be used, and makes the
    /// record of this start durable.
    pub(crate) fn start(&mut self, wishes: &Wishes) -> Result<Startup, StableError> {
        let mut was_reset = false;
        let loaded = match self.load_all(wishes) {
            // R6: what the files said is lost, so this is not the member that it was: the folder
            // gets a new birth.
            Err(error) if wishes.reset && error.ends_with_reset() => {
                was_reset = true;
                self.open_durable(&Loaded::Fresh, wishes)?;
                Loaded::Fresh
            }
            loaded => loaded?,
        };
        let snapshot = self.take_snapshot(&loaded)?;
        let record = Startup::record_to_write(&loaded, wishes);
        let path = self.disk.path(DataFile::Record);
        self.write_record(&record).map_err(|source| {
            let doing = "make sure that no snapshot is used twice by writing";
            StableError::Io { doing, path, source }
        })?;
        let registers = self.durable.iter().flat_map(DurableFile::registers).collect();
        Ok(Startup::with_folder(&loaded, was_reset, record, snapshot, registers, wishes))
    }

    /// K12: the record, then the durable leases.
    fn load_all(&mut self, wishes: &Wishes) -> Result<Loaded, StableError> {
        let loaded = self.load()?;
        self.open_durable(&loaded, wishes)?;
        Ok(loaded)
    }

    /// Begins a generation of the file of durable leases, if the node keeps one. The record that
    /// says so is written later: a crash in between leaves a file in which nothing was confirmed.
    fn open_durable(&mut self, loaded: &Loaded, wishes: &Wishes) -> Result<(), StableError> {
        let Some(DurableWish { start, registers_max }) = wishes.durable else { return Ok(()) };
        let (birth, begun) = match loaded {
            Loaded::Fresh => (wishes.birth, Begun::No),
            Loaded::Record(record) if record.has_durable => (record.birth, Begun::Yes),
            Loaded::Record(record) => (record.birth, Begun::No),
        };
        let log = self.disk.log().map_err(|source| {
            let path = self.disk.path(DataFile::Durable);
            StableError::Io { doing: "open the folder of", path, source }
        })?;
        let file = DurableFile::open(log, self.node, birth, begun, start, registers_max)?;
        self.durable = Some(file);
        Ok(())
    }

    /// The file of durable leases, after the start, for the thread that writes it.
    pub(crate) fn take_durable(&mut self) -> Option<DurableFile> {
        self.durable.take()
    }

    /// Reads the record. Refuses one that is lost or damaged (R6).
    pub(crate) fn load(&self) -> Result<Loaded, StableError> {
        let path = || self.disk.path(DataFile::Record);
        let failed = |source| StableError::Io { doing: "read", path: path(), source };
        let Some(bytes) = self.disk.read(DataFile::Record).map_err(failed)? else {
            return if self.disk.is_marked() {
                Err(StableError::Lost { path: path() })
            } else {
                Ok(Loaded::Fresh)
            };
        };
        match decode_record(self.node, &bytes) {
            Ok(record) => Ok(Loaded::Record(record)),
            Err(paxoslease_wire::StableError::Node { found, .. }) => {
                Err(StableError::OtherNode { path: path(), node: self.node, found })
            }
            Err(why) => Err(StableError::Corrupt { path: path(), why }),
        }
    }

    /// R4: removes the snapshot of the last run from the disk, and then returns it. A snapshot that
    /// cannot be used is removed as well: the node then starts as after a crash, which is always
    /// safe and costs a quarantine.
    fn take_snapshot(&mut self, loaded: &Loaded) -> Result<Option<Vec<u8>>, StableError> {
        let path = self.disk.path(DataFile::Snapshot);
        let read = self.disk.read(DataFile::Snapshot);
        // Also if there was no snapshot: an earlier removal may not be durable.
        self.disk.remove(DataFile::Snapshot).map_err(|source| {
            let doing = "make sure that nothing is used twice by removing";
            StableError::Io { doing, path: path.clone(), source }
        })?;
        let why: Box<dyn std::error::Error> = match read {
            Ok(None) => return Ok(None),
            Ok(Some(bytes)) => match SnapshotReader::new(self.node, &bytes) {
                Ok(snapshot) => match loaded {
                    Loaded::Record(record)
                        if record.ceilings.ballot_ceiling == snapshot.ballot_ceiling() =>
                    {
                        if epoch_of(record) == snapshot.epoch() {
                            return Ok(Some(bytes));
                        }
                        "the members of the cell changed while the node stopped".into()
                    }
                    _ => "it is of an earlier run; was it restored from a backup?".into(),
                },
                Err(error) => error.into(),
            },
            Err(error) => error.into(),
        };
        let path = path.display();
        tracing::warn!(%path, %why, "the snapshot cannot be used and was removed");
        Ok(None)
    }

    /// Makes a record durable, and then the mark that there is a record.
    pub(crate) fn write_record(&mut self, record: &StableRecord) -> io::Result<()> {
        let bytes = encode_record(self.node, record);
        self.disk.replace(DataFile::Record, &mut |file| file.write_all(&bytes))?;
        // In this order: a crash in between leaves a folder that looks unused, not a lost record.
        if !self.disk.is_marked() {
            self.disk.mark()?;
        }
        Ok(())
    }

    /// R4: writes the live leases of all shards for the next start, after every shard has stopped.
    /// Returns whether there was a snapshot to write. If one shard has no snapshot (it was still in
    /// quarantine, or is not an acceptor), the node has none, and starts as after a crash.
    pub(crate) fn write_snapshot(mut self, shards: &[Option<Snapshot>]) -> io::Result<bool> {
        let Some(shards) = shards.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        let Ok(Loaded::Record(record)) = self.load() else { return Ok(false) };
        // E4: a shard that has not changed over to the epoch of the record has dated other records.
        if shards.iter().any(|shard| shard.epoch() != epoch_of(&record)) {
            return Ok(false);
        }
        let (node, ballot_ceiling) = (self.node, record.ceilings.ballot_ceiling);
        self.disk.replace(DataFile::Snapshot, &mut |file| {
            let mut chunk = Vec::with_capacity(2 * CHUNK_LEN);
            let mut writer =
                SnapshotWriter::begin(node, ballot_ceiling, epoch_of(&record), &mut chunk);
            for lease in shards.iter().flat_map(|shard| shard.leases()) {
                writer.push(&lease, &mut chunk);
                if chunk.len() >= CHUNK_LEN {
                    file.write_all(&chunk)?;
                    chunk.clear();
                }
            }
            writer.finish(&mut chunk);
            file.write_all(&chunk)
        })?;
        Ok(true)
    }
}

fn epoch_of(record: &StableRecord) -> u32 {
    record.configuration.as_ref().map_or(0, |stable| stable.configuration.epoch())
}
