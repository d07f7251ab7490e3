//! A lease without a guard: it is not renewed, and not released when it is dropped.

use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::{Belief, Instant, Label};

/// A lease without a guard, from [`Acquire::detached`](crate::Acquire::detached) or from a
/// renewal by fence.
///
/// It lasts for its ttl, or as long as it is durable, and no longer. Keep the fence to renew or
/// release the lease, from here or from another process.
#[derive(Clone, Debug)]
pub struct Grant {
    clock: Clock,
    label: Label,
    belief: Belief,
    ttl: Duration,
    waited: Duration,
}

impl Grant {
    /// What a transport makes of a grant. `waited` is how long the request was queued.
    #[must_use]
    pub const fn new(
        clock: Clock,
        label: Label,
        belief: Belief,
        ttl: Duration,
        waited: Duration,
    ) -> Self {
        Self { clock, label, belief, ttl, waited }
    }

    /// The name of the lease: that of the permit, if one of a semaphore was acquired.
    #[must_use]
    pub fn name(&self) -> &str {
        self.label.name().as_str()
    }

    /// The fencing token: greater for every later tenure of the same name, constant in a tenure.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.belief.tenure().fence()
    }

    /// The ttl that was granted, or how long the lease is durable; [`Duration::MAX`] for ever.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long the request was queued, as the node says.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether the lease is held, by a fresh reading of the clock, unless it was released.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.belief.is_held(self.clock.now())
    }

    /// How long the lease lasts unless it is renewed or released; zero once it is over, and
    /// [`Duration::MAX`] for ever.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        remaining(&self.belief, self.clock.now())
    }
}

/// The time left; [`Duration::MAX`] for ever.
pub(crate) fn remaining(belief: &Belief, now: Instant) -> Duration {
    let is_endless = belief.is_held(now) && belief.ends_at() == Instant::MAX;
    if is_endless { Duration::MAX } else { belief.remaining(now) }
}
