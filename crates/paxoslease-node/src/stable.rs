//! The data folder: the stable record and the one-use snapshot (R1, R2, R4, R6), and how a node
//! comes up with what it finds there.
//!
//! [`Folder`] owns the rules: what a missing or damaged file means, that a snapshot is gone before
//! it is used, what is written in which order. How bytes become durable is the [`Disk`]'s, what
//! the two ceilings are is the core's, and [`RecordWriter`] keeps the waiting off the shards.

mod disk;
mod error;
mod files;
#[cfg(test)]
mod memory;
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
#[cfg(test)]
pub(crate) use memory::MemoryDisk;
#[cfg(feature = "simulation")]
pub(crate) use merged::MergedRecord;
pub(crate) use startup::{Startup, Wishes};
#[cfg(feature = "simulation")]
pub use volatile_files::VolatileFiles;
pub(crate) use writer::RecordWriter;

/// How many bytes of a snapshot are gathered before they are written.
const CHUNK_LEN: usize = 64 * 1024;

/// What a folder says of the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loaded {
    /// Never used: no record was ever written.
    Fresh,
    /// The node ran before, up to these ceilings.
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
    #[cfg(feature = "simulation")]
    pub(crate) fn open_volatile(files: &VolatileFiles, node: NodeId) -> Result<Self, StableError> {
        Ok(Self::on(FolderDisk::open(files.clone(), Path::new("/var/node"), node)?, node))
    }

    /// A folder on any disk.
    pub(crate) fn on(disk: impl Disk + 'static, node: NodeId) -> Self {
        Self { disk: Box::new(disk), node }
    }

    /// Finds out how the node comes up. Uses up the snapshot, whether it is of use or not.
    pub(crate) fn start(&mut self, wishes: Wishes) -> Result<Startup, StableError> {
        use StableError::{Corrupt, Lost, OtherNode};
        let loaded = match self.load() {
            // R6: what cannot be used stays in place until the first record replaces it. So a
            // crash before that is refused again, instead of being taken for a folder never used.
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

    /// What is known of the past. Refuses what is lost or damaged (R6).
    pub(crate) fn load(&self) -> Result<Loaded, StableError> {
        let path = || self.disk.path(DataFile::Record);
        let failed = |source| StableError::Io { doing: "read", path: path(), source };
        let Some(bytes) = self.disk.read(DataFile::Record).map_err(failed)? else {
            let was_written = self.disk.is_marked().map_err(failed)?;
            return if was_written {
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

    /// R4: the snapshot of the last run, if it stopped cleanly, once it is durably gone from the
    /// disk. One that cannot be used is removed as well: the start is then one after a crash, which
    /// is always safe and costs a quarantine.
    fn take_snapshot(&mut self, loaded: Loaded) -> Result<Option<Vec<u8>>, StableError> {
        let path = self.disk.path(DataFile::Snapshot);
        let read = self.disk.read(DataFile::Snapshot);
        // Also when none was found: an earlier removal may not have been made durable.
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

    /// Makes a record durable, and that there is one.
    pub(crate) fn write_record(&mut self, record: Record) -> io::Result<()> {
        let bytes = encode_record(self.node, &record);
        self.disk.replace(DataFile::Record, &mut |file| file.write_all(&bytes))?;
        // Only now: a first start that was cut short leaves a folder never used, not a loss.
        if !self.disk.is_marked()? {
            self.disk.mark()?;
        }
        Ok(())
    }

    /// R4: leaves the live leases of all shards to the next start. The last thing that happens to
    /// a folder, after every shard has stopped. Returns whether there was a snapshot to write: it
    /// counts whole or not at all, so one shard that has none (it was still quarantined, or is no
    /// acceptor) means none for the node, and the next start is one after a crash.
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
