//! The thread that writes durable leases, on a disk that fails when the test says so.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};

use paxoslease_core::{DurableRegister, DurableValue, DurableWrite, Label, Tenure};
use paxoslease_wire::{BootTime, ShardId};

use super::super::durable_writer::{DurableFileWriter, DurableNews, DurableWorker, HandedOver};
use super::super::file_time::RunStart;
use super::*;
use crate::clock::Clock;

/// The bound of each wait: far longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    disk: VolatileFiles,
    news: Receiver<DurableNews>,
    writer: DurableFileWriter,
}

fn start() -> RunStart {
    RunStart { now: Instant::ZERO, boot: BootTime { id: [1; 16], nanos: 0 } }
}

fn registers(disk: &VolatileFiles) -> Vec<DurableRegister> {
    let durable = Some(DurableWish { start: start(), registers_max: 3 });
    disk.start(&Wishes { durable, ..new_cell() }).expect("starts").registers
}

impl Scene {
    /// Two shards, and room for three registers.
    fn new() -> Self {
        let disk = VolatileFiles::default();
        let durable = Some(DurableWish { start: start(), registers_max: 3 });
        let mut folder = disk.folder();
        folder.start(&Wishes { durable, ..new_cell() }).expect("starts");
        let worker = DurableWorker::new(folder.take_durable().expect("it keeps one"), 2);
        let clock = Clock::manual(Arc::new(AtomicU64::new(0)));
        let (tell, news) = channel();
        let on_news = Box::new(move |new| tell.send(new).expect("test runs"));
        let writer = DurableFileWriter::spawn(worker, clock, on_news).expect("a thread");
        Self { disk, news, writer }
    }

    fn hand_over(&self, shard: u16, sequence: u64, name: &str) {
        let ballot = Ballot::new(sequence, node(1));
        let tenure = Tenure::of(ballot).expect("not zero");
        let label = Label::new(Name::new(name).expect("a name"), Holder::NONE);
        let value = DurableValue::Held { tenure, fence: tenure, ends_at: Instant::MAX };
        let write = DurableWrite::Register(DurableRegister { label, ballot, value });
        let shard = ShardId::new(shard, 2).expect("one of two");
        self.writer.hand_over(HandedOver { shard, sequence, now: Instant::ZERO, write });
    }

    fn next(&self) -> DurableNews {
        self.news.recv_timeout(PATIENCE).expect("there is news")
    }
}

#[test]
fn every_shard_is_told_what_is_durable() {
    let scene = Scene::new();
    for sequence in 1..=2 {
        scene.hand_over(1, sequence, "a");
    }
    let mut last = 0;
    while last < 2 {
        let DurableNews::Written { shard: 1, sequence } = scene.next() else { panic!("written") };
        assert!(sequence > last);
        last = sequence;
        assert_eq!(registers(&scene.disk.fork_synced()).len(), 1);
    }
    scene.hand_over(0, 1, "b");
    assert_eq!(scene.next(), DurableNews::Written { shard: 0, sequence: 1 });
    scene.writer.stop();
    assert_eq!(registers(&scene.disk).len(), 2);
}

#[test]
fn a_disk_that_fails_is_reported_and_tried_again() {
    let scene = Scene::new();
    scene.disk.set_fault(Some(ErrorKind::StorageFull));
    scene.hand_over(0, 1, "a");
    assert_eq!(scene.next(), DurableNews::Room(false));
    scene.hand_over(1, 1, "b");
    scene.disk.set_fault(None);
    assert_eq!(scene.next(), DurableNews::Room(true));
    let mut written = vec![scene.next()];
    if written == [DurableNews::Written { shard: 0, sequence: 1 }] {
        written.push(scene.next());
    }
    assert!(written.contains(&DurableNews::Written { shard: 1, sequence: 1 }), "{written:?}");
    let writer = scene.writer;
    let status = writer.status();
    assert!(!writer.write_times()().is_empty());
    writer.stop();
    let status = status();
    assert_eq!((status.problem, status.registers, status.has_room), (None, 2, true));
    assert_eq!(registers(&scene.disk).len(), 2);
}

#[test]
fn shards_are_told_when_there_is_no_room_for_more() {
    let scene = Scene::new();
    for (sequence, name) in (1..).zip(["a", "b", "c"]) {
        scene.hand_over(0, sequence, name);
    }
    let mut news = Vec::new();
    while news.last() != Some(&DurableNews::Written { shard: 0, sequence: 3 }) {
        news.push(scene.next());
    }
    // Before the answer to the write that took the last room.
    assert_eq!(news[news.len() - 2], DurableNews::Room(false));
}

#[test]
fn stopping_ends_a_retry() {
    let scene = Scene::new();
    scene.disk.set_fault(Some(ErrorKind::Other));
    scene.hand_over(0, 1, "a");
    assert_eq!(scene.next(), DurableNews::Room(false));
    scene.writer.stop();
    assert!(scene.news.try_recv().is_err(), "nothing was confirmed");
}
