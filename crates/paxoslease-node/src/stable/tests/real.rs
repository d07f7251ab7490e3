//! On the machine's own disk.

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

    fn open(&self) -> Result<Folder, StableError> {
        Folder::open(&self.0, node(1))
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
    let nested = place.file("a/b");
    let folder = Folder::open(&nested, node(1)).expect("created");
    assert_eq!(fs::metadata(&nested).expect("is there").permissions().mode() & 0o777, 0o700);
    assert_eq!(folder.load().expect("loads"), Loaded::Fresh);
}

#[test]
fn a_record_and_a_snapshot_come_back_after_the_folder_was_closed() {
    let place = Place::new();
    let mut folder = place.open().expect("opens");
    folder.write_record(record(5, 100)).expect("room");
    folder.write_record(record(6, 100)).expect("room");
    let stopped = holding(&MemoryDisk::default(), &["a"]).stop(Instant::ZERO);
    folder.write_snapshot(&[stopped]).expect("room");
    let kept = fs::read(place.file("snapshot")).expect("is there");
    let start = place.open().expect("opens").start(PLAIN).expect("starts");
    assert_eq!(held(&start.shard(config(), Instant::ZERO, |_| true)), ["a"]);
    let again = place.open().expect("opens").start(PLAIN).expect("starts");
    assert_eq!(again, Startup::Crash(record(8, 100)));
    // Somebody brings it back from a backup.
    fs::write(place.file("snapshot"), kept).expect("room");
    let again = place.open().expect("opens").start(PLAIN).expect("starts");
    assert_eq!(again, Startup::Crash(record(9, 100)));
    assert!(!place.file("snapshot").exists());
    for name in ["record", "lock"] {
        let mode = fs::metadata(place.file(name)).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_folder_in_use_is_refused_and_the_error_names_the_process() {
    let place = Place::new();
    let mut folder = place.open().expect("opens");
    assert!(matches!(place.open(), Err(StableError::Locked { pid: None, .. })));
    folder.write_record(record(5, 100)).expect("room");
    let Err(error) = place.open() else { panic!("in use") };
    assert!(error.to_string().contains(&format!("process {}", process::id())), "{error}");
    drop(folder);
    assert!(place.open().is_ok());
}

#[test]
fn the_lock_file_says_who_opened_the_folder_last() {
    let place = Place::new();
    let lock = place.file("lock");
    place.open().expect("opens").write_record(record(5, 100)).expect("room");
    fs::write(&lock, "PaxosLease node 1    process 4294967295\n").expect("writes");
    let _folder = place.open().expect("opens");
    let text = fs::read_to_string(lock).expect("reads");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, ["PaxosLease", "node", "1", "process", &process::id().to_string()]);
}

#[test]
fn a_lost_record_is_told_from_one_that_never_was() {
    let place = Place::new();
    assert_eq!(place.open().expect("opens").load().expect("loads"), Loaded::Fresh);
    assert_eq!(place.open().expect("opens").load().expect("loads"), Loaded::Fresh);
    place.open().expect("opens").write_record(record(5, 100)).expect("room");
    fs::remove_file(place.file("record")).expect("is there");
    let folder = place.open().expect("opens");
    assert!(matches!(folder.load(), Err(StableError::Lost { .. })));
}

#[test]
fn a_record_that_cannot_be_read_is_not_taken_for_one_that_never_was() {
    let place = Place::new();
    drop(place.open().expect("opens"));
    fs::create_dir(place.file("record")).expect("created");
    let folder = place.open().expect("opens");
    assert!(matches!(folder.load(), Err(StableError::Io { doing: "read", .. })));
}

#[test]
fn what_an_interrupted_write_left_is_removed_and_never_read() {
    let place = Place::new();
    place.open().expect("opens").write_record(record(5, 100)).expect("room");
    for name in ["record.tmp", "snapshot.tmp"] {
        fs::write(place.file(name), "half").expect("writes");
    }
    let mut folder = place.open().expect("opens");
    assert_eq!(folder.start(PLAIN).expect("starts"), Startup::Crash(record(6, 100)));
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
fn an_unreadable_snapshot_makes_a_crash_start() {
    let place = Place::new();
    place.open().expect("opens").write_record(record(5, 100)).expect("room");
    fs::write(place.file("snapshot"), "not a snapshot").expect("writes");
    let start = place.open().expect("opens").start(PLAIN).expect("starts");
    assert_eq!(start, Startup::Crash(record(6, 100)));
    assert!(!place.file("snapshot").exists());
}

#[test]
fn a_snapshot_that_cannot_be_unlinked_keeps_the_node_from_starting() {
    let place = Place::new();
    place.open().expect("opens").write_record(record(5, 100)).expect("room");
    fs::create_dir(place.file("snapshot")).expect("created");
    let started = place.open().expect("opens").start(PLAIN);
    assert!(matches!(started, Err(StableError::Io { .. })), "{started:?}");
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error_that_names_it() {
    let place = Place::new();
    fs::write(&place.0, "a file").expect("writes");
    let Err(error) = place.open() else { panic!("a file is no folder") };
    assert!(error.to_string().contains(&place.0.display().to_string()), "{error}");
    fs::remove_file(&place.0).expect("is there");
}
