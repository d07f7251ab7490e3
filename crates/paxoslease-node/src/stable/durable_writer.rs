//! The thread that writes the file of durable leases.
//!
//! It is not the thread of the stable record: a new generation of a large file takes seconds, and
//! ordinary leases wait for the record, but never for durable ones. What shards hand over during a
//! write goes into the next one together. After a failure it tries again until it succeeds;
//! meanwhile nothing is answered, and no shard stores a durable lease that is held.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use paxoslease_core::{DurableWrite, Instant};
use paxoslease_wire::ShardId;

use super::durable::DurableFile;
use super::writer::Failures;
use crate::clock::Clock;

/// Write times that nobody took yet are dropped beyond this number.
const WRITE_TIMES_MAX: usize = 1024;

/// What a shard wants on disk.
#[derive(Clone, Debug)]
pub(crate) struct HandedOver {
    pub(crate) shard: ShardId,
    /// The writes of a shard are numbered in their order.
    pub(crate) sequence: u64,
    /// When the shard handed it over, by the node's clock (K3).
    pub(crate) now: Instant,
    pub(crate) write: DurableWrite,
}

/// What the shards are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DurableNews {
    /// All writes of this shard up to this sequence are durable.
    Written { shard: u16, sequence: u64 },
    /// Whether there is room for durable leases, for all shards. There is, until this says
    /// otherwise.
    Room(bool),
}

/// Called with what is new, by one thread.
pub(crate) type OnDurable = Box<dyn Fn(DurableNews) + Send>;

/// The state of the file, for people.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DurableStatus {
    /// Why the last write failed; `None` if it succeeded.
    pub(crate) problem: Option<String>,
    /// The length of the file.
    pub(crate) bytes: u64,
    /// How many names have a register.
    pub(crate) registers: usize,
    /// Whether there is room for more leases.
    pub(crate) has_room: bool,
}

/// The file, and who waits for its next write.
pub(crate) struct DurableWorker {
    file: DurableFile,
    /// By shard, the last write that was not confirmed.
    waiting: Vec<Option<u64>>,
    /// The latest time at which something was handed over.
    handed_over_at: Instant,
    /// What the shards were told last.
    has_room: bool,
    problem: Option<String>,
}

impl DurableWorker {
    pub(crate) fn new(file: DurableFile, shards: usize) -> Self {
        Self {
            file,
            waiting: vec![None; shards],
            handed_over_at: Instant::ZERO,
            has_room: true,
            problem: None,
        }
    }

    /// Takes a write for the next commit.
    pub(crate) fn take(&mut self, handed: &HandedOver) {
        let HandedOver { shard, sequence, now, write } = handed;
        self.file.take(*shard, write);
        self.waiting[usize::from(shard.index())] = Some(*sequence);
        self.handed_over_at = self.handed_over_at.max(*now);
    }

    /// Makes durable what was taken since the last commit that succeeded.
    pub(crate) fn commit(
        &mut self,
        now: Instant,
        tell: &mut dyn FnMut(DurableNews),
    ) -> io::Result<()> {
        let written = self.file.commit(now.max(self.handed_over_at));
        self.problem = written.as_ref().err().map(ToString::to_string);
        // Before the answers: the next request of a shard follows them.
        self.tell_room(tell);
        if written.is_ok() {
            for (shard, waiting) in (0..).zip(&mut self.waiting) {
                if let Some(sequence) = waiting.take() {
                    tell(DurableNews::Written { shard, sequence });
                }
            }
        }
        written
    }

    /// Tells the shards whether there is room, if that is new.
    pub(crate) fn tell_room(&mut self, tell: &mut dyn FnMut(DurableNews)) {
        let has_room = self.file.has_room();
        if has_room != self.has_room {
            self.has_room = has_room;
            tell(DurableNews::Room(has_room));
        }
    }

    /// When a commit is due even if nothing is handed over.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.file.due_at()
    }

    pub(crate) fn status(&self) -> DurableStatus {
        DurableStatus {
            problem: self.problem.clone(),
            bytes: self.file.bytes(),
            registers: self.file.count(),
            has_room: self.has_room,
        }
    }
}

/// The handle to the thread. Dropping it stops the thread after the write under way.
pub(crate) struct DurableFileWriter {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
}

struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    handed_over: Vec<HandedOver>,
    status: DurableStatus,
    write_times: Vec<Duration>,
    stopped: bool,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }
}

impl DurableFileWriter {
    /// Starts the thread.
    pub(crate) fn spawn(
        worker: DurableWorker,
        clock: Clock,
        on_news: OnDurable,
    ) -> io::Result<Self> {
        let status = worker.status();
        let state = State { status, ..State::default() };
        let shared = Arc::new(SharedState { state: Mutex::new(state), changed: Condvar::new() });
        let failures = Failures::default();
        let work = Work { shared: Arc::clone(&shared), worker, clock, on_news, failures };
        let name = "paxoslease-durable".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || work.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A shard wants something on disk. It is told when that and all that it handed over before is
    /// durable.
    pub(crate) fn hand_over(&self, handed: HandedOver) {
        self.shared.state().handed_over.push(handed);
        self.shared.changed.notify_one();
    }

    /// A function that returns the state of the file. It does not keep the writer from stopping.
    pub(crate) fn status(&self) -> impl Fn() -> DurableStatus + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.state().status.clone()
    }

    /// A function that returns how long the writes since its last call took.
    pub(crate) fn write_times(&self) -> impl Fn() -> Vec<Duration> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || std::mem::take(&mut shared.state().write_times)
    }

    /// Stops after the write under way. Shards that still wait get no answer: they have stopped.
    pub(crate) fn stop(mut self) {
        let ended = self.end().expect("only this and dropping end the thread");
        ended.unwrap_or_else(|panic| resume_unwind(panic));
    }

    fn end(&mut self) -> Option<thread::Result<()>> {
        let thread = self.thread.take()?;
        self.shared.state().stopped = true;
        self.shared.changed.notify_one();
        Some(thread.join())
    }
}

impl Drop for DurableFileWriter {
    fn drop(&mut self) {
        // A thread that panicked has reported that itself.
        let _panicked = self.end();
    }
}

struct Work {
    shared: Arc<SharedState>,
    worker: DurableWorker,
    clock: Clock,
    on_news: OnDurable,
    failures: Failures,
}

impl Work {
    fn run(mut self) {
        self.worker.tell_room(&mut |news| (self.on_news)(news));
        while let Some(handed_over) = self.next() {
            for handed in &handed_over {
                self.worker.take(handed);
            }
            let begun_at = self.clock.now();
            // The answers come before the status, so that nobody waits for it.
            let written = self.worker.commit(begun_at, &mut |news| (self.on_news)(news));
            let took = self.clock.now().since(begun_at);
            let mut state = self.shared.state();
            state.status = self.worker.status();
            if state.write_times.len() < WRITE_TIMES_MAX {
                state.write_times.push(took);
            }
            drop(state);
            match written {
                Ok(()) if std::mem::take(&mut self.failures).get() > 0 => {
                    tracing::info!("the file of durable leases can be written again");
                }
                Ok(()) => {}
                Err(error) => self.failed(&error),
            }
        }
    }

    /// What was handed over, once a write is due; `None` to stop.
    fn next(&self) -> Option<Vec<HandedOver>> {
        let mut state = self.shared.state();
        // After a failure, what was taken before waits for the next attempt.
        while !state.stopped && state.handed_over.is_empty() && self.failures.get() == 0 {
            let locked = "no thread panics while it holds the lock";
            state = match self.worker.due_at().map(|at| at.since(self.clock.now())) {
                None => self.shared.changed.wait(state).expect(locked),
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let left = paxoslease_clock::wait_for(left);
                    self.shared.changed.wait_timeout(state, left).expect(locked).0
                }
            };
        }
        (!state.stopped).then(|| std::mem::take(&mut state.handed_over))
    }

    /// Waits before the next attempt, longer each time.
    fn failed(&mut self, error: &io::Error) {
        if self.failures.count() {
            let failures = self.failures.get();
            tracing::error!(
                %error, failures, "the file of durable leases cannot be written; will retry"
            );
        }
        let (state, pause) = (self.shared.state(), self.failures.pause());
        drop(self.shared.changed.wait_timeout_while(state, pause, |state| !state.stopped));
    }
}
