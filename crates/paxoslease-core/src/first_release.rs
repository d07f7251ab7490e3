//! Which Release of a tenure an acceptor received first (A9).
//!
//! Several nodes may release one tenure at the same time. They agree about which of them ended it
//! by what the acceptors remember. Every Release of a stored tenure is remembered here for a while,
//! at a place that follows from the tenure, so an ordinary release costs one store.

use alloc::vec::Vec;

use crate::{NodeId, Tenure};

/// Tenures with the same counter, or counters that differ by a multiple of the number of buckets.
/// The last come first.
type Bucket = [Option<FirstRelease>; 4];

const BUCKETS_MIN: usize = 1 << 2;
/// Beyond that, the oldest release of a bucket is forgotten: 256 KiB in all.
const BUCKETS_MAX: usize = 1 << 12;

/// Names a Release. A node uses no number twice: it draws the first of them at random, and counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReleaseId(u64);

impl ReleaseId {
    /// In an answer: this acceptor may have forgotten which Release ended the tenure. No node has
    /// the id 0.
    pub(crate) const FORGOTTEN: Self = Self(0);

    pub(crate) const fn new(number: u64, node: NodeId) -> Self {
        Self(number << 10 | node.get() as u64)
    }

    /// From a number.
    #[must_use]
    pub const fn from_u64(number: u64) -> Self {
        Self(number)
    }

    /// As a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct FirstRelease {
    tenure: Tenure,
    id: ReleaseId,
}

#[derive(Clone, Debug)]
pub(crate) struct FirstReleases {
    buckets: Vec<Bucket>,
    /// The highest counter of a tenure whose Release may have been forgotten.
    forgotten: u64,
}

impl FirstReleases {
    /// Nothing is known of tenures up to this counter.
    pub(crate) const fn new(forgotten: u64) -> Self {
        Self { buckets: Vec::new(), forgotten }
    }

    fn bucket(&self, tenure: Tenure) -> usize {
        // The number of buckets is a power of two.
        tenure.ballot().counter() as usize & self.buckets.len().wrapping_sub(1)
    }

    /// The Release that ended a tenure here; `None` if none did.
    pub(crate) fn get(&self, tenure: Tenure) -> Option<ReleaseId> {
        let bucket = self.buckets.get(self.bucket(tenure));
        let first = bucket.into_iter().flatten().flatten().find(|first| first.tenure == tenure);
        let is_forgotten = tenure.ballot().counter() <= self.forgotten;
        first.map(|first| first.id).or(is_forgotten.then_some(ReleaseId::FORGOTTEN))
    }

    /// Remembers the first Release of a tenure.
    pub(crate) fn insert(&mut self, tenure: Tenure, id: ReleaseId) {
        let place = self.bucket(tenure);
        let is_full = self.buckets.len() == BUCKETS_MAX;
        match self.buckets.get_mut(place) {
            Some(bucket) if bucket[3].is_none() || is_full => {
                if let Some(oldest) = bucket[3] {
                    self.forgotten = self.forgotten.max(oldest.tenure.ballot().counter());
                }
                bucket.copy_within(..3, 1);
                bucket[0] = Some(FirstRelease { tenure, id });
            }
            _ => {
                self.grow();
                self.insert(tenure, id);
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.buckets.len() * 2).max(BUCKETS_MIN);
        let before = core::mem::replace(&mut self.buckets, alloc::vec![Bucket::default(); len]);
        for first in before.into_iter().flat_map(|bucket| bucket.into_iter().rev()).flatten() {
            let bucket = self.bucket(first.tenure);
            self.buckets[bucket].copy_within(..3, 1);
            self.buckets[bucket][0] = Some(first);
        }
    }

    /// What is remembered, in the order of tenures.
    #[cfg(feature = "digest")]
    pub(crate) fn sorted(&self) -> Vec<(Tenure, ReleaseId)> {
        let mut sorted: Vec<_> =
            self.buckets.iter().flatten().flatten().map(|it| (it.tenure, it.id)).collect();
        sorted.sort_unstable();
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ballot;

    fn tenure(counter: u64, node: u16) -> Tenure {
        let node = NodeId::new(node).expect("an id");
        Tenure::of(Ballot::new(counter, node)).expect("a node's ballot")
    }

    #[test]
    fn the_last_releases_are_remembered() {
        let mut memory = FirstReleases::new(0);
        assert_eq!(memory.get(tenure(1, 1)), None);
        // Three nodes use the same counters.
        let count = BUCKETS_MAX as u64;
        for (counter, node) in (1..=2 * count).flat_map(|it| [(it, 1), (it, 2), (it, 3)]) {
            memory.insert(tenure(counter, node), ReleaseId(counter << 10 | u64::from(node)));
        }
        assert_eq!(memory.get(tenure(1, 1)), Some(ReleaseId::FORGOTTEN));
        for (counter, node) in (count + 1..=2 * count).flat_map(|it| [(it, 1), (it, 2), (it, 3)]) {
            let id = ReleaseId(counter << 10 | u64::from(node));
            assert_eq!(memory.get(tenure(counter, node)), Some(id));
        }
        assert_eq!(memory.get(tenure(2 * count, 4)), None, "the tenure of another node");
        assert_eq!(memory.buckets.len(), BUCKETS_MAX);
    }

    #[test]
    fn what_was_remembered_before_a_restart_is_not_known() {
        let memory = FirstReleases::new(7);
        assert_eq!(memory.get(tenure(7, 1)), Some(ReleaseId::FORGOTTEN));
        assert_eq!(memory.get(tenure(8, 1)), None);
    }
}
