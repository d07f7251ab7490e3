//! A file system in memory that loses at a power failure what was not synced, for simulated nodes
//! and for tests of every combination of what survives.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
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
    /// How many bytes all files may have.
    capacity: u64,
    /// How often the power failed.
    boots: u64,
}

#[derive(Clone, Debug)]
enum Inode {
    File { content: Vec<u8>, durable: Vec<u8>, dirty: bool, reserved: u64 },
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
    const EMPTY_FILE: Self =
        Self::File { content: vec![], durable: vec![], dirty: false, reserved: 0 };
    const EMPTY_FOLDER: Self =
        Self::Folder { entries: Entries::new(), durable: Entries::new(), unsynced: vec![] };

    /// In how many ways a power failure may leave it. The first [`Self::TYPICAL`] are enough where
    /// all combinations with other files are tried.
    fn survivors(&self) -> usize {
        match self {
            Self::File { dirty: false, .. } => 1,
            Self::File { content, durable, .. } => Self::TYPICAL + tail(content, durable).len(),
            Self::Folder { unsynced, .. } => 1 << unsynced.len(),
        }
    }

    const TYPICAL: usize = 4;

    /// One of the ways.
    fn survivor(&self, choice: usize) -> Self {
        match self {
            Self::File { content, durable, .. } => {
                let tail = tail(content, durable);
                let torn = |at: usize| content[..tail.start + at].to_vec();
                let zeros = || vec![0; tail.len()];
                let left = match choice {
                    0 => durable.clone(),
                    1 => content.clone(),
                    2 => torn(tail.len() / 2),
                    3 => [torn(0), zeros()].concat(),
                    other => torn(other - Self::TYPICAL),
                };
                let content = left.clone();
                Self::File { content, durable: left, dirty: false, reserved: 0 }
            }
            Self::Folder { durable, unsynced, .. } => {
                let mut entries = durable.clone();
                for (at, change) in unsynced.iter().enumerate() {
                    if choice & (1 << at) != 0 {
                        apply(change, &mut entries);
                    }
                }
                Self::Folder { durable: entries.clone(), entries, unsynced: vec![] }
            }
        }
    }
}

/// Where content differs from what is durable: its end, if the file only grew.
fn tail(content: &[u8], durable: &[u8]) -> Range<usize> {
    let same = content.iter().zip(durable).take_while(|(new, old)| new == old).count();
    same..content.len()
}

impl State {
    const fn new(inodes: Vec<Inode>) -> Self {
        Self {
            inodes,
            changes_left: u64::MAX,
            syncs_left: u64::MAX,
            fault: None,
            capacity: u64::MAX,
            boots: 0,
        }
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

    /// How many bytes the disk has left.
    fn room(&self) -> u64 {
        let size = |inode: &usize| match &self.inodes[*inode] {
            Inode::File { content, reserved, .. } => (content.len() as u64).max(*reserved),
            Inode::Folder { .. } => 0,
        };
        let names = self.inodes.iter().filter_map(|inode| match inode {
            Inode::Folder { entries, .. } => Some(entries.values()),
            Inode::File { .. } => None,
        });
        self.capacity.saturating_sub(names.flatten().map(size).sum())
    }

    /// How many bytes can be appended to a file, and how many it has.
    fn room_in(&self, at: usize) -> (u64, u64) {
        let Inode::File { content, reserved, .. } = &self.inodes[at] else { panic!("a folder") };
        let len = content.len() as u64;
        (self.room().saturating_add(reserved.saturating_sub(len)), len)
    }

    /// A sync that fails leaves what it was to write visible, and never tries it again.
    fn sync(&mut self, at: usize) -> io::Result<()> {
        let fails = self.syncs_left == 0;
        self.syncs_left = if fails { u64::MAX } else { self.syncs_left - 1 };
        match &mut self.inodes[at] {
            Inode::File { content, durable, dirty, .. } => {
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

    /// Leaves room for this many bytes more.
    pub fn set_room(&self, bytes: u64) {
        let mut state = self.state();
        state.capacity = u64::MAX;
        state.capacity = (u64::MAX - state.room()).saturating_add(bytes);
    }

    /// The id of the boot of the machine, which ends as the power fails.
    #[cfg(feature = "simulation")]
    pub(crate) fn boot(&self) -> [u8; 16] {
        (u128::from(self.state().boots) + 1).to_le_bytes()
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
            let choice = choose(inode.survivors());
            *inode = inode.survivor(choice);
        }
        state.changes_left = u64::MAX;
        state.boots += 1;
    }

    /// The same state on a disk of its own.
    #[cfg(test)]
    pub(super) fn fork(&self) -> Self {
        Self::of(State::new(self.state().inodes.clone()))
    }

    /// What is durable now, on a disk of its own.
    #[cfg(test)]
    pub(super) fn fork_synced(&self) -> Self {
        let fork = self.fork();
        fork.lose_power(|_| 0);
        fork
    }

    /// Every state that a power failure at this moment may leave. A file is torn in the middle.
    #[cfg(test)]
    pub(super) fn survivors(&self) -> Vec<Self> {
        let state = self.state();
        let mut all = vec![Vec::new()];
        for inode in &state.inodes {
            let choices = match inode {
                Inode::File { .. } => inode.survivors().min(Inode::TYPICAL),
                Inode::Folder { .. } => inode.survivors(),
            };
            all = all
                .into_iter()
                .flat_map(|before: Vec<Inode>| {
                    (0..choices).map(move |choice| {
                        let mut after = before.clone();
                        after.push(inode.survivor(choice));
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
        let mut state = self.0.change()?;
        // A full disk takes what fits.
        let (room, _) = state.room_in(self.1);
        let fits = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        if fits == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        state.content(self.1).extend(&bytes[..fits]);
        Ok(fits)
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

    fn sync_data(&self, file: &Handle) -> io::Result<()> {
        self.sync(file)
    }

    fn reserve(&self, file: &Handle, bytes: Range<u64>) -> io::Result<()> {
        let mut state = self.change()?;
        let (room, len) = state.room_in(file.1);
        if bytes.end.saturating_sub(len) > room {
            return Err(ErrorKind::StorageFull.into());
        }
        let Inode::File { reserved, .. } = &mut state.inodes[file.1] else { panic!("a folder") };
        *reserved = bytes.end.max(*reserved);
        Ok(())
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
