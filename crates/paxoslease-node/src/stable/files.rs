//! The calls of a file system that a data folder needs.
//!
//! It is a trait so that tests run `FolderDisk`, which decides the order of the calls, on files
//! that lose all unsynced changes at a power failure.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// A file system. Only [`Self::sync`] makes changes durable: the content of a file once the file is
/// synced, and a name that was created, renamed or removed once its folder is synced.
pub(crate) trait Files: Clone + Send + 'static {
    /// An open file or folder.
    type File: Write + Send + Sync;

    fn exists(&self, path: &Path) -> bool;

    /// Creates a folder for this user alone, and the missing folders above it.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    fn open_folder(&self, path: &Path) -> io::Result<Self::File>;

    /// Creates a file for this user alone. Fails if it exists.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file, or creates it for this user alone.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Locks the file against other processes for as long as it is open.
    fn try_lock(&self, file: &Self::File) -> Result<(), TryLockError>;

    /// Writes over the first bytes of a file, and leaves the rest.
    fn overwrite(&self, file: &Self::File, bytes: &[u8]) -> io::Result<()>;

    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Makes the content durable, and of the rest what is needed to read it.
    fn sync_data(&self, file: &Self::File) -> io::Result<()>;

    /// Makes sure that writes to these bytes of the file find room, and leaves its length.
    fn reserve(&self, file: &Self::File, bytes: Range<u64>) -> io::Result<()>;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn unlink(&self, path: &Path) -> io::Result<()>;
}

/// The files of the operating system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OsFiles;

fn open_private(path: &Path, new: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).create_new(new).truncate(false).mode(0o600);
    options.open(path)
}

impl Files for OsFiles {
    type File = File;

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn open_folder(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        open_private(path, true)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        open_private(path, false)
    }

    fn try_lock(&self, file: &File) -> Result<(), TryLockError> {
        file.try_lock()
    }

    fn overwrite(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, 0)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    #[cfg(target_os = "linux")]
    fn reserve(&self, file: &File, bytes: Range<u64>) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(file, flags, bytes.start, bytes.end - bytes.start)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn reserve(&self, _file: &File, _bytes: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}
