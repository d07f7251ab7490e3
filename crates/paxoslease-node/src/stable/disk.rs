//! The disk of a node: two files that are replaced as a whole, one that also grows, and a mark.
//!
//! Makes changes durable: a change that returned `Ok` survives a power failure, and one that
//! returned an error happened completely or not at all. Deliberately lacks the rules of what is
//! written when: `Folder` has them, the same for every disk.

use std::fs::TryLockError;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf, absolute};
use std::process;
use std::sync::Arc;

use paxoslease_core::NodeId;

use super::StableError;
use super::files::Files;
use super::log::{FolderLog, Log};

/// The files of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DataFile {
    /// The stable record (R1, R2).
    Record,
    /// The leases at a clean stop (R4).
    Snapshot,
    /// The durable leases (K12).
    Durable,
}

impl DataFile {
    const ALL: [Self; 3] = [Self::Record, Self::Snapshot, Self::Durable];

    const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Snapshot => "snapshot",
            Self::Durable => "durable",
        }
    }
}

/// Writes the content of a file.
pub(crate) type Fill<'a> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a;

/// Keeps a node's files, for one process at a time.
pub(crate) trait Disk: Send {
    /// The content of a file; `None` if there is no such file.
    fn read(&self, file: DataFile) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a file by what `fill` writes. A reader sees the old content or the new one.
    fn replace(&mut self, file: DataFile, fill: &mut Fill<'_>) -> io::Result<()>;

    /// Removes a file. If there is no file, makes its absence durable.
    fn remove(&mut self, file: DataFile) -> io::Result<()>;

    /// Whether [`Self::mark`] was ever called.
    fn is_marked(&self) -> bool;

    /// Leaves the mark that a record was written.
    fn mark(&mut self) -> io::Result<()>;

    /// The name of a file in messages.
    fn path(&self, file: DataFile) -> PathBuf;

    /// The file of durable leases, for a thread of its own. The folder stays locked for as long as
    /// that value lives, too.
    fn log(&self) -> io::Result<Box<dyn Log>>;
}

const LOCK: &str = "lock";

/// A folder of a file system. The lock lasts as long as this value.
pub(crate) struct FolderDisk<F: Files> {
    files: F,
    path: PathBuf,
    /// The open folder, to sync it.
    folder: F::File,
    /// The locked file. Its content is the mark: empty until a record was written.
    lock: Arc<F::File>,
    /// Whether the mark is durable.
    marked: bool,
    node: NodeId,
}

impl<F: Files> FolderDisk<F> {
    /// Opens a folder, or creates it, and locks it.
    pub(crate) fn open(files: F, path: &Path, node: NodeId) -> Result<Self, StableError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| StableError::Io { doing, path, source }
        };
        let path = absolute(path).map_err(failed("find", path))?;
        create_folder(&files, &path).map_err(failed("create the data folder", &path))?;
        let folder = files.open_folder(&path).map_err(failed("open the data folder", &path))?;
        let lock_path = path.join(LOCK);
        let lock = files.open(&lock_path).map_err(failed("open", &lock_path))?;
        files.try_lock(&lock).map_err(|error| match error {
            TryLockError::WouldBlock => {
                StableError::Locked { path: path.clone(), pid: pid_in(&files, &lock_path) }
            }
            TryLockError::Error(source) => failed("lock", &lock_path)(source),
        })?;
        let marked = false;
        let mut disk = Self { files, path, folder, lock: Arc::new(lock), marked, node };
        // Files of a write that a crash interrupted.
        for file in DataFile::ALL {
            let path = disk.temporary(file);
            disk.remove_if_there(&path).map_err(failed("remove", &path))?;
        }
        // Names this process, and syncs a mark that a killed process may have left unsynced.
        if !disk.files.read(&lock_path).map_err(failed("read", &lock_path))?.is_empty() {
            disk.mark().map_err(failed("write", &lock_path))?;
        }
        Ok(disk)
    }

    fn temporary(&self, file: DataFile) -> PathBuf {
        self.path.join(file.name()).with_extension("tmp")
    }

    fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        remove_if_there(&self.files, path)
    }
}

pub(super) fn remove_if_there(files: &impl Files, path: &Path) -> io::Result<()> {
    match files.unlink(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn read_if_there(files: &impl Files, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match files.read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes and syncs a file that is to take the place of another.
pub(super) fn create<F: Files>(
    files: &F,
    temporary: &Path,
    fill: &mut Fill<'_>,
) -> io::Result<F::File> {
    // A sync that failed once may succeed the next time without having written anything. So a
    // retry always begins with a new file.
    let created = remove_if_there(files, temporary).and_then(|()| {
        let mut new = files.create(temporary)?;
        fill(&mut new)?;
        files.sync(&new)?;
        Ok(new)
    });
    if created.is_err() {
        // It may take space that the next attempt needs. If it stays, `open` removes it.
        let _stays = remove_if_there(files, temporary);
    }
    created
}

impl<F: Files> Disk for FolderDisk<F> {
    fn read(&self, file: DataFile) -> io::Result<Option<Vec<u8>>> {
        read_if_there(&self.files, &self.path(file))
    }

    fn replace(&mut self, file: DataFile, fill: &mut Fill<'_>) -> io::Result<()> {
        let temporary = self.temporary(file);
        create(&self.files, &temporary, fill)?;
        if let Err(error) = self.files.rename(&temporary, &self.path(file)) {
            let _stays = self.remove_if_there(&temporary);
            return Err(error);
        }
        self.files.sync(&self.folder)
    }

    fn remove(&mut self, file: DataFile) -> io::Result<()> {
        self.remove_if_there(&self.path(file))?;
        self.files.sync(&self.folder)
    }

    fn is_marked(&self) -> bool {
        self.marked
    }

    fn mark(&mut self) -> io::Result<()> {
        // Always the same length, and written over the old text: a crash in between cannot leave
        // the file empty, and an empty file means that there is no mark.
        let text =
            format!("PaxosLease node {:<4} process {:<10}\n", self.node.get(), process::id());
        self.files.overwrite(&self.lock, text.as_bytes())?;
        // The file's name is durable, since the folder was synced after the record was written.
        self.files.sync(&self.lock)?;
        self.marked = true;
        Ok(())
    }

    fn path(&self, file: DataFile) -> PathBuf {
        self.path.join(file.name())
    }

    fn log(&self) -> io::Result<Box<dyn Log>> {
        Ok(Box::new(FolderLog {
            files: self.files.clone(),
            path: self.path(DataFile::Durable),
            temporary: self.temporary(DataFile::Durable),
            folder: self.files.open_folder(&self.path)?,
            file: None,
            _lock: Arc::clone(&self.lock),
        }))
    }
}

/// Creates a folder, and makes its path durable: if a power failure removes the folder, its record
/// is lost.
fn create_folder(files: &impl Files, path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|level| !files.exists(level)).collect();
    files.create_folder(path)?;
    for level in path.ancestors() {
        let Some(parent) = level.parent() else { break };
        let synced = files.open_folder(parent).and_then(|parent| files.sync(&parent));
        // A killed process may have left a level unsynced. But this process may lack permission to
        // read folders that it did not create.
        if missing.contains(&level) {
            synced?;
        }
    }
    Ok(())
}

/// The process that wrote the mark last, if the mark is readable.
fn pid_in(files: &impl Files, lock: &Path) -> Option<u32> {
    let text = String::from_utf8(files.read(lock).ok()?).ok()?;
    text.split_whitespace().skip_while(|word| *word != "process").nth(1)?.parse().ok()
}
