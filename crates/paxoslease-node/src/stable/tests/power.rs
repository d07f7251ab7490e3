//! The shipped folder on files that lose unsynced changes at a power failure: every moment of
//! failure, and every combination of changes that survive it.

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::files::Files;
use super::*;

/// A file system in memory. Clones are the same one.
#[derive(Clone)]
struct VolatileFiles(Arc<Mutex<State>>);

#[derive(Clone)]
struct State {
    inodes: Vec<Inode>,
    /// Changes that still happen before the process dies. Every later one fails.
    changes_left: u64,
    /// Syncs that still succeed before one fails.
    syncs_left: u64,
}

#[derive(Clone)]
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

    /// Every state in which a power failure may leave it.
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
        Self { inodes, changes_left: u64::MAX, syncs_left: u64::MAX }
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

    /// A sync that fails leaves the changes visible, and no later sync makes them durable.
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

impl VolatileFiles {
    fn new() -> Self {
        Self::of(State::new(vec![Inode::EMPTY_FOLDER]))
    }

    fn of(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }

    fn change(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.changes_left = state.changes_left.checked_sub(1).ok_or(ErrorKind::BrokenPipe)?;
        Ok(state)
    }

    /// Lets the process make this many more changes.
    fn dies_after(&self, changes: u64) {
        self.state().changes_left = changes;
    }

    /// Every state that a power failure at this moment may leave.
    fn survivors(&self) -> Vec<Self> {
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

    fn open(&self) -> Result<Folder, StableError> {
        let disk = FolderDisk::open(self.clone(), Path::new("/var/node"), node(1))?;
        Ok(Folder::on(disk, node(1)))
    }
}

struct Handle(VolatileFiles, usize);

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

/// What the disk confirmed to processes, one after the other.
#[derive(Default)]
struct Told {
    /// The highest record that was confirmed.
    confirmed: u64,
    /// Snapshots that a start was given.
    used: Vec<Vec<u8>>,
    /// The last change that was confirmed is a snapshot.
    snapshot_left: bool,
}

impl Told {
    /// One process starts, raises the record twice and stops cleanly. `None` if it dies.
    fn live(&mut self, files: &VolatileFiles) -> Option<()> {
        self.snapshot_left = false;
        let mut folder = files.open().ok()?;
        let start = folder.start(PLAIN).ok()?;
        if let Startup::Snapshot(_, bytes) = start {
            self.used.push(bytes);
        }
        for _ in 0..2 {
            folder.write_record(record(self.confirmed + 1, 100)).ok()?;
            self.confirmed += 1;
        }
        // Every process holds another lease, so no two snapshots are equal.
        let name = format!("lease-{}", self.confirmed);
        assert!(folder.write_snapshot(&[snapshot_of(&name)]).ok()?);
        self.snapshot_left = true;
        Some(())
    }

    /// Checks every state that a power failure may leave.
    fn judge(&self, files: &VolatileFiles) {
        for survivor in files.survivors() {
            let next = survivor.open().expect("opens").start(PLAIN).expect("is never refused");
            let found = next.record().map_or(0, |record| record.ballot_ceiling);
            let is_crash = matches!(next, Startup::Empty { start: Start::Crash(_), .. });
            let known = is_crash || matches!(next, Startup::Snapshot(..));
            assert!(self.confirmed == 0 || known, "a confirmed record is gone: {next:?}");
            assert!(found >= self.confirmed, "{} was confirmed: {next:?}", self.confirmed);
            if let Startup::Snapshot(_, bytes) = &next {
                assert!(!self.used.contains(bytes), "a snapshot was used twice");
            }
            let left = matches!(next, Startup::Snapshot(..));
            assert!(left || !self.snapshot_left, "a confirmed snapshot is gone: {next:?}");
            if self.confirmed > 0 {
                survivor.unlink(Path::new("/var/node/record")).expect("is there");
                let lost = survivor.open().expect("opens").start(PLAIN);
                assert!(matches!(lost, Err(StableError::Lost { .. })), "{lost:?}");
            }
        }
    }
}

/// More changes than three processes make.
const CHANGES_MAX: u64 = 200;

#[test]
fn a_power_failure_at_any_moment_keeps_what_was_confirmed() {
    for dies_after in 0..=CHANGES_MAX {
        let files = VolatileFiles::new();
        files.dies_after(dies_after);
        let mut told = Told::default();
        while told.confirmed < 6 && told.live(&files).is_some() {}
        told.judge(&files);
        assert!(dies_after < CHANGES_MAX || told.used.len() == 2, "every process had its turn");
    }
}

#[test]
fn what_a_killed_process_left_unsynced_is_synced_by_the_next() {
    for killed_after in 0..CHANGES_MAX {
        let files = VolatileFiles::new();
        files.dies_after(killed_after);
        let mut told = Told::default();
        if told.live(&files).is_some() {
            return;
        }
        let (before, confirmed) = (files.state().clone(), told.confirmed);
        for dies_after in 0..CHANGES_MAX {
            let files = VolatileFiles::of(before.clone());
            files.dies_after(dies_after);
            let mut told = Told { confirmed, ..Told::default() };
            let outcome = told.live(&files);
            told.judge(&files);
            if outcome.is_some() {
                break;
            }
        }
    }
    panic!("one process makes less than {CHANGES_MAX} changes");
}

#[test]
fn a_write_that_is_tried_again_after_a_failed_sync_is_durable() {
    for fails_after in 0..8 {
        let files = VolatileFiles::new();
        let mut folder = files.open().expect("opens");
        folder.start(PLAIN).expect("starts");
        files.state().syncs_left = fails_after;
        let mut told = Told::default();
        for ceiling in 1..=3 {
            while folder.write_record(record(ceiling, 100)).is_err() {}
            told.confirmed = ceiling;
            told.judge(&files);
        }
    }
}

#[test]
fn a_new_folder_whose_path_cannot_be_synced_is_refused() {
    for fails_after in 0..2 {
        let files = VolatileFiles::new();
        files.state().syncs_left = fails_after;
        assert!(matches!(files.open(), Err(StableError::Io { .. })), "{fails_after}");
    }
}
