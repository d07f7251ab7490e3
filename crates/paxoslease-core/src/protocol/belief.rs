//! The one place that decides whether a holder holds its lease (paper, section 3: only the proposer
//! which has the lease knows it).
//!
//! The answer is computed from the clock on every question (T4); there is no flag to clear. A
//! belief begins only with a grant (P7).

use core::time::Duration;

use crate::rules::{Rule, Rules};
use crate::{Instant, Tenure};

/// A holder's belief in one tenure, on the holder's own clock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Belief {
    tenure: Tenure,
    ends_at: Instant,
    released: bool,
    rules: Rules,
}

impl Belief {
    /// The tenure was granted to this holder; `ends_at` as [`crate::Drift`] computes it.
    #[must_use]
    pub const fn granted(tenure: Tenure, ends_at: Instant) -> Self {
        Self { tenure, ends_at, released: false, rules: Rules::ALL }
    }

    /// Only for mutants: the same belief, which may lack a rule (`rules.rs`).
    #[must_use]
    pub const fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// A renewal of `tenure` succeeded (P5). It never shortens the belief, and changes nothing for
    /// another tenure or after the release (P6).
    pub fn renewed(&mut self, tenure: Tenure, ends_at: Instant) {
        if tenure != self.tenure {
            return;
        }
        if self.released {
            if self.rules.on(Rule::ReleasedTenureIsNeverUsed) {
                return;
            }
            self.released = false;
        }
        self.ends_at = self.ends_at.max(ends_at);
    }

    /// K10: the holder is about to set another end. Call this *before* that request is sent.
    pub fn limit(&mut self, ends_at: Instant) {
        self.ends_at = self.ends_at.min(ends_at);
    }

    /// P6: drops the belief for good. Call this *before* the release is sent.
    pub fn release(&mut self) {
        if self.rules.on(Rule::ReleaseDropsBeliefFirst) {
            self.released = true;
        }
    }

    /// Whether the lease is held. Only the fence protects against a pause after this answer (T5).
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        !self.released && now < self.ends_at
    }

    /// Whether the holder has released the lease.
    #[must_use]
    pub const fn is_released(&self) -> bool {
        self.released
    }

    /// The time left; zero once the belief is over.
    #[must_use]
    pub fn remaining(&self, now: Instant) -> Duration {
        if self.is_held(now) { self.ends_at.since(now) } else { Duration::ZERO }
    }

    /// The tenure; its number is the fence.
    #[must_use]
    pub const fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// When the belief ends unless it is renewed.
    #[must_use]
    pub const fn ends_at(&self) -> Instant {
        self.ends_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure(fence: u64) -> Tenure {
        Tenure::from_fence(fence << 10 | 1).expect("a tenure")
    }
    const fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_belief_ends_by_the_clock_alone() {
        let belief = Belief::granted(tenure(1), at(10));
        assert!(belief.is_held(at(9)));
        assert!(!belief.is_held(at(10)));
        assert_eq!(belief.remaining(at(4)), Duration::from_nanos(6));
        assert_eq!(belief.remaining(at(40)), Duration::ZERO);
    }

    #[test]
    fn a_renewal_never_shortens_a_belief() {
        let mut belief = Belief::granted(tenure(1), at(10));
        belief.renewed(tenure(1), at(5));
        assert!(belief.is_held(at(9)));
        belief.renewed(tenure(1), at(20));
        assert!(belief.is_held(at(19)));
    }

    #[test]
    fn a_renewal_of_another_tenure_means_nothing() {
        let mut belief = Belief::granted(tenure(1), at(10));
        belief.renewed(tenure(2), at(20));
        assert!(!belief.is_held(at(10)));
    }

    #[test]
    fn a_released_tenure_is_never_held_again() {
        let mut belief = Belief::granted(tenure(1), at(10));
        belief.release();
        assert!(!belief.is_held(at(0)));
        belief.renewed(tenure(1), at(20));
        assert!(!belief.is_held(at(0)));
    }
}
