//! A disk in memory, for simulated cells and tests. It can be told to fail, and it can be opened
//! again after the node that used it has crashed.
//!
//! Like every [`Disk`] it keeps confirmed changes. `tests/power.rs` tests what a real disk loses at
//! a power failure.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::disk::{DataFile, Disk, Fill};

/// Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<DataFile, Vec<u8>>,
    marked: bool,
    writes: u64,
    fault: Option<ErrorKind>,
}

impl MemoryDisk {
    /// Makes every change fail from now on, without effect, until this is called with `None`.
    pub(crate) fn set_fault(&self, fault: Option<ErrorKind>) {
        self.state().fault = fault;
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.set_fault(full.then_some(ErrorKind::StorageFull));
    }

    /// How often a file was replaced.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Replaces or removes a file behind the back of the node.
    pub(crate) fn tamper(&self, file: DataFile, bytes: Option<Vec<u8>>) {
        let files = &mut self.state().files;
        match bytes {
            Some(bytes) => files.insert(file, bytes),
            None => files.remove(&file),
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) -> io::Result<()> {
        let state = &mut *self.state();
        if let Some(kind) = state.fault {
            return Err(kind.into());
        }
        change(state);
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn read(&self, file: DataFile) -> io::Result<Option<Vec<u8>>> {
        Ok(self.state().files.get(&file).cloned())
    }

    fn replace(&mut self, file: DataFile, fill: &mut Fill<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        fill(&mut bytes)?;
        self.change(|state| {
            state.files.insert(file, bytes);
            state.writes += 1;
        })
    }

    fn remove(&mut self, file: DataFile) -> io::Result<()> {
        self.change(|state| drop(state.files.remove(&file)))
    }

    fn is_marked(&self) -> bool {
        self.state().marked
    }

    fn mark(&mut self) -> io::Result<()> {
        self.change(|state| state.marked = true)
    }

    fn path(&self, file: DataFile) -> PathBuf {
        Path::new("memory").join(format!("{file:?}").to_lowercase())
    }
}
