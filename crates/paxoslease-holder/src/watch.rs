//! Hints about leases that begin and end, for watchers.
//!
//! A hint is what one node saw a moment ago: good for showing, never for deciding (paper, section
//! 3: only the holder knows). A watcher that does not keep up misses some hints, and is told how
//! many.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_core::Stream;
use paxoslease_core::{Lasts, LiveLease, Name, Sighting};
use serde::Serialize;

/// The bytes that may be queued for a slow watcher, as if it shared none of them with others. The
/// queue grows as needed: a watcher that keeps up costs next to nothing.
const QUEUED_MAX: usize = 256 << 10;

/// Wakes a watcher to ask how many changes it missed.
const WAKE_UP: Change = Change::Missed(0);

/// A lease as a node saw it: a hint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeaseInfo {
    /// The name.
    pub name: String,
    /// The holder text.
    pub holder: String,
    /// The fence of that tenure. Only its holder may renew or release it.
    pub fence: u64,
    /// How long the lease lasted unless renewed, when it was seen; [`Duration::MAX`] for a standing
    /// lease without an end.
    pub remaining: Duration,
}

impl From<Sighting> for LeaseInfo {
    fn from(seen: Sighting) -> Self {
        Self::new(&seen, seen.lasts())
    }
}

impl From<LiveLease> for LeaseInfo {
    fn from(lease: LiveLease) -> Self {
        Self::new(&lease.seen, lease.lasts())
    }
}

impl LeaseInfo {
    fn new(seen: &Sighting, lasts: Lasts) -> Self {
        Self {
            name: seen.label.name().to_string(),
            holder: seen.label.holder().to_string(),
            fence: seen.tenure.fence(),
            remaining: lasts.as_millis().map_or(Duration::MAX, Duration::from_millis),
        }
    }
}

/// What a watcher is told: a hint.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A lease began.
    Held(LeaseInfo),
    /// A lease was released.
    Freed {
        /// The name that is free.
        name: String,
    },
    /// A lease ran out, a second or two ago, and no holder took the name since. Not every node
    /// reports these.
    Expired {
        /// The name that is free.
        name: String,
        /// The tenure that is over.
        fence: u64,
    },
    /// This many changes were dropped because the watcher did not keep up. Ask for the current
    /// state.
    Missed(u64),
    /// A client's watch began, or began anew after its connection broke, at this endpoint. Changes
    /// in between were not seen: ask for the current state.
    Connected {
        /// The endpoint whose hints follow.
        endpoint: String,
    },
    /// The connection of a client's watch broke, or none could be made. The watch goes on trying,
    /// unless no node trusts this client.
    Disconnected {
        /// What went wrong.
        problem: String,
    },
}

impl Change {
    /// The bytes that a queued change costs at most: itself, its texts, and its place in the queue.
    const fn cost(&self) -> usize {
        let texts = match self {
            Self::Held(LeaseInfo { name, holder, .. }) => name.len() + holder.len(),
            Self::Freed { name } | Self::Expired { name, .. } => name.len(),
            Self::Connected { endpoint: text } | Self::Disconnected { problem: text } => text.len(),
            Self::Missed(_) => 0,
        };
        size_of::<Self>() + 4 * size_of::<usize>() + texts
    }
}

/// The names that a list or a watch may show.
///
/// A name that is hidden must not count either: neither towards the length of a page nor towards
/// what a slow watcher missed. So the filter is applied where names are found, and not afterwards.
#[derive(Clone)]
pub struct Filter(Option<Arc<Shows>>);

type Shows = dyn Fn(&str) -> bool + Send + Sync;

impl Filter {
    /// Shows every name.
    pub const ALL: Self = Self(None);

    /// Shows the names for which `shows` is true. It is called on the shards' threads, so it must
    /// not block.
    pub fn new(shows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(shows)))
    }

    /// Whether the filter shows a name.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|shows| shows(name))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Filter" } else { "Filter::ALL" })
    }
}

/// A stream of [`Change`]s.
#[must_use = "a watch that is dropped sees nothing"]
pub struct Watch {
    changes: Pin<Box<Receiver<Arc<Change>>>>,
    lag: Arc<Lag>,
    /// What has to live as long as the watch.
    _kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("lag", &self.lag).finish_non_exhaustive()
    }
}

impl Watch {
    /// The next change; `None` once the node or client is shut down, or no endpoint trusts the
    /// client, which the last [`Change::Disconnected`] said. Cancel-safe.
    pub async fn next(&mut self) -> Option<Change> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Like [`Self::next`], but blocks this thread.
    pub fn next_blocking(&mut self) -> Option<Change> {
        crate::block_on(self.next())
    }

    fn missed(&self) -> Option<Change> {
        let missed = self.lag.missed.swap(0, Ordering::SeqCst);
        (missed > 0).then_some(Change::Missed(missed))
    }
}

