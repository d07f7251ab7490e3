//! A lease that was granted and is left to the caller: nobody renews it, nobody gives it back.

use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::{Belief, Ttl};

/// A lease without a guard, from [`crate::Acquire::detached`] and [`crate::Client::renew`].
///
/// It lasts for its ttl and no longer. Keep the fence to renew or release it, from here or from
/// another process.
#[derive(Clone, Debug)]
pub struct Grant {
    pub(crate) clock: Clock,
    pub(crate) belief: Belief,
    pub(crate) ttl: Ttl,
    pub(crate) waited: Duration,
}

impl Grant {
    /// The fencing token: greater for every later tenure of the same name, the same for this one.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.belief.tenure().fence()
    }

    /// The ttl it was granted for.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl.as_duration()
    }

    /// How long it was waited for, as the server says.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether the lease is held, by a fresh reading of the clock, unless it was released.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.belief.is_held(self.clock.now())
    }

    /// How long it lasts still unless it is renewed or released; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.belief.remaining(self.clock.now())
    }
}
