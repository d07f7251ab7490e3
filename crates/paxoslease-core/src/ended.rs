//! The tenures that an acceptor must not store any more, beside those that promises rule out (A8).
//!
//! A Release may arrive before the message that would store its tenure: they come from different
//! nodes. Only such tenures are here, so an ordinary acquire and release cost nothing.

use alloc::collections::{BTreeSet, VecDeque};

use crate::{Instant, Tenure};

/// The most tenures that are remembered; beyond that, the oldest is forgotten.
const ENDED_MAX: usize = 1 << 12;

/// A tenure that is over. The hash of its name is part of it: clients make tenures up, and a client
/// that may release one name must not end the tenures of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct EndedTenure {
    pub(crate) tenure: Tenure,
    pub(crate) name_hash: u32,
}

#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ended {
    /// Until when each is remembered, the oldest first.
    by_age: VecDeque<(Instant, EndedTenure)>,
    tenures: BTreeSet<EndedTenure>,
}

impl Ended {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    pub(crate) fn contains(&self, ended: EndedTenure) -> bool {
        self.tenures.contains(&ended)
    }

    /// Remembers a tenure. A repeated Release changes nothing.
    #[cold]
    pub(crate) fn insert(&mut self, now: Instant, until: Instant, ended: EndedTenure) {
        self.forget_old(now);
        if !self.tenures.insert(ended) {
            return;
        }
        self.by_age.push_back((until, ended));
        if self.by_age.len() > ENDED_MAX {
            self.forget_oldest();
        }
    }

    /// Forgets the tenures whose time is over.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        while self.by_age.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, oldest)) = self.by_age.pop_front() {
            self.tenures.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ballot, NodeId};
    use core::time::Duration;

    fn ended(counter: u64, name_hash: u32) -> EndedTenure {
        let ballot = Ballot::new(counter, NodeId::new(1).expect("an id"));
        EndedTenure { tenure: Tenure::of(ballot).expect("a node's ballot"), name_hash }
    }

    #[test]
    fn beyond_the_bound_the_oldest_is_forgotten() {
        let now = Instant::ZERO;
        let until = now.after(Duration::from_secs(60));
        let mut memory = Ended::default();
        let count = ENDED_MAX as u64 + 1;
        for counter in 1..=count {
            // A repetition takes no room.
            memory.insert(now, until, ended(counter, 7));
            memory.insert(now, until, ended(counter, 7));
        }
        assert!(!memory.contains(ended(1, 7)));
        assert!((2..=count).all(|counter| memory.contains(ended(counter, 7))));
        assert!(!memory.contains(ended(2, 8)), "the tenure of another name");
        memory.forget_old(until);
        assert!(memory.is_empty() && memory.tenures.is_empty());
    }
}
