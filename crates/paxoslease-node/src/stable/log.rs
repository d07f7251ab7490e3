//! A file of a data folder that grows: the one of durable leases.
//!
//! Deliberately lacks its format, and the rule that a file is never synced again after an error:
//! `DurableFile` has both.

use std::io::{self, Write as _};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::disk::{Fill, create, read_if_there};
use super::files::Files;

/// A file that grows, and that is replaced as a whole. Replacing it opens it.
pub(crate) trait Log: Send {
    /// The content; `None` if there is no such file.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the file, like [`Disk::replace`]. After an error, the file may still be open: then
    /// its name was not given to a new one.
    fn replace(&mut self, fill: &mut Fill<'_>) -> io::Result<()>;

    /// Whether there is a file to append to.
    fn is_open(&self) -> bool;

    /// Appends to the open file. Not durable before [`Self::sync`].
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything durable that was appended.
    fn sync(&mut self) -> io::Result<()>;

    /// Closes the file: it is not written any more.
    fn close(&mut self);

    /// Makes sure that appending up to these bytes of the file does not fill the disk.
    fn reserve(&mut self, bytes: Range<u64>) -> io::Result<()>;

    /// The name of the file in messages.
    fn path(&self) -> PathBuf;
}

/// A log in a folder of a file system.
pub(super) struct FolderLog<F: Files> {
    pub(super) files: F,
    pub(super) path: PathBuf,
    pub(super) temporary: PathBuf,
    /// The open folder, to sync it.
    pub(super) folder: F::File,
    /// The file that has the name, as far as that is known.
    pub(super) file: Option<F::File>,
    /// Keeps other processes out.
    pub(super) _lock: Arc<F::File>,
}

impl<F: Files> FolderLog<F> {
    fn file(&mut self) -> &mut F::File {
        self.file.as_mut().expect("it is open")
    }
}

impl<F: Files> Log for FolderLog<F> {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        read_if_there(&self.files, &self.path)
    }

    fn replace(&mut self, fill: &mut Fill<'_>) -> io::Result<()> {
        let new = create(&self.files, &self.temporary, fill)?;
        // After a rename that failed, either file may have the name.
        self.file = None;
        self.files.rename(&self.temporary, &self.path)?;
        self.files.sync(&self.folder)?;
        self.file = Some(new);
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.file.is_some()
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let file = self.file.as_ref().expect("it is open");
        self.files.sync_data(file)
    }

    fn close(&mut self) {
        self.file = None;
    }

    fn reserve(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let file = self.file.as_ref().expect("it is open");
        self.files.reserve(file, bytes)
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}
