//! The writer thread, on a disk where the test decides about each write.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::disk::Fill;
use super::super::log::Log;
use super::*;

/// Shows each record before it writes it, and waits for the verdict of the test.
struct Gate {
    inner: FolderDisk<VolatileFiles>,
    shown: Sender<StableRecord>,
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
    fn is_marked(&self) -> bool {
        self.inner.is_marked()
    }
    fn mark(&mut self) -> io::Result<()> {
        self.inner.mark()
    }
    fn path(&self, file: DataFile) -> PathBuf {
        self.inner.path(file)
    }
    fn log(&self) -> io::Result<Box<dyn Log>> {
        self.inner.log()
    }
}

/// The bound of each wait: far longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A test that fails drops the channels first, so that neither the thread nor the test waits for
/// the other for ever.
struct Scene {
    shown: Receiver<StableRecord>,
    verdicts: Sender<io::Result<()>>,
    written: Receiver<Asked>,
    disk: VolatileFiles,
    writer: RecordWriter,
}

impl Scene {
    fn new(shards: usize, start: Record) -> Self {
        let disk = VolatileFiles::default();
        let inner = FolderDisk::open(disk.clone(), Path::new("/var/node"), node(1));
        let (show, shown) = channel();
        let (verdicts, judged) = channel();
        let gate = Gate { inner: inner.expect("opens"), shown: show, verdicts: judged };
        let start = stable_record(start);
        let (writer, written) = spawn(Folder::on(gate, node(1)), shards, start);
        Self { shown, verdicts, written, disk, writer }
    }

    /// Does one step of `writer.txt`.
    fn step(&self, step: &str) {
        let words: Vec<&str> = step.split(' ').collect();
        match words[..] {
            ["ask", shard, asked] => self.writer.ask(number(shard), record_of(asked)),
            ["ask", "configuration"] => self.writer.ask_configuration(founded(Vote::default())),
            ["succeed"] => self.verdicts.send(Ok(())).expect("thread runs"),
            ["fail"] => self.fail(),
            ["write", expected] => {
                let shown = self.shown.recv_timeout(PATIENCE).expect("there is a record to write");
                assert_eq!((shown.birth, shown.ceilings), (BIRTH, record_of(expected)));
                assert_eq!(shown.configuration, None);
            }
            ["write", expected, "configuration"] => {
                let shown = self.shown.recv_timeout(PATIENCE).expect("there is a record to write");
                assert_eq!(shown, member_record(record_of(expected)));
            }
            ["answer", shard, asked] => {
                let answer = self.written.recv_timeout(PATIENCE).expect("a shard is answered");
                assert_eq!(answer, Asked::Ceilings(number(shard), record_of(asked)));
            }
            ["answer", "configuration"] => {
                let answer = self.written.recv_timeout(PATIENCE).expect("the node is answered");
                assert_eq!(answer, Asked::Configuration);
            }
            ["silence"] => assert!(self.written.try_recv().is_err()),
            ["disk", expected] => {
                assert_eq!(self.disk.record().ceilings, record_of(expected));
            }
            ["problem", ref expected @ ..] => {
                let problem = (self.writer.problem())().unwrap_or_default();
                assert_eq!(problem, expected.join(" "));
            }
            _ => panic!("unknown step"),
        }
    }

    fn fail(&self) {
        self.verdicts.send(Err(ErrorKind::StorageFull.into())).expect("thread runs");
    }
}

fn spawn(folder: Folder, shards: usize, start: StableRecord) -> (RecordWriter, Receiver<Asked>) {
    let (answer, written) = channel();
    let on_written = Box::new(move |asked| answer.send(asked).expect("test runs"));
    (RecordWriter::spawn(folder, shards, start, on_written).expect("a thread"), written)
}

#[test]
fn the_writer_plays_every_scene_of_the_script() {
    let mut scene: Option<Scene> = None;
    for line in include_str!("writer.txt").lines() {
        println!("{line}");
        match &scene {
            _ if line.starts_with('#') => {}
            _ if line.is_empty() => scene = None,
            Some(scene) => scene.step(line),
            None => {
                let (shards, start) = line.split_once(' ').expect("shards and a record");
                scene = Some(Scene::new(number(shards), record_of(start)));
            }
        }
    }
}

#[test]
fn stopping_ends_a_retry_and_returns_the_folder() {
    let scene = Scene::new(1, record(10, 0));
    scene.step("ask 0 20/0");
    scene.step("write 20/0");
    // If there are more attempts before the stop, they fail as well: for minutes, as pauses grow.
    (0..200).for_each(|_| scene.fail());
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
fn shards_of_one_node_never_use_more_than_is_on_disk() {
    let disk = VolatileFiles::default();
    let mut folder = disk.folder();
    folder.write_record(&member_record(record(1 << 40, 0))).expect("room");
    let start = folder.start(&plain()).expect("starts");
    let first = start.record().expect("has a disk");
    let (writer, written) = spawn(folder, 2, first.clone());
    let first = first.ceilings;
    let mut shards = [0, 1].map(|_| start.new_shard());
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
        let answer = written.recv_timeout(PATIENCE).expect("a shard is answered");
        let Asked::Ceilings(index, record) = answer else { panic!("{answer:?}") };
        shards[index].record_written(Instant::ZERO, record);
        if let Some(ttl) = wanted[index].take() {
            acquire(&mut shards[index], "a", ttl);
        }
        let stable = disk.record().ceilings;
        for used in shards.iter().map(Shard::record).filter(|used| *used != first) {
            assert!(used.ballot_ceiling <= stable.ballot_ceiling, "{used:?} {stable:?}");
            assert!(used.lease_ceiling <= stable.lease_ceiling, "{used:?} {stable:?}");
        }
    }
    let stable = writer.stop().load().expect("loads");
    assert!(matches!(stable, Loaded::Record(record)
        if record.ceilings.lease_ceiling == Ttl::from_millis(20_000)));
}
