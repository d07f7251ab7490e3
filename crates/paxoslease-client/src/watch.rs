//! Hints about leases that come and go, for those who want to look on.
//!
//! A hint is what one node saw a moment ago: good for showing, never for deciding (paper,
//! section 3: only the holder knows). A watch has a connection of its own, so that a storm of
//! changes delays no renewal; one that does not keep up misses some, and is told how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender, TrySendError};

use crate::client::Client;

/// How many changes wait for a slow watcher.
const QUEUED_MAX: usize = 1024;

/// A lease somebody was seen to hold: a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// What is held.
    pub name: String,
    /// Who holds it, in the holder's own words.
    pub holder: String,
    /// The fence of that tenure. For looking: only a tenure that was granted to you is yours to
    /// renew or release (P7).
    pub fence: u64,
    /// How long still unless it is renewed, when it was seen.
    pub remaining: Duration,
}

/// Something a watcher may want to know: a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A lease began.
    Held(Sighting),
    /// A lease was given back.
    Freed {
        /// What is free.
        name: String,
    },
    /// A lease ran out. Not every node reports these.
    Expired {
        /// What is free.
        name: String,
        /// The tenure that is over.
        fence: u64,
    },
    /// This many changes were dropped because somebody did not keep up; look with
    /// [`crate::Client::get`] or [`crate::Client::list`].
    Missed(u64),
    /// The watch began, or began anew after its connection broke, at this endpoint. What happened
    /// in between was not seen: look.
    Connected {
        /// Whose hints follow.
        endpoint: String,
    },
    /// The connection broke, or none could be made; the watch goes on trying, unless nobody trusts
    /// this client.
    Disconnected {
        /// What went wrong.
        problem: String,
    },
}

/// A stream of [`Change`]s, from [`crate::Client::watch`].
#[derive(Debug)]
#[must_use = "a watch that is dropped sees nothing"]
pub struct Watch {
    changes: Receiver<Change>,
    missed: Arc<AtomicU64>,
    /// A client goes on as long as somebody watches.
    _client: Client,
}

impl Watch {
    /// The next change; `None` once the client is shut down, or no endpoint trusts it, which the
    /// last [`Change::Disconnected`] said. Cancel-safe.
    pub async fn next(&mut self) -> Option<Change> {
        if let Some(missed) = self.missed() {
            return Some(missed);
        }
        self.changes.recv().await.ok()
    }

    /// As [`Self::next`], blocking this thread.
    pub fn next_blocking(&mut self) -> Option<Change> {
        pollster::block_on(self.next())
    }

    fn missed(&self) -> Option<Change> {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        (missed > 0).then_some(Change::Missed(missed))
    }
}

/// The client's end of a watch.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) prefix: String,
    changes: Sender<Change>,
    missed: Arc<AtomicU64>,
}

pub(crate) fn subscribe(client: Client, prefix: &str) -> (Subscription, Watch) {
    let (sender, receiver) = async_channel::bounded(QUEUED_MAX);
    let missed = Arc::new(AtomicU64::new(0));
    let watch = Watch { changes: receiver, missed: Arc::clone(&missed), _client: client };
    (Subscription { prefix: prefix.to_owned(), changes: sender, missed }, watch)
}

impl Subscription {
    pub(crate) fn offer(&self, change: Change) {
        let lost = match change {
            Change::Missed(count) => Some(count),
            change => {
                matches!(self.changes.try_send(change), Err(TrySendError::Full(_))).then_some(1)
            }
        };
        if let Some(count) = lost {
            self.missed.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Resolves when nobody watches any more.
    pub(crate) async fn closed(&self) {
        self.changes.closed().await;
    }
}
