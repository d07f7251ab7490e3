//! The thread that writes the stable record, so that no shard waits for a disk.
//!
//! Owns the folder while the shards run, and returns it when they have stopped. Requests during a
//! write go into the next write. After a failure it tries again until it succeeds: meanwhile shards
//! use nothing above the old ceilings (R1, R2), so only time is lost.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use paxoslease_core::{Record, StableConfiguration};
use paxoslease_wire::StableRecord;

use super::Folder;
use super::merged::{Asked, MergedRecord, Write};

/// How many writes failed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures(u32);

impl Failures {
    const PAUSE_MIN: Duration = Duration::from_millis(10);
    const PAUSE_MAX: Duration = Duration::from_secs(1);

    /// One more. Returns whether to log it: often at first, then about once a minute.
    pub(super) const fn count(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        self.0.is_power_of_two() || self.0.is_multiple_of(64)
    }

    pub(super) const fn get(self) -> u32 {
        self.0
    }

    /// How long to wait before the next attempt: longer each time.
    pub(super) fn pause(self) -> Duration {
        let doublings = (self.0 - 1).min(10);
        (Self::PAUSE_MIN * (1 << doublings)).min(Self::PAUSE_MAX)
    }
}

/// Called when a record is durable, with what was asked for, even if a higher one was written.
pub(crate) type OnWritten = Box<dyn Fn(Asked) + Send>;

/// The handle to the thread. Dropping it stops the thread after the write under way.
pub(crate) struct RecordWriter {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<Folder>>,
}

struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    merged: MergedRecord,
    last_error: Option<String>,
    stopped: bool,
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }
}

impl RecordWriter {
    /// Starts the thread, for shards that all began with `start`.
    pub(crate) fn spawn(
        folder: Folder,
        shards: usize,
        start: StableRecord,
        on_written: OnWritten,
    ) -> io::Result<Self> {
        let state =
            State { merged: MergedRecord::new(shards, start), last_error: None, stopped: false };
        let shared = Arc::new(SharedState { state: Mutex::new(state), changed: Condvar::new() });
        let work = Work {
            shared: Arc::clone(&shared),
            folder,
            on_written,
            durable: None,
            covered: None,
            failures: Failures::default(),
        };
        let thread =
            thread::Builder::new().name("paxoslease-disk".to_owned()).spawn(move || work.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A shard asks for a record. It is told when a record at least as high is durable.
    pub(crate) fn ask(&self, shard: usize, record: Record) {
        self.shared.state().merged.ask(shard, record);
        self.shared.changed.notify_one();
    }

    /// The node asks for a configuration or a vote (W1, W2).
    pub(crate) fn ask_configuration(&self, configuration: StableConfiguration) {
        self.shared.state().merged.ask_configuration(configuration);
        self.shared.changed.notify_one();
    }

    /// A function that returns why the last write failed, or `None` if it succeeded. It does not
    /// keep the writer from stopping.
    pub(crate) fn problem(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.state().last_error.clone()
    }

    /// Stops after the write under way, and returns the folder. Shards that still wait get no
    /// answer: they have stopped.
    pub(crate) fn stop(mut self) -> Folder {
        let ended = self.end().expect("only this and dropping end the thread");
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn end(&mut self) -> Option<thread::Result<Folder>> {
        let thread = self.thread.take()?;
        self.shared.state().stopped = true;
        self.shared.changed.notify_one();
        Some(thread.join())
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        // A thread that panicked has reported that itself.
        let _panicked = self.end();
    }
}

struct Work {
    shared: Arc<SharedState>,
    folder: Folder,
    on_written: OnWritten,
    /// The record on disk; `None` if it is unknown, before the first write and after a failed
    /// write.
    durable: Option<StableRecord>,
    /// The ceilings on disk are at least these, whatever a failed write did to them.
    covered: Option<Record>,
    failures: Failures,
}

impl Work {
    fn run(mut self) -> Folder {
        while let Some(Write { record, answers }) = self.next() {
            if let Err(error) = self.write(record) {
                self.failed(&error, &answers);
                continue;
            }
            self.succeeded();
            for asked in answers {
                (self.on_written)(asked);
            }
        }
        self.folder
    }

    /// The next write; `None` to stop.
    fn next(&self) -> Option<Write> {
        let idle = |state: &mut State| !state.stopped && !state.merged.is_asked();
        let state = self.shared.changed.wait_while(self.shared.state(), idle);
        let mut state = state.expect("no thread panics while it holds the lock");
        (!state.stopped).then(|| state.merged.take())
    }

    fn write(&mut self, record: StableRecord) -> io::Result<()> {
        // A shard lowered its ceiling below that of another, or asked for what another has already.
        if self.durable.as_ref() == Some(&record) {
            return Ok(());
        }
        self.durable = None;
        let ceilings = record.ceilings;
        // Until it is known whether the write took effect, only the lower ceilings are certain.
        self.covered = self.covered.map(|covered| Record {
            ballot_ceiling: covered.ballot_ceiling.min(ceilings.ballot_ceiling),
            lease_ceiling: covered.lease_ceiling.min(ceilings.lease_ceiling),
        });
        self.folder.write_record(&record)?;
        (self.durable, self.covered) = (Some(record), Some(ceilings));
        Ok(())
    }

    fn succeeded(&mut self) {
        if std::mem::take(&mut self.failures).get() > 0 {
            tracing::info!("the stable record can be written again");
            self.shared.state().last_error = None;
        }
    }

    /// Keeps the error, and waits before the next attempt, longer each time.
    fn failed(&mut self, error: &io::Error, answers: &[Asked]) {
        if self.failures.count() {
            let failures = self.failures.get();
            tracing::error!(%error, failures, "the stable record cannot be written; will retry");
        }
        let mut state = self.shared.state();
        state.last_error = Some(error.to_string());
        for asked in answers {
            match asked {
                // A shard that asks for what is on disk already need not wait.
                Asked::Ceilings(_, record)
                    if self.covered.is_some_and(|covered| covers(covered, *record)) =>
                {
                    (self.on_written)(*asked);
                }
                _ => state.merged.ask_again(*asked),
            }
        }
        let pause = self.failures.pause();
        drop(self.shared.changed.wait_timeout_while(state, pause, |state| !state.stopped));
    }
}

fn covers(covered: Record, asked: Record) -> bool {
    covered.ballot_ceiling >= asked.ballot_ceiling && covered.lease_ceiling >= asked.lease_ceiling
}
