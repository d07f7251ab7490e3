//! Work in steps, so that no request stops the thread of a shard: ARCHITECTURE.md has the rule.
//!
//! A step is about 4 ns of work, such as a byte that a pattern is compared with. Scripts, patterns
//! and lists count their steps. The steps of a turn are shared by all clients of the shard. Work
//! that finds them used up waits for the next turn. Requests for leases are not counted, because
//! each of them takes little.

/// The steps of one turn, and the most that one evaluation of a script takes: about a millisecond.
pub(super) const STEPS_PER_TURN: usize = 1 << 18;

/// The steps that the clients of one shard have used in this turn.
#[derive(Default)]
pub(super) struct TurnSteps {
    used: usize,
}

impl TurnSteps {
    /// A new turn begins. Returns the steps of the last one.
    pub(super) fn begin(&mut self) -> usize {
        std::mem::take(&mut self.used)
    }

    pub(super) fn spend(&mut self, steps: usize) {
        self.used += steps;
    }

    /// Whether further work has to wait for the next turn.
    pub(super) fn are_spent(&self) -> bool {
        self.used >= STEPS_PER_TURN
    }

    /// Whether messages have used up their half. The rest of the turn is for requests.
    pub(super) fn are_half_spent(&self) -> bool {
        self.used >= STEPS_PER_TURN / 2
    }
}
