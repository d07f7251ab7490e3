//! The identity of a shard's protocol state, for checkers that explore many: two shards with the
//! same digest behave alike from then on.
//!
//! Counters for metrics, memory layout and stale wake-ups are left out. So is the delay of
//! reclaiming: released names may be reclaimed at any time, and a checker's two sweeps in a row
//! reclaim all of them. Sets of acceptors are hashed under a permutation of the acceptors, so that
//! a checker can treat states as equal that differ only in which acceptor is which.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::ended::Ended;
use crate::first_release::FirstReleases;
use crate::protocol::acceptor::Acceptor;
use crate::protocol::proposer::Proposer;
use crate::queueing::contender::Contenders;
use crate::storage::Slot;
use crate::{Ballot, Holder, Instant, Label, MemberSet, Name, Round, Shard, Tenure};

/// Which differences between shards a checker sees.
#[derive(Clone, Copy, Debug)]
pub struct Lens<'a> {
    /// A permutation: the new place of each acceptor of the cell.
    pub places: &'a [u8],
    /// Whether the node is ever asked to propose. If not, its proposer is left out.
    pub proposes: bool,
    /// Whether any node waits for a hint. If not, queues of nodes are left out.
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
    /// Forgets which tenures it must not store (A8), and who released them (A9). For safety,
    /// refusing a Propose or a Heal is the same as losing it. So the shard can then do all that it
    /// could do before, and is in fewer states.
    pub fn forget_ended(&mut self) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.ended = Ended::default();
            acceptor.first_releases = FirstReleases::new(0);
        }
    }

    /// The remembered releases: tenure, acceptors that confirmed, and whether callers are answered.
    #[must_use]
    pub fn releases(&self) -> Vec<(Tenure, MemberSet, bool)> {
        self.proposer.releases()
    }

    /// The changes of registers in flight (K6), and whether each stores its value already.
    #[must_use]
    pub fn changes(&self) -> Vec<(Ballot, bool)> {
        self.proposer.changes.phases()
    }

    /// The requests that wait for the disk.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Begins a check of a register (K5, K7) at any node, also one that does not store it. A member
    /// begins one by itself when a register is due.
    pub fn check(&mut self, now: Instant, name: Name<'_>) {
        let label = Label::new(name, Holder::NONE);
        self.with_proposer(now, |proposer, env| proposer.check(env, now, label));
    }

    /// Hashes the protocol state.
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
        (self.quarantine_until(), self.has_forgotten()).hash(hasher);
        let table = self.table();
        for slot in (0..table.slot_count()).map(Slot::new) {
            if let Some(entry) = table.get(slot) {
                (&entry.label, entry.register, table.is_marked(slot)).hash(hasher);
                table.is_dated(slot).hash(hasher);
            }
        }
        self.registers.digest(|set| lens.place(set), lens.proposes, hasher);
        self.ended.hash(hasher);
        self.first_releases.sorted().hash(hasher);
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
        self.changes.digest(|set| lens.place(set), hasher);
        self.contenders.digest(hasher);
    }
}

impl Round {
    /// The same round with every set of acceptors mapped by `place`.
    fn placed(&self, place: impl Fn(MemberSet) -> MemberSet) -> Self {
        let mut placed = self.clone();
        for set in [&mut placed.open, &mut placed.accepted, &mut placed.refused] {
            *set = place(*set);
        }
        for report in &mut placed.reports {
            report.member = place(report.member);
        }
        placed.reports.sort_unstable_by_key(|report| report.member);
        placed
    }
}

impl Contenders {
    fn digest(&self, hasher: &mut impl Hasher) {
        for (_, contender) in self.iter() {
            contender.hash(hasher);
        }
    }
}
