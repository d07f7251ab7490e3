//! The writer thread, on a disk whose every write waits for the test's verdict.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::disk::Fill;
use super::*;

/// Shows each record it is to write, and waits to be told whether that works.
struct Gate {
    inner: MemoryDisk,
    shown: Sender<Record>,
    verdicts: Receiver<io::Result<()>>,
}

impl Disk for Gate {
    fn read(&self, file: DataFile) -> io::Result<Option<Vec<u8>>> {
        self.inner.read(file)
    }
    fn replace(&mut self, file: DataFile, fill: &mut Fill<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        fill(&mut bytes)?;
        self.shown.send(decode_record(node(1), &bytes).expect("a record")).expect("test runs");
        self.verdicts.recv().expect("test runs")?;
        self.inner.replace(file, fill)
    }
    fn remove(&mut self, file: DataFile) -> io::Result<()> {
        self.inner.remove(file)
    }
    fn is_marked(&self) -> io::Result<bool> {
        self.inner.is_marked()
    }
    fn mark(&mut self) -> io::Result<()> {
        self.inner.mark()
    }
    fn path(&self, file: DataFile) -> PathBuf {
        self.inner.path(file)
    }
}

/// How long a test waits for what must come: far longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A test that fails drops the channels first, so that the thread does not wait for a verdict for
/// ever, nor the test for the thread.
struct Scene {
    shown: Receiver<Record>,
    verdicts: Sender<io::Result<()>>,
    written: Receiver<(usize, Record)>,
    disk: MemoryDisk,
    writer: RecordWriter,
}

impl Scene {
    fn new(shards: usize, start: Record) -> Self {
        let disk = MemoryDisk::default();
        let (show, shown) = channel();
        let (verdicts, judged) = channel();
        let (answer, written) = channel();
        let gate = Gate { inner: disk.clone(), shown: show, verdicts: judged };
        let on_written = Box::new(move |shard, record| {
            answer.send((shard, record)).expect("test runs");
        });
        let folder = Folder::on(gate, node(1));
        let writer = RecordWriter::spawn(folder, shards, start, on_written).expect("a thread");
        Self { shown, verdicts, written, disk, writer }
    }

    /// What the thread is about to write.
    fn shown(&self) -> Record {
        self.shown.recv_timeout(PATIENCE).expect("there is something to write")
    }

    fn allow(&self) {
        self.verdicts.send(Ok(())).expect("thread runs");
    }

    fn answers<const N: usize>(&self) -> [(usize, Record); N] {
        std::array::from_fn(|_| self.written.recv_timeout(PATIENCE).expect("a shard is answered"))
    }
}

#[test]
fn a_shard_hears_of_its_own_record_once_a_record_as_high_is_durable() {
    let scene = Scene::new(2, record(10, 60_000));
    scene.writer.ask(0, record(20, 1_000));
    assert_eq!(scene.shown(), record(20, 60_000), "the other shard goes by its old ceiling");
    assert!(scene.written.try_recv().is_err(), "not before it is durable");
    scene.allow();
    assert_eq!(scene.answers(), [(0, record(20, 1_000))]);
    assert_eq!(on(&scene.disk).load().expect("loads"), Loaded::Record(record(20, 60_000)));
}

#[test]
fn what_is_asked_for_during_a_write_goes_into_one_more() {
    let scene = Scene::new(3, record(10, 0));
    scene.writer.ask(0, record(20, 0));
    assert_eq!(scene.shown(), record(20, 0));
    scene.writer.ask(1, record(30, 0));
    scene.writer.ask(2, record(25, 500));
    scene.allow();
    assert_eq!(scene.answers(), [(0, record(20, 0))]);
    assert_eq!(scene.shown(), record(30, 500));
    scene.allow();
    assert_eq!(scene.answers(), [(1, record(30, 0)), (2, record(25, 500))]);
    assert_eq!(scene.disk.writes(), 2);
}

#[test]
fn what_is_on_disk_already_is_confirmed_without_a_write() {
    let scene = Scene::new(2, record(10, 60_000));
    scene.writer.ask(0, record(20, 60_000));
    scene.shown();
    scene.allow();
    scene.answers::<1>();
    scene.writer.ask(1, record(20, 1_000));
    assert_eq!(scene.answers(), [(1, record(20, 1_000))]);
    assert_eq!(scene.disk.writes(), 1);
}

#[test]
fn a_failing_disk_is_reported_and_tried_again_until_it_works() {
    let scene = Scene::new(2, record(10, 0));
    scene.writer.ask(0, record(20, 0));
    for _ in 0..3 {
        scene.shown();
        scene.verdicts.send(Err(ErrorKind::StorageFull.into())).expect("thread runs");
    }
    assert_eq!(scene.shown(), record(20, 0));
    let error = (scene.writer.problem())().expect("three writes failed");
    assert_eq!(error, io::Error::from(ErrorKind::StorageFull).to_string());
    scene.writer.ask(1, record(15, 70));
    scene.allow();
    assert_eq!(scene.answers(), [(0, record(20, 0))]);
    assert_eq!((scene.writer.problem())(), None);
    assert_eq!(scene.shown(), record(20, 70));
    scene.allow();
    assert_eq!(scene.answers(), [(1, record(15, 70))]);
}

