//! The record writer of a simulated process: what `stable/writer.rs` is with a thread. The world
//! decides how long a write takes, and whether the process is killed before it is over.

use std::sync::{Arc, Mutex, PoisonError};

use paxoslease_core::{Record, StableConfiguration};
use paxoslease_wire::StableRecord;

use crate::stable::{Asked, Folder, MergedRecord, Write};

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
}

impl Writer {
    pub(super) fn new(folder: Folder, shards: usize, start: StableRecord) -> Self {
        Self {
            folder,
            merged: MergedRecord::new(shards, start),
            under_way: None,
            last_error: LastError::default(),
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

    /// Begins to write, if there is something and nothing is under way.
    pub(super) fn begin(&mut self) -> bool {
        let begins = self.under_way.is_none() && self.merged.is_asked();
        if begins {
            self.under_way = Some(self.merged.take());
        }
        begins
    }

    /// The write is over. Returns the answers to give; `None` when it failed and must be repeated.
    pub(super) fn end(&mut self) -> Option<Vec<Asked>> {
        let Write { record, answers } = self.under_way.take()?;
        let written = self.folder.write_record(&record);
        let error = written.as_ref().err().map(ToString::to_string);
        *self.last_error.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
        if written.is_ok() {
            return Some(answers);
        }
        for asked in answers {
            self.merged.ask_again(asked);
        }
        None
    }

    /// Only the snapshot is written from now on.
    pub(super) fn into_folder(self) -> Folder {
        self.folder
    }
}
