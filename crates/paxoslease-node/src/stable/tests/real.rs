//! Data folders on the machine's own disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A path of its own for each test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paxoslease-stable-{}-{count}", process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn try_open(&self) -> Result<Folder, StableError> {
        Folder::open(&self.0, node(1))
    }

    fn open(&self) -> Folder {
        self.try_open().expect("opens")
    }

    /// A folder that a node has used.
    fn with_record() -> Self {
        let place = Self::new();
        place.open().write_record(&member_record(record(5, 100))).expect("room");
        place
    }

    fn starts(&self) -> Startup {
        self.open().start(&plain()).expect("starts")
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.file(name)).expect("is there").permissions().mode() & 0o777
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_missing_folder_is_created_for_its_user_alone() {
    let place = Place::new();
    let folder = Folder::open(&place.file("a/b"), node(1)).expect("created");
    assert_eq!(place.mode("a/b"), 0o700);
    assert_eq!(folder.load().expect("loads"), Loaded::Fresh);
}

#[test]
fn record_and_snapshot_come_back_after_the_folder_was_closed() {
    let place = Place::with_record();
    let mut folder = place.open();
    folder.write_record(&member_record(record(6, 100))).expect("room");
    folder.write_snapshot(&[snapshot_of("a")]).expect("room");
    let kept = fs::read(place.file("snapshot")).expect("is there");
    assert_eq!(held(&place.starts().new_shard()), ["a"]);
    assert_eq!(place.starts().leases, crash(record(8, 100)));
    // An operator restores the snapshot from a backup.
    fs::write(place.file("snapshot"), kept).expect("room");
    assert_eq!(place.starts().leases, crash(record(9, 100)));
    assert!(!place.file("snapshot").exists());
    for name in ["record", "lock"] {
        assert_eq!(place.mode(name), 0o600, "{name}");
    }
}

#[test]
fn a_folder_in_use_is_refused_and_the_error_names_the_process() {
    let place = Place::new();
    let mut folder = place.open();
    assert!(matches!(place.try_open(), Err(StableError::Locked { pid: None, .. })));
    folder.write_record(&member_record(record(5, 100))).expect("room");
    let Err(error) = place.try_open() else { panic!("in use") };
    assert!(error.to_string().contains(&format!("process {}", process::id())), "{error}");
    drop(folder);
    assert!(place.try_open().is_ok());
}

#[test]
fn the_lock_file_names_the_process_that_opened_the_folder_last() {
    let place = Place::with_record();
    let lock = place.file("lock");
    fs::write(&lock, "PaxosLease node 1    process 4294967295\n").expect("writes");
    let _folder = place.open();
    let text = fs::read_to_string(lock).expect("reads");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["PaxosLease", "node", "1", "process", &process::id().to_string()]);
}

#[test]
fn an_unreadable_record_does_not_make_a_folder_fresh() {
    let place = Place::new();
    for _ in 0..2 {
        assert_eq!(place.open().load().expect("loads"), Loaded::Fresh);
    }
    fs::create_dir(place.file("record")).expect("created");
    assert!(matches!(place.open().load(), Err(StableError::Io { doing: "read", .. })));
}

#[test]
fn files_of_an_interrupted_write_are_removed_and_never_read() {
    let place = Place::with_record();
    for name in ["record.tmp", "snapshot.tmp"] {
        fs::write(place.file(name), "half").expect("writes");
    }
    assert_eq!(place.starts().leases, crash(record(6, 100)));
    let mut names: Vec<_> = fs::read_dir(&place.0)
        .expect("reads")
        .map(|entry| entry.expect("reads").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["lock", "record"]);
}

#[test]
fn a_write_that_fails_half_way_leaves_the_old_file_and_no_other() {
    let place = Place::new();
    let mut disk = FolderDisk::open(OsFiles, &place.0, node(1)).expect("opens");
    let all = |bytes: &'static [u8]| move |file: &mut dyn io::Write| file.write_all(bytes);
    disk.replace(DataFile::Record, &mut all(b"old")).expect("room");
    let failed = disk.replace(DataFile::Record, &mut |file| {
        file.write_all(b"ne")?;
        Err(ErrorKind::StorageFull.into())
    });
    assert!(failed.is_err());
    assert_eq!(disk.read(DataFile::Record).expect("reads"), Some(b"old".to_vec()));
    assert!(!place.file("record.tmp").exists());
    disk.replace(DataFile::Record, &mut all(b"new")).expect("room");
    assert_eq!(disk.read(DataFile::Record).expect("reads"), Some(b"new".to_vec()));
}

#[test]
fn a_snapshot_that_cannot_be_unlinked_prevents_the_start() {
    let place = Place::with_record();
    fs::create_dir(place.file("snapshot")).expect("created");
    let started = place.open().start(&plain());
    assert!(matches!(started, Err(StableError::Io { .. })), "{started:?}");
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error_that_names_it() {
    let place = Place::new();
    fs::write(&place.0, "a file").expect("writes");
    let Err(error) = place.try_open() else { panic!("a file is no folder") };
    assert!(error.to_string().contains(&place.0.display().to_string()), "{error}");
    fs::remove_file(&place.0).expect("is there");
}