#[test]
fn after_a_failed_write_what_was_there_before_is_written_again() {
    // The write that failed may have happened: what is on disk is unknown.
    let scene = Scene::new(1, record(10, 0));
    scene.writer.ask(0, record(20, 50));
    scene.shown();
    scene.allow();
    scene.answers::<1>();
    scene.writer.ask(0, record(20, 0));
    scene.shown();
    scene.writer.ask(0, record(20, 50));
    scene.verdicts.send(Err(ErrorKind::Other.into())).expect("thread runs");
    assert_eq!(scene.answers(), [(0, record(20, 0))], "so much is there either way");
    assert_eq!(scene.shown(), record(20, 50));
    scene.allow();
    assert_eq!(scene.answers(), [(0, record(20, 50))]);
}

#[test]
fn what_another_shard_has_on_disk_needs_no_disk_that_works() {
    let scene = Scene::new(2, record(10, 0));
    scene.writer.ask(0, record(20, 500));
    scene.shown();
    scene.allow();
    scene.answers::<1>();
    scene.writer.ask(0, record(90, 500));
    scene.shown();
    scene.writer.ask(1, record(15, 500));
    scene.verdicts.send(Err(ErrorKind::StorageFull.into())).expect("thread runs");
    assert_eq!(scene.shown(), record(90, 500));
    scene.verdicts.send(Err(ErrorKind::StorageFull.into())).expect("thread runs");
    assert_eq!(scene.answers(), [(1, record(15, 500))]);
    assert_eq!(scene.shown(), record(90, 500));
    scene.allow();
    assert_eq!(scene.answers(), [(0, record(90, 500))]);
}

#[test]
fn a_longer_lease_waits_for_a_disk_that_fails() {
    let scene = Scene::new(1, record(10, 0));
    scene.writer.ask(0, record(20, 500));
    scene.shown();
    scene.allow();
    scene.answers::<1>();
    scene.writer.ask(0, record(20, 900));
    scene.shown();
    scene.verdicts.send(Err(ErrorKind::StorageFull.into())).expect("thread runs");
    assert_eq!(scene.shown(), record(20, 900));
    assert!(scene.written.try_recv().is_err(), "the ballots are there, the lease is not");
    scene.allow();
    assert_eq!(scene.answers(), [(0, record(20, 900))]);
}

#[test]
fn stopping_ends_a_retry_and_gives_the_folder_back() {
    let scene = Scene::new(1, record(10, 0));
    scene.writer.ask(0, record(20, 0));
    scene.shown();
    // Should it come to other attempts first, they fail as well: for minutes, as pauses grow.
    for _ in 0..200 {
        scene.verdicts.send(Err(ErrorKind::StorageFull.into())).expect("thread runs");
    }
    let folder = scene.writer.stop();
    assert_eq!(folder.load().expect("loads"), Loaded::Fresh);
    assert!(scene.written.try_recv().is_err());
}

#[test]
fn dropping_the_writer_ends_its_thread() {
    let Scene { verdicts, writer, .. } = Scene::new(1, record(10, 0));
    drop(writer);
    assert!(verdicts.send(Ok(())).is_err(), "the folder went with the thread");
}

#[test]
fn shards_of_one_node_never_go_by_more_than_is_on_disk() {
    let disk = MemoryDisk::default();
    let mut folder = on(&disk);
    let start = folder.start(Wishes { new_cell: true, ..PLAIN }).expect("starts");
    let (answer, written) = channel();
    let on_written = Box::new(move |shard, record| {
        answer.send((shard, record)).expect("test runs");
    });
    let first = start.record().expect("has a disk");
    let writer = RecordWriter::spawn(folder, 2, first, on_written).expect("a thread");
    let mut shards = [0, 1].map(|_| start.shard(config(), Instant::ZERO, |_| true));
    let mut wanted = [Some(Duration::from_secs(5)), Some(Duration::from_secs(20))];
    let mut granted = 0;
    loop {
        for (index, shard) in shards.iter_mut().enumerate() {
            while let Some(event) = shard.poll_event() {
                match event {
                    Event::Persist(record) => writer.ask(index, record),
                    Event::Granted { .. } => granted += 1,
                    other => panic!("neither asked nor granted: {other:?}"),
                }
            }
        }
        if granted == shards.len() {
            break;
        }
        let (index, record) = written.recv_timeout(PATIENCE).expect("a shard is answered");
        shards[index].record_written(Instant::ZERO, record);
        if let Some(ttl) = wanted[index].take() {
            acquire(&mut shards[index], "a", ttl);
        }
        let Loaded::Record(stable) = on(&disk).load().expect("loads") else { panic!("written") };
        for used in shards.iter().map(Shard::record).filter(|used| *used != first) {
            assert!(used.ballot_ceiling <= stable.ballot_ceiling, "{used:?} {stable:?}");
            assert!(used.lease_ceiling <= stable.lease_ceiling, "{used:?} {stable:?}");
        }
    }
    let stable = writer.stop().load().expect("loads");
    assert!(matches!(stable, Loaded::Record(Record { lease_ceiling, .. })
        if lease_ceiling == Some(ttl(20_000))));
}
