//! Hints about leases that come and go, for those who want to look on.
//!
//! A hint is what one node saw a moment ago: good for showing, never for deciding (paper,
//! section 3: only the holder knows). A watcher that does not keep up misses some, and is told
//! how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use paxoslease_core::Name;
use serde::Serialize;

use crate::front::Filter;

/// How much may wait for a slow watcher, in bytes, as if it shared none of it with others. Room is
/// made as it is needed: one that keeps up costs next to nothing.
const QUEUED_MAX: usize = 256 << 10;

/// Wakes a watcher to ask how much it missed.
const LOOK_AGAIN: Change = Change::Missed(0);

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

impl Change {
    /// What one that waits costs at most, in bytes: itself, its texts, and its place in the queue.
    const fn cost(&self) -> usize {
        let texts = match self {
            Self::Held(Sighting { name, holder, .. }) => name.len() + holder.len(),
            Self::Freed { name } | Self::Expired { name, .. } => name.len(),
            Self::Missed(_) => 0,
        };
        size_of::<Self>() + 4 * size_of::<usize>() + texts
    }
}

/// A stream of [`Change`]s, from [`crate::Node::watch`].
#[derive(Debug)]
#[must_use = "a watch that is dropped sees nothing"]
pub struct Watch {
    changes: Receiver<Arc<Change>>,
    lag: Arc<Lag>,
}

impl Watch {
    /// The next change; `None` once the node is shut down. Cancel-safe.
    pub async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(missed) = self.missed() {
                return Some(missed);
            }
            let change = self.changes.recv().await.ok()?;
            self.lag.queued.fetch_sub(change.cost(), Ordering::Relaxed);
            if *change != LOOK_AGAIN {
                return Some(Arc::unwrap_or_clone(change));
            }
        }
    }

    /// As [`Self::next`], blocking this thread.
    pub fn next_blocking(&mut self) -> Option<Change> {
        crate::blocking::block_on(self.next())
    }

    fn missed(&self) -> Option<Change> {
        let missed = self.lag.missed.swap(0, Ordering::SeqCst);
        (missed > 0).then_some(Change::Missed(missed))
    }
}

/// How far a watcher is behind.
#[derive(Default, Debug)]
struct Lag {
    /// In bytes.
    queued: AtomicUsize,
    missed: AtomicU64,
}

/// A shard's end of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    prefix: Arc<str>,
    filter: Filter,
    changes: Sender<Arc<Change>>,
    lag: Arc<Lag>,
}

pub(crate) fn subscribe(prefix: &str, filter: Filter) -> (Subscription, Watch) {
    let (sender, receiver) = async_channel::unbounded();
    let lag = Arc::<Lag>::default();
    let watch = Watch { changes: receiver, lag: Arc::clone(&lag) };
    (Subscription { prefix: prefix.into(), filter, changes: sender, lag }, watch)
}

impl Subscription {
    pub(crate) fn wants(&self, name: Name<'_>) -> bool {
        let name = name.as_str();
        name.starts_with(&*self.prefix) && self.filter.shows(name)
    }

    /// Tells of a change, unless the watcher is too far behind. Whether it was told.
    pub(crate) fn offer(&self, change: &Arc<Change>) -> bool {
        let cost = change.cost();
        if self.lag.queued.fetch_add(cost, Ordering::Relaxed) + cost > QUEUED_MAX {
            self.lag.queued.fetch_sub(cost, Ordering::Relaxed);
            self.miss();
            return false;
        }
        // One that is gone misses nothing.
        let _gone = self.changes.try_send(Arc::clone(change));
        true
    }

    /// Counts a change that was not told. The watcher asks for the count before it takes what waits
    /// for it; one that took the last of it meanwhile is woken to ask again.
    fn miss(&self) {
        self.lag.missed.fetch_add(1, Ordering::SeqCst);
        if self.changes.is_empty() {
            self.lag.queued.fetch_add(LOOK_AGAIN.cost(), Ordering::Relaxed);
            let _gone = self.changes.try_send(Arc::new(LOOK_AGAIN));
        }
    }

    /// Whether anybody still watches.
    pub(crate) fn is_open(&self) -> bool {
        !self.changes.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn freed(name: &str) -> Arc<Change> {
        Arc::new(Change::Freed { name: name.to_owned() })
    }

    #[test]
    fn a_slow_watcher_is_told_how_much_it_missed() {
        for name in ["a/b".to_owned(), "a".repeat(Name::LEN_MAX)] {
            let (subscription, mut watch) = subscribe("a", Filter::ALL);
            assert!(subscription.wants(Name::new(&name).expect("a name")));
            let change = freed(&name);
            let told = (0..).take_while(|_| subscription.offer(&change)).count();
            assert_eq!(told, QUEUED_MAX / change.cost(), "bytes count, not messages");
            assert!(told * name.len() <= QUEUED_MAX);
            assert!(!subscription.offer(&change));
            assert_eq!(watch.next_blocking(), Some(Change::Missed(2)));
            for _ in 0..told {
                assert_eq!(watch.next_blocking(), Some(Change::clone(&change)));
            }
            assert!(subscription.offer(&change), "there is room again");
            drop(watch);
            assert!(!subscription.is_open());
        }
    }

    #[test]
    fn what_a_watcher_may_not_see_is_not_missed_either() {
        let filter = Filter::new(|name| name.starts_with("jobs/"));
        let (subscription, mut watch) = subscribe("", filter);
        let announce = |text: &str| {
            let is_wanted = subscription.wants(Name::new(text).expect("a name"));
            is_wanted && subscription.offer(&freed(text))
        };
        let hidden = "secret".repeat(80);
        assert!((0..QUEUED_MAX / hidden.len()).all(|_| !announce(&hidden)));
        assert!(announce("jobs/a"));
        assert_eq!(watch.next_blocking(), Some(Change::Freed { name: "jobs/a".to_owned() }));
    }

    #[test]
    fn a_watcher_that_caught_up_meanwhile_is_told_what_it_missed() {
        let (subscription, mut watch) = subscribe("", Filter::ALL);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = Box::pin(watch.next());
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
        subscription.miss();
        let told = Poll::Ready(Some(Change::Missed(1)));
        assert_eq!(waiting.as_mut().poll(&mut context), told);
        drop(waiting);
        assert_eq!(watch.lag.queued.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_change_is_shared_by_all_who_watch() {
        let watchers: Vec<_> = (0..100).map(|_| subscribe("", Filter::ALL)).collect();
        let change = freed("a");
        assert!(watchers.iter().all(|(subscription, _)| subscription.offer(&change)));
        assert_eq!(Arc::strong_count(&change), 1 + watchers.len());
    }
}
