//! The writers of a simulated process: what `stable/writer.rs` and `stable/durable_writer.rs` are
//! with threads. The world decides how long a write takes, and whether the process is killed before
//! it is over. The record and the durable leases are written one after the other.

use std::sync::{Arc, Mutex, PoisonError};

use paxoslease_core::{Instant, Record, StableConfiguration};
use paxoslease_wire::StableRecord;

use crate::stable::{Asked, DurableNews, DurableWorker, Folder, HandedOver, MergedRecord, Write};

/// Why the last write failed, for the node's status.
#[derive(Clone, Default)]
pub(super) struct LastError(Arc<Mutex<Option<String>>>);

impl LastError {
    pub(super) fn text(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct Writer {
    folder: Folder,
    merged: MergedRecord,
    under_way: Option<Write>,
    last_error: LastError,
    durable: Option<Durable>,
}

/// The file of durable leases.
struct Durable {
    worker: DurableWorker,
    /// For the next batch.
    handed_over: Vec<HandedOver>,
    is_under_way: bool,
    /// The last write failed.
    is_failing: bool,
}

impl Durable {
    fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.worker.due_at().is_some_and(|at| at <= now);
        self.is_under_way = is_due || self.is_failing || !self.handed_over.is_empty();
        self.handed_over.drain(..).for_each(|handed| self.worker.take(&handed));
        self.is_under_way
    }

    /// Returns whether the write succeeded, if one was under way.
    fn end(&mut self, now: Instant, news: &mut Vec<DurableNews>) -> bool {
        if std::mem::take(&mut self.is_under_way) {
            let written = self.worker.commit(now, &mut |new| news.push(new));
            self.is_failing = written.is_err();
        }
        !self.is_failing
    }
}

/// What the end of a write brings.
#[derive(Default)]
pub(super) struct WriteEnd {
    /// The answers about the record.
    pub(super) answers: Vec<Asked>,
    /// The answers about durable leases.
    pub(super) news: Vec<DurableNews>,
    /// What failed must be repeated.
    pub(super) failed: bool,
}

impl Writer {
    pub(super) fn new(mut folder: Folder, shards: usize, start: StableRecord) -> Self {
        let durable = folder.take_durable().map(|file| Durable {
            worker: DurableWorker::new(file, shards),
            handed_over: Vec::new(),
            is_under_way: false,
            is_failing: false,
        });
        Self {
            folder,
            merged: MergedRecord::new(shards, start),
            under_way: None,
            last_error: LastError::default(),
            durable,
        }
    }

    pub(super) fn last_error(&self) -> LastError {
        self.last_error.clone()
    }

    pub(super) fn ask(&mut self, shard: usize, record: Record) {
        self.merged.ask(shard, record);
    }

    pub(super) fn ask_configuration(&mut self, configuration: StableConfiguration) {
        self.merged.ask_configuration(configuration);
    }

    /// A shard wants something in the file of durable leases.
    pub(super) fn hand_over(&mut self, handed: HandedOver) {
        let durable = self.durable.as_mut().expect("a shard knows whether its node has a disk");
        durable.handed_over.push(handed);
    }

    /// Begins to write, if there is something and nothing is under way.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_busy = self.durable.as_ref().is_some_and(|durable| durable.is_under_way);
        if is_busy || self.under_way.is_some() {
            return false;
        }
        if self.merged.is_asked() {
            self.under_way = Some(self.merged.take());
        }
        let is_durable = self.durable.as_mut().is_some_and(|durable| durable.begin(now));
        is_durable || self.under_way.is_some()
    }

    /// The write is over.
    pub(super) fn end(&mut self, now: Instant) -> WriteEnd {
        let mut ended = WriteEnd::default();
        if let Some(Write { record, answers }) = self.under_way.take() {
            let written = self.folder.write_record(&record);
            let error = written.as_ref().err().map(ToString::to_string);
            *self.last_error.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
            ended.failed = written.is_err();
            if written.is_ok() {
                ended.answers = answers;
            } else {
                answers.into_iter().for_each(|asked| self.merged.ask_again(asked));
            }
        }
        if let Some(durable) = &mut self.durable {
            ended.failed |= !durable.end(now, &mut ended.news);
        }
        ended
    }

    /// Only the snapshot is written from now on.
    pub(super) fn into_folder(self) -> Folder {
        self.folder
    }
}
