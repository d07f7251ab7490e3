//! Temporary folders, removed on drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// A new folder, removed on drop.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder on the disk of temporary files, with `what` in its name.
    pub fn new(what: &str) -> Result<Self> {
        Self::within(&std::env::temp_dir(), what)
    }

    /// A folder in memory, where a sync is free.
    pub fn in_memory(what: &str) -> Result<Self> {
        Self::within(Path::new("/dev/shm"), what)
    }

    fn within(parent: &Path, what: &str) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{}{number}-{what}", prefix()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// The prefix of the names of all folders of this process.
fn prefix() -> String {
    format!("paxoslease-rig-{}-", std::process::id())
}

/// Removes all folders of this process, before an exit without drops.
pub(crate) fn remove_all() {
    for parent in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        for entry in
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix()))
        {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}
