//! Wake-ups in order of time, made for the common case: almost every round is armed with the same
//! timeout, so its wake-up belongs at the end of a queue.
//!
//! No single wake-up is removed but by firing or at the head of the queue: whoever is woken checks
//! whether there is still something to do. A late wake-up costs time, never safety.

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

    /// When to wake up next. May be for nothing.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|(at, _)| *at);
        let out_of_order = self.out_of_order.peek().map(|Reverse((at, _))| *at);
        match (in_order, out_of_order) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next key whose time has come.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        let next_at = self.next_at().filter(|at| *at <= now)?;
        if self.in_order.front().is_some_and(|(at, _)| *at == next_at) {
            self.in_order.pop_front().map(|(_, key)| key)
        } else {
            self.out_of_order.pop().map(|Reverse((_, key))| key)
        }
    }

    /// Drops wake-ups that would be for nothing, as far as they are at the head of the queue.
    /// Rounds end about in the order they began, so the queue stays as short as what is in flight.
    pub(crate) fn forget(&mut self, is_stale: impl Fn(K) -> bool) {
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
    fn only_stale_wake_ups_at_the_head_of_the_queue_are_forgotten() {
        let at = Instant::from_nanos;
        let mut timers = Timers::new();
        for key in [1, 2, 3, 4] {
            timers.push(at(key), key);
        }
        timers.push(at(0), 0);
        timers.forget(|key| key != 3);
        assert_eq!((timers.len(), timers.next_at()), (3, Some(at(0))), "0, 3 and 4 are left");
        timers.forget(|_| false);
        let fired: Vec<u64> = core::iter::from_fn(|| timers.pop(at(9))).collect();
        assert_eq!(fired, [0, 3, 4]);
        timers.forget(|_| true);
        timers.push(at(5), 5);
        timers.forget(|_| true);
        assert_eq!((timers.len(), timers.next_at()), (0, None));
    }

    proptest! {
        #[test]
        fn keys_fire_in_order_of_time_and_none_early(
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
