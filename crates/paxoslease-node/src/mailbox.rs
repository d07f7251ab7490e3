//! The way from any thread into a shard's thread: a queue that is emptied at a stroke, and a bell
//! that rings only when the shard sleeps.
//!
//! The queue has no bound of its own: it is emptied in every turn of the shard, which refuses what
//! is over its limits, so it holds what others could say in the time of one turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Wakes a shard that blocks.
pub(crate) type Bell = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Mailbox<T> {
    queue: Mutex<Queue<T>>,
    /// Whether there may be items, for a shard that spins.
    filled: AtomicBool,
    sleeping: AtomicBool,
    bell: Bell,
}

struct Queue<T> {
    items: Vec<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub(crate) fn new(bell: Bell) -> Self {
        let queue = Mutex::new(Queue { items: Vec::new(), closed: false });
        Self { queue, filled: AtomicBool::new(false), sleeping: AtomicBool::new(false), bell }
    }

    /// Puts an item in; gives it back when the shard is gone.
    pub(crate) fn post(&self, item: T) -> Result<(), T> {
        {
            let mut queue = self.lock();
            if queue.closed {
                return Err(item);
            }
            queue.items.push(item);
            self.filled.store(true, Ordering::Release);
        }
        // Paired with `fall_asleep`: either the shard sees the item, or we see that it sleeps.
        if self.sleeping.swap(false, Ordering::SeqCst) {
            (self.bell)();
        }
        Ok(())
    }

    /// Takes everything, in the order it came. `into` is empty and lends its memory.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        let mut queue = self.lock();
        self.filled.store(false, Ordering::Release);
        std::mem::swap(&mut queue.items, into);
    }

    /// Whether there may be something to take.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Announces that the shard is about to block. `false` when there is something to do first.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.lock().items.is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    /// The shard is back, for whatever reason: the bell need not ring.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Accepts nothing more, and gives back what was left.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut queue = self.lock();
        queue.closed = true;
        std::mem::take(&mut queue.items)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    fn with_bell() -> (Mailbox<u32>, Arc<AtomicU32>) {
        let rings = Arc::new(AtomicU32::new(0));
        let bell = Arc::clone(&rings);
        let ring = move || {
            bell.fetch_add(1, Ordering::Relaxed);
        };
        (Mailbox::new(Box::new(ring)), rings)
    }

    #[test]
    fn the_bell_rings_once_and_only_for_a_sleeper() {
        let (mailbox, rings) = with_bell();
        assert_eq!(mailbox.post(1), Ok(()));
        assert!(!mailbox.fall_asleep(), "there is something to do");
        let mut items = Vec::new();
        mailbox.take(&mut items);
        assert_eq!((items.as_slice(), rings.load(Ordering::Relaxed)), (&[1][..], 0));
        items.clear();
        assert!(mailbox.fall_asleep());
        assert_eq!((mailbox.post(2), mailbox.post(3)), (Ok(()), Ok(())));
        assert_eq!(rings.load(Ordering::Relaxed), 1);
        mailbox.take(&mut items);
        assert_eq!(items, [2, 3]);
    }

    #[test]
    fn a_closed_mailbox_gives_everything_back() {
        let (mailbox, _) = with_bell();
        assert_eq!(mailbox.post(1), Ok(()));
        assert_eq!(mailbox.close(), [1]);
        assert_eq!(mailbox.post(2), Err(2));
    }
}
