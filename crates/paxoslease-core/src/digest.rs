//! The identity of a shard's protocol state, for checkers that explore many: two shards with the
//! same digest behave alike from here on.
//!
//! Counters for metrics, memory layout and stale wake-ups do not count, nor does how soon released
//! names are forgotten: that is allowed at any time, and two sweeps without a pause between them,
//! which is how a checker reclaims, forget all of them anyway. Sets of acceptors are
//! written as a permutation of the acceptors sees them, so that a checker can treat states that
//! differ only in which acceptor is which as one.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::protocol::acceptor::Acceptor;
use crate::protocol::proposer::Proposer;
use crate::queueing::contender::Contenders;
use crate::storage::Slot;
use crate::{MemberSet, Round, Shard, Tenure};

/// What of a shard a checker tells apart.
#[derive(Clone, Copy, Debug)]
pub struct Lens<'a> {
    /// Where each acceptor of the cell goes: a permutation of places.
    pub places: &'a [u8],
    /// Whether the node is ever asked to propose. If not, what only a proposer uses is nothing.
    pub proposes: bool,
    /// Whether hints matter: whether anybody waits for one.
    pub hints: bool,
}

impl Lens<'_> {
    fn place(&self, set: MemberSet) -> MemberSet {
        let places = self.places.iter().enumerate().filter(|(from, _)| set.has_place(*from));
        places
            .fold(MemberSet::EMPTY, |set, (_, to)| set.with(MemberSet::at_place(usize::from(*to))))
    }
}

impl Shard {
    /// The releases that are remembered: their tenures, the acceptors that confirmed, and whether
    /// the callers are answered.
    #[must_use]
    pub fn releases(&self) -> Vec<(Tenure, MemberSet, bool)> {
        self.proposer.releases()
    }

    /// Writes the protocol state to a hasher.
    pub fn digest(&self, lens: Lens<'_>, hasher: &mut impl Hasher) {
        if let Some(acceptor) = &self.acceptor {
            acceptor.digest(lens, hasher);
        }
        if lens.proposes {
            self.proposer.digest(lens, hasher);
        }
        self.ceilings.hash(hasher);
        self.deferred.hash(hasher);
    }
}

impl Acceptor {
    fn digest(&self, lens: Lens<'_>, hasher: &mut impl Hasher) {
        self.floor().hash(hasher);
        self.quarantine_until().hash(hasher);
        let table = self.table();
        for slot in (0..table.slot_count()).map(Slot::new) {
            if let Some(entry) = table.get(slot) {
                (&entry.label, entry.register, table.is_marked(slot)).hash(hasher);
            }
        }
        if lens.hints {
            self.turns.hash(hasher);
        }
        self.sweep_state().hash(hasher);
    }
}

impl Proposer {
    fn digest(&self, lens: Lens<'_>, hasher: &mut impl Hasher) {
        self.counter().hash(hasher);
        let mut rounds: Vec<&Round> = self.rounds().collect();
        rounds.sort_unstable_by_key(|round| round.ballot);
        for round in rounds {
            round.placed(|set| lens.place(set)).hash(hasher);
        }
        self.owners_digest(hasher);
        self.releases_digest(|set| lens.place(set), hasher);
        self.contenders.digest(hasher);
    }
}

impl Contenders {
    fn digest(&self, hasher: &mut impl Hasher) {
        for (_, contender) in self.iter() {
            contender.hash(hasher);
        }
    }
}
