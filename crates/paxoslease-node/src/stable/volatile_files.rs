//! A file system in memory that loses at a power failure what was not synced, for simulated nodes
//! and for tests of every combination of what survives.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::files::Files;

/// A file system in memory. Clones are the same one.
#[derive(Clone, Debug)]
pub struct VolatileFiles(Arc<Mutex<State>>);

#[derive(Clone, Debug)]
pub(super) struct State {
    inodes: Vec<Inode>,
    /// Changes that still happen before the process dies. Every later one fails.
    changes_left: u64,
    /// Syncs that still succeed before one fails.
    pub(super) syncs_left: u64,
    /// The error of every change.
    fault: Option<ErrorKind>,
}

#[derive(Clone, Debug)]
enum Inode {
    File { content: Vec<u8>, durable: Vec<u8>, dirty: bool },
    Folder { entries: Entries, durable: Entries, unsynced: Vec<Change> },
}

type Entries = BTreeMap<String, usize>;

/// A change of a folder, by name; `None` removes the name. The file system makes it durable as a
/// whole, at any time and in any order.
type Change = Vec<(String, Option<usize>)>;

fn apply(change: &Change, entries: &mut Entries) {
    for (name, inode) in change {
        match inode {
            Some(inode) => entries.insert(name.clone(), *inode),
            None => entries.remove(name),
        };
    }
}

impl Inode {
    const EMPTY_FILE: Self = Self::File { content: vec![], durable: vec![], dirty: false };
    const EMPTY_FOLDER: Self =
        Self::Folder { entries: Entries::new(), durable: Entries::new(), unsynced: vec![] };

    /// Everything that a power failure may leave of it.
    fn survivors(&self) -> Vec<Self> {
        match self {
            Self::File { content, durable, dirty } => {
                let mut left = vec![durable.clone()];
                if *dirty {
                    left.push(content.clone());
                    left.push(content[..content.len() / 2].to_vec());
                    left.push(vec![0; content.len()]);
                }
                let file = |bytes: Vec<u8>| Self::File {
                    content: bytes.clone(),
                    durable: bytes,
                    dirty: false,
                };
                left.into_iter().map(file).collect()
            }
            Self::Folder { durable, unsynced, .. } => {
                let combinations = 1_u32 << unsynced.len();
                let folder = |chosen: u32| {
                    let mut entries = durable.clone();
                    for (at, change) in unsynced.iter().enumerate() {
                        if chosen & (1 << at) != 0 {
                            apply(change, &mut entries);
                        }
                    }
                    Self::Folder { durable: entries.clone(), entries, unsynced: vec![] }
                };
                (0..combinations).map(folder).collect()
            }
        }
    }
}

