//! A simulated host's record writer: what `stable/writer.rs` is with a thread and a real disk.
//! Writes take time, a crash may come between, and a disk that fails is tried again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paxoslease_core::Record;

use crate::stable::{Folder, MergedRecord};

/// How long until a write that failed is tried again.
pub(crate) const RETRY: Duration = Duration::from_millis(100);

/// Why the last write failed, for the node's status.
pub(crate) type LastError = Arc<Mutex<Option<String>>>;

pub(crate) struct Writer {
    folder: Folder,
    merged: MergedRecord,
    /// Which shards wait for an answer.
    waiting: Vec<bool>,
    /// What is being written, and whom to answer then.
    under_way: Option<(Record, Vec<(usize, Record)>)>,
    last_error: LastError,
}

impl Writer {
    pub(crate) fn new(folder: Folder, shards: usize, start: Record) -> Self {
        Self {
            folder,
            merged: MergedRecord::new(shards, start),
            waiting: vec![false; shards],
            under_way: None,
            last_error: LastError::default(),
        }
    }

    pub(crate) fn last_error(&self) -> LastError {
        Arc::clone(&self.last_error)
    }

    pub(crate) fn ask(&mut self, shard: usize, record: Record) {
        self.merged.ask(shard, record);
        self.waiting[shard] = true;
    }

    /// Begins to write, if there is something and nothing is under way.
    pub(crate) fn begin(&mut self) -> bool {
        if self.under_way.is_some() || !self.waiting.contains(&true) {
            return false;
        }
        let waiting = (0..self.waiting.len()).filter(|shard| self.waiting[*shard]);
        let answers = waiting.map(|shard| (shard, self.merged.of(shard))).collect();
        self.waiting.fill(false);
        self.under_way = Some((self.merged.merged(), answers));
        true
    }

    /// The write is over. Says whom to answer; nobody when it failed.
    pub(crate) fn end(&mut self) -> Option<Vec<(usize, Record)>> {
        let (record, answers) = self.under_way.take()?;
        let written = self.folder.write_record(record);
        let error = written.as_ref().err().map(ToString::to_string);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        if written.is_ok() {
            return Some(answers);
        }
        for (shard, _) in answers {
            self.waiting[shard] = true;
        }
        None
    }

    /// Nothing more is written but the snapshot.
    pub(crate) fn into_folder(self) -> Folder {
        self.folder
    }
}
