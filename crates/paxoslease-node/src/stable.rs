//! The data folder: the stable record and the snapshot, which is used once (R1, R2, R4, R6), and
//! how a node starts with them.
//!
//! [`Folder`] owns the rules: the meaning of a missing or damaged file, the removal of a snapshot
//! before its use, the order of writes. The [`Disk`] makes bytes durable, the core computes the two
//! ceilings, and the [`RecordWriter`] waits for the disk in place of the shards.

mod disk;
mod error;
mod files;
mod merged;
mod startup;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "simulation"))]
mod volatile_files;
mod writer;

use std::io;
use std::path::Path;

use paxoslease_core::{NodeId, Record, Snapshot};
use paxoslease_wire::{SnapshotReader, SnapshotWriter, decode_record, encode_record};

use disk::FolderDisk;
pub(crate) use disk::{DataFile, Disk};
pub use error::StableError;
use files::OsFiles;
#[cfg(feature = "simulation")]
pub(crate) use merged::{MergedRecord, Write};
pub(crate) use startup::{Startup, Wishes};
#[cfg(any(test, feature = "simulation"))]
pub use volatile_files::VolatileFiles;
pub(crate) use writer::RecordWriter;

/// A snapshot is written in chunks of about this many bytes.
const CHUNK_LEN: usize = 64 * 1024;

/// The content of a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loaded {
    /// No record was ever written.
    Fresh,
    /// The node ran before, within these ceilings.
    Record(Record),
}

/// A node's data folder, locked for as long as this value lives.
pub(crate) struct Folder {
    disk: Box<dyn Disk>,
    node: NodeId,
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
        Self { disk: Box::new(disk), node }
    }

    /// Decides how the node starts. Removes the snapshot, even if it cannot be used.
    pub(crate) fn start(&mut self, wishes: Wishes) -> Result<Startup, StableError> {
        use StableError::{Corrupt, Lost, OtherNode};
        let loaded = match self.load() {
            // R6: an unusable record stays in place until the first new record replaces it. So the
            // start after a crash before that is refused again: the folder does not look unused.
            Err(Lost { .. } | Corrupt { .. } | OtherNode { .. }) if wishes.reset => Loaded::Fresh,
            loaded => loaded?,
        };
        let snapshot = self.take_snapshot(loaded)?;
        let loaded = self.raise(loaded)?;
        Ok(Startup::decide(Some(loaded), snapshot, wishes))
    }

    /// R4: makes a higher ballot ceiling durable before the node votes, so that no two runs have
    /// the same one, and the snapshot of an earlier run is known by its ceiling if it reappears.
    fn raise(&mut self, loaded: Loaded) -> Result<Loaded, StableError> {
        let Loaded::Record(mut record) = loaded else { return Ok(loaded) };
        record.ballot_ceiling = record.ballot_ceiling.saturating_add(1);
        let path = self.disk.path(DataFile::Record);
        self.write_record(record).map_err(|source| {
            let doing = "make sure that no snapshot is used twice by writing";
            StableError::Io { doing, path, source }
        })?;
        Ok(Loaded::Record(record))
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
    fn take_snapshot(&mut self, loaded: Loaded) -> Result<Option<Vec<u8>>, StableError> {
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
                        if record.ballot_ceiling == snapshot.ballot_ceiling() =>
                    {
                        return Ok(Some(bytes));
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
    pub(crate) fn write_record(&mut self, record: Record) -> io::Result<()> {
        let bytes = encode_record(self.node, &record);
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
        let Ok(Loaded::Record(Record { ballot_ceiling, .. })) = self.load() else {
            return Ok(false);
        };
        let node = self.node;
        self.disk.replace(DataFile::Snapshot, &mut |file| {
            let mut chunk = Vec::with_capacity(2 * CHUNK_LEN);
            let mut writer = SnapshotWriter::begin(node, ballot_ceiling, &mut chunk);
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
