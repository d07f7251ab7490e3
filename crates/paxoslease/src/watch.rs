//! Hints about leases that come and go, for those who want to look on.
//!
//! A hint is what one node saw a moment ago: good for showing, never for deciding (paper,
//! section 3: only the holder knows). A watcher that does not keep up misses some, and is told
//! how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender, TrySendError};
use paxoslease_core::Name;
use serde::Serialize;

/// How many changes wait for a slow watcher.
const QUEUED_MAX: usize = 1024;

/// A lease somebody was seen to hold: a hint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sighting {
    /// What is held.
    pub name: String,
    /// Who holds it, in the holder's own words.
    pub holder: String,
    /// The fence of that tenure.
    pub fence: u64,
    /// How long still unless it is renewed, when it was seen.
    pub remaining: Duration,
}

impl From<paxoslease_core::Sighting> for Sighting {
    fn from(seen: paxoslease_core::Sighting) -> Self {
        Self {
            name: seen.label.name().to_string(),
            holder: seen.label.holder().to_string(),
            fence: seen.tenure.fence(),
            remaining: seen.remaining.as_duration(),
        }
    }
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
    /// A lease ran out, a second or two ago, and nobody took the name since.
    Expired {
        /// What is free.
        name: String,
        /// The tenure that is over.
        fence: u64,
    },
    /// This many changes were dropped because the watcher did not keep up.
    Missed(u64),
}

/// A stream of [`Change`]s, from [`crate::Node::watch`].
#[derive(Debug)]
#[must_use = "a watch that is dropped sees nothing"]
pub struct Watch {
    changes: Receiver<Change>,
    missed: Arc<AtomicU64>,
}

impl Watch {
    /// The next change; `None` once the node is shut down. Cancel-safe.
    pub async fn next(&mut self) -> Option<Change> {
        if let Some(missed) = self.missed() {
            return Some(missed);
        }
        self.changes.recv().await.ok()
    }

    /// As [`Self::next`], blocking this thread.
    pub fn next_blocking(&mut self) -> Option<Change> {
        crate::blocking::block_on(self.next())
    }

    fn missed(&self) -> Option<Change> {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        (missed > 0).then_some(Change::Missed(missed))
    }
}

/// A shard's end of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    prefix: Arc<str>,
    changes: Sender<Change>,
    missed: Arc<AtomicU64>,
}

pub(crate) fn subscribe(prefix: &str) -> (Subscription, Watch) {
    let (sender, receiver) = async_channel::bounded(QUEUED_MAX);
    let missed = Arc::new(AtomicU64::new(0));
    let watch = Watch { changes: receiver, missed: Arc::clone(&missed) };
    (Subscription { prefix: prefix.into(), changes: sender, missed }, watch)
}

impl Subscription {
    pub(crate) fn wants(&self, name: Name<'_>) -> bool {
        name.as_bytes().starts_with(self.prefix.as_bytes())
    }

    pub(crate) fn offer(&self, change: Change) {
        if let Err(TrySendError::Full(_)) = self.changes.try_send(change) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether anybody still watches.
    pub(crate) fn is_open(&self) -> bool {
        !self.changes.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paxoslease_core::{Holder, Label};

    #[test]
    fn a_slow_watcher_is_told_how_much_it_missed() {
        let (subscription, mut watch) = subscribe("a");
        let label = Label::new(Name::new("a/b").expect("a name"), Holder::NONE);
        assert!(subscription.wants(label.name()));
        for _ in 0..QUEUED_MAX + 3 {
            subscription.offer(Change::Freed { name: label.name().to_string() });
        }
        assert_eq!(watch.next_blocking(), Some(Change::Missed(3)));
        for _ in 0..QUEUED_MAX {
            assert_eq!(watch.next_blocking(), Some(Change::Freed { name: "a/b".into() }));
        }
        drop(watch);
        assert!(!subscription.is_open());
    }
}
