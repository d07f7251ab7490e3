//! Wake-ups in order of time, made for the common case: almost every round has the same timeout,
//! so its wake-up belongs at the end of a queue.
//!
//! A wake-up cannot be cancelled. It fires, or it is dropped at the head of the queue, and its
//! receiver checks whether it is still due. A late wake-up costs time, never safety.

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

use crate::Instant;

/// Wake-ups for keys of type `K`.
#[derive(Clone, Debug)]
pub(crate) struct Timers<K: Ord> {
    in_order: VecDeque<(Instant, K)>,
    out_of_order: BinaryHeap<Reverse<(Instant, K)>>,
}

impl<K: Ord + Copy> Timers<K> {
    pub(crate) const fn new() -> Self {
        Self { in_order: VecDeque::new(), out_of_order: BinaryHeap::new() }
    }

    pub(crate) fn push(&mut self, at: Instant, key: K) {
        match self.in_order.back() {
            Some((last, _)) if at < *last => self.out_of_order.push(Reverse((at, key))),
            _ => self.in_order.push_back((at, key)),
        }
    }

    /// When the next wake-up fires; [`Instant::MAX`] if there is none. It may be stale.
    pub(crate) fn next_at(&self) -> Instant {
        let in_order = self.in_order.front().map_or(Instant::MAX, |(at, _)| *at);
        let out_of_order = self.out_of_order.peek().map_or(Instant::MAX, |Reverse((at, _))| *at);
        in_order.min(out_of_order)
    }

    /// The next key that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        let next_at = self.next_at();
        if now < next_at {
            return None;
        }
        if self.in_order.front().is_some_and(|(at, _)| *at == next_at) {
            self.in_order.pop_front().map(|(_, key)| key)
        } else {
            self.out_of_order.pop().map(|Reverse((_, key))| key)
        }
    }

    /// Drops stale wake-ups at the head of the queue. Rounds end about in the order in which they
    /// began, so the queue stays about as long as the number of rounds in flight.
    pub(crate) fn drop_stale(&mut self, is_stale: impl Fn(K) -> bool) {
        while let Some((_, key)) = self.in_order.front()
            && is_stale(*key)
        {
            self.in_order.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }

    pub(crate) fn clear(&mut self) {
        self.in_order.clear();
        self.out_of_order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn only_stale_wake_ups_at_the_head_are_dropped() {
        let at = Instant::from_nanos;
        let mut timers = Timers::new();
        for key in [1, 2, 3, 4] {
            timers.push(at(key), key);
        }
        timers.push(at(0), 0);
        timers.drop_stale(|key| key != 3);
        assert_eq!((timers.len(), timers.next_at()), (3, at(0)), "0, 3 and 4 are left");
        timers.drop_stale(|_| false);
        let fired: Vec<u64> = core::iter::from_fn(|| timers.pop(at(9))).collect();
        assert_eq!(fired, [0, 3, 4]);
        timers.drop_stale(|_| true);
        timers.push(at(5), 5);
        timers.drop_stale(|_| true);
        assert_eq!((timers.len(), timers.next_at()), (0, Instant::MAX));
    }

    proptest! {
        #[test]
        fn keys_fire_in_order_of_time_and_never_early(
            ats in proptest::collection::vec(0u64..50, 0..60),
        ) {
            let mut timers = Timers::new();
            for (key, at) in ats.iter().enumerate() {
                timers.push(Instant::from_nanos(*at), key);
            }
            prop_assert_eq!(timers.len(), ats.len());
            let mut fired = Vec::new();
            for now in 0..50 {
                while let Some(key) = timers.pop(Instant::from_nanos(now)) {
                    prop_assert!(ats[key] == now, "{} fired at {now}", ats[key]);
                    fired.push(key);
                }
            }
            fired.sort_unstable();
            prop_assert_eq!(fired, (0..ats.len()).collect::<Vec<_>>());
        }
    }
}
