//! The ballot counter of a shard: what it learns from peers, and how far it may go (A1, R5).

use crate::{Ballot, BallotProblem, NodeId, Refusal, Shard};

impl Shard {
    /// Learns the counter that every frame from a peer carries. This saves Rejects.
    ///
    /// # Errors
    /// When it is more than a minute above [`Self::counter_bound`]; then nothing was changed.
    pub fn observe_counter(&mut self, counter: u64) -> Result<(), Refusal> {
        if counter > self.proposer.counter_refused_above() {
            self.drops[Refusal::BallotExhausting as usize] += 1;
            return Err(Refusal::BallotExhausting);
        }
        self.proposer.observe(counter);
        self.request_write();
        Ok(())
    }

    /// R5: the counter that was observed last is the highest that a peer knows. `remembers` is
    /// false for a peer in quarantine, which may have lost a higher one.
    pub fn heard_counter(&mut self, from: NodeId, remembers: bool) {
        if remembers && from != self.config.node {
            self.proposer.heard_counter(from);
        }
    }

    /// The highest counter issued or learnt, for the next frame.
    #[must_use]
    pub const fn counter(&self) -> u64 {
        self.proposer.counter()
    }

    /// A1: no counter above this is issued, and none within a minute of it is learnt. At first it
    /// is half-way from the first counter of this shard to [`Ballot::COUNTER_LIMIT`].
    #[must_use]
    pub const fn counter_bound(&self) -> u64 {
        self.proposer.counter_bound()
    }

    /// A1: sets the bound on counters. It must not depend on messages from peers, or peers could
    /// use up the counters step by step. It should grow about as fast as the wall clock of R5.
    pub fn set_counter_bound(&mut self, bound: u64) {
        self.proposer.set_counter_bound(bound);
    }

    /// Why no round can begin now; `None` if one can.
    #[must_use]
    pub const fn ballot_problem(&self) -> Option<BallotProblem> {
        let next = self.counter() + 1;
        if next > Ballot::COUNTER_LIMIT {
            Some(BallotProblem::Exhausted)
        } else if next > self.counter_bound() {
            Some(BallotProblem::AtBound)
        } else if !self.ceilings.has_room_for(next) {
            Some(BallotProblem::RecordBehind)
        } else {
            None
        }
    }
}