/// The same as [`Watch::next`].
impl Stream for Watch {
    type Item = Change;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change>> {
        loop {
            if let Some(missed) = self.missed() {
                return Poll::Ready(Some(missed));
            }
            let Some(change) = ready!(self.changes.as_mut().poll_next(context)) else {
                return Poll::Ready(None);
            };
            self.lag.queued.fetch_sub(change.cost(), Ordering::Relaxed);
            if *change != WAKE_UP {
                return Poll::Ready(Some(Arc::unwrap_or_clone(change)));
            }
        }
    }
}

/// How far a watcher is behind.
#[derive(Default, Debug)]
struct Lag {
    /// In bytes.
    queued: AtomicUsize,
    missed: AtomicU64,
}

/// The serving thread's end of a watch.
#[derive(Clone, Debug)]
pub struct Subscription {
    prefix: Arc<str>,
    filter: Filter,
    changes: Sender<Arc<Change>>,
    lag: Arc<Lag>,
}

/// A watch of the names that begin with `prefix`, and the end that feeds it. `kept` lives as long
/// as the watch.
pub fn subscribe(
    prefix: &str,
    filter: Filter,
    kept: Option<Arc<dyn Any + Send + Sync>>,
) -> (Subscription, Watch) {
    let prefix = prefix_of(prefix);
    let (sender, receiver) = async_channel::unbounded();
    let lag = Arc::<Lag>::default();
    let watch = Watch { changes: Box::pin(receiver), lag: Arc::clone(&lag), _kept: kept };
    (Subscription { prefix: prefix.into(), filter, changes: sender, lag }, watch)
}

/// The prefix that a pattern means: `jobs/*` is the same as `jobs/`.
#[must_use]
pub fn prefix_of(pattern: &str) -> &str {
    pattern.strip_suffix('*').unwrap_or(pattern)
}

impl Subscription {
    /// The beginning of the names that are watched.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the watcher wants to hear of a name.
    #[must_use]
    pub fn wants(&self, name: Name<'_>) -> bool {
        let name = name.as_str();
        name.starts_with(&*self.prefix) && self.filter.shows(name)
    }

    /// Queues a change, unless the watcher is too far behind. Whether it was queued.
    pub fn offer(&self, change: &Arc<Change>) -> bool {
        let cost = change.cost();
        if self.lag.queued.fetch_add(cost, Ordering::Relaxed) + cost > QUEUED_MAX {
            self.lag.queued.fetch_sub(cost, Ordering::Relaxed);
            self.miss(1);
            return false;
        }
        // A watcher that is gone misses nothing.
        let _gone = self.changes.try_send(Arc::clone(change));
        true
    }

    /// Counts changes that were not queued. The watcher asks for the count before it takes what is
    /// queued; a watcher that took the last of it meanwhile is woken to ask again.
    pub fn miss(&self, count: u64) {
        self.lag.missed.fetch_add(count, Ordering::SeqCst);
        if self.changes.is_empty() {
            self.lag.queued.fetch_add(WAKE_UP.cost(), Ordering::Relaxed);
            let _gone = self.changes.try_send(Arc::new(WAKE_UP));
        }
    }

    /// Whether the watch still exists.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.changes.is_closed()
    }

    /// Waits until the watch is dropped.
    pub async fn closed(&self) {
        self.changes.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn freed(name: &str) -> Arc<Change> {
        Arc::new(Change::Freed { name: name.to_owned() })
    }

    #[test]
    fn a_slow_watcher_is_told_how_much_it_missed() {
        for name in ["a/b".to_owned(), "a".repeat(Name::LEN_MAX)] {
            let (subscription, mut watch) = subscribe("a", Filter::ALL, None);
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
    fn a_hidden_name_does_not_count_as_missed() {
        let filter = Filter::new(|name| name.starts_with("jobs/"));
        let (subscription, mut watch) = subscribe("", filter, None);
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
    fn a_watcher_that_caught_up_is_told_what_it_missed() {
        let (subscription, mut watch) = subscribe("", Filter::ALL, None);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = Box::pin(watch.next());
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
        subscription.miss(1);
        let told = Poll::Ready(Some(Change::Missed(1)));
        assert_eq!(waiting.as_mut().poll(&mut context), told);
        drop(waiting);
        assert_eq!(pin!(watch.next()).poll(&mut context), Poll::Pending, "once");
        assert_eq!(watch.lag.queued.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_watchers_share_one_change() {
        let watchers: Vec<_> = (0..100).map(|_| subscribe("", Filter::ALL, None)).collect();
        let change = freed("a");
        assert!(watchers.iter().all(|(subscription, _)| subscription.offer(&change)));
        assert_eq!(Arc::strong_count(&change), 1 + watchers.len());
    }
}