impl State {
    const fn new(inodes: Vec<Inode>) -> Self {
        Self { inodes, changes_left: u64::MAX, syncs_left: u64::MAX, fault: None }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = 0;
        for part in path.iter().skip(1) {
            let Inode::Folder { entries, .. } = &self.inodes[at] else {
                return Err(ErrorKind::NotADirectory.into());
            };
            at = *entries.get(&*part.to_string_lossy()).ok_or(ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn change_folder(&mut self, path: &Path, change: Change) -> io::Result<()> {
        let folder = self.find(path.parent().expect("not the root"))?;
        let Inode::Folder { entries, unsynced, .. } = &mut self.inodes[folder] else {
            return Err(ErrorKind::NotADirectory.into());
        };
        apply(&change, entries);
        unsynced.push(change);
        Ok(())
    }

    fn link(&mut self, path: &Path, inode: Inode) -> io::Result<usize> {
        let at = self.inodes.len();
        self.inodes.push(inode);
        self.change_folder(path, vec![(name_of(path), Some(at))])?;
        Ok(at)
    }

    fn content(&mut self, at: usize) -> &mut Vec<u8> {
        let Inode::File { content, dirty, .. } = &mut self.inodes[at] else { panic!("a folder") };
        *dirty = true;
        content
    }

    /// A sync that fails leaves what it was to write visible, and never tries it again.
    fn sync(&mut self, at: usize) -> io::Result<()> {
        let fails = self.syncs_left == 0;
        self.syncs_left = if fails { u64::MAX } else { self.syncs_left - 1 };
        match &mut self.inodes[at] {
            Inode::File { content, durable, dirty } => {
                if !fails && *dirty {
                    durable.clone_from(content);
                }
                *dirty = false;
            }
            Inode::Folder { durable, unsynced, .. } => {
                for change in unsynced.drain(..).filter(|_| !fails) {
                    apply(&change, durable);
                }
            }
        }
        if fails { Err(ErrorKind::Other.into()) } else { Ok(()) }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("not the root").to_string_lossy().into_owned()
}

impl Default for VolatileFiles {
    fn default() -> Self {
        Self::of(State::new(vec![Inode::EMPTY_FOLDER]))
    }
}

impl VolatileFiles {
    pub(super) fn of(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it has the lock")
    }

    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if let Some(kind) = state.fault {
            return Err(kind.into());
        }
        state.changes_left = state.changes_left.checked_sub(1).ok_or(ErrorKind::BrokenPipe)?;
        Ok(state)
    }

    /// Makes every change fail from now on, without effect; with `None` no longer.
    pub fn set_fault(&self, fault: Option<ErrorKind>) {
        self.state().fault = fault;
    }

    /// Whether a clean stop has left a snapshot.
    pub fn has_snapshot(&self) -> bool {
        self.exists(Path::new("/var/node/snapshot"))
    }

    /// Lets the process make this many more changes.
    pub fn dies_after(&self, changes: u64) {
        self.state().changes_left = changes;
    }

    /// The power fails: what was not synced survives as `choose` picks, among this many outcomes.
    pub fn lose_power(&self, mut choose: impl FnMut(usize) -> usize) {
        let mut state = self.state();
        for inode in &mut state.inodes {
            let mut choices = inode.survivors();
            let choice = choose(choices.len());
            *inode = choices.swap_remove(choice);
        }
        state.changes_left = u64::MAX;
    }

    /// Every state that a power failure at this moment may leave.
    #[cfg(test)]
    pub(super) fn survivors(&self) -> Vec<Self> {
        let state = self.state();
        let mut all = vec![Vec::new()];
        for inode in &state.inodes {
            let choices = inode.survivors();
            all = all
                .into_iter()
                .flat_map(|before: Vec<Inode>| {
                    choices.iter().map(move |choice| {
                        let mut after = before.clone();
                        after.push(choice.clone());
                        after
                    })
                })
                .collect();
        }
        all.into_iter().map(|inodes| Self::of(State::new(inodes))).collect()
    }
}

/// An open file or folder.
pub(crate) struct Handle(VolatileFiles, usize);

impl Write for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.change()?.content(self.1).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Files for VolatileFiles {
    type File = Handle;

    fn exists(&self, path: &Path) -> bool {
        self.state().find(path).is_ok()
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut levels: Vec<&Path> = path.ancestors().collect();
        levels.reverse();
        for level in levels {
            if !self.exists(level) {
                self.change()?.link(level, Inode::EMPTY_FOLDER)?;
            }
        }
        Ok(())
    }

    fn open_folder(&self, path: &Path) -> io::Result<Handle> {
        Ok(Handle(self.clone(), self.state().find(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Handle> {
        assert!(!self.exists(path));
        Ok(Handle(self.clone(), self.change()?.link(path, Inode::EMPTY_FILE)?))
    }

    fn open(&self, path: &Path) -> io::Result<Handle> {
        let found = self.state().find(path);
        found.map_or_else(|_| self.create(path), |at| Ok(Handle(self.clone(), at)))
    }

    fn try_lock(&self, _file: &Handle) -> Result<(), TryLockError> {
        Ok(())
    }

    fn overwrite(&self, file: &Handle, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.change()?;
        let content = state.content(file.1);
        content.resize(content.len().max(bytes.len()), 0);
        content[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, file: &Handle) -> io::Result<()> {
        self.change()?.sync(file.1)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let at = state.find(path)?;
        let Inode::File { content, .. } = &state.inodes[at] else { panic!("a folder") };
        Ok(content.clone())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        let inode = state.find(from)?;
        state.change_folder(from, vec![(name_of(from), None), (name_of(to), Some(inode))])
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.change()?;
        state.find(path)?;
        state.change_folder(path, vec![(name_of(path), None)])
    }
}
