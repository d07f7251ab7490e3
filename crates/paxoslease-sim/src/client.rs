//! One client: what it asked, what it believes, and what it does next.
//!
//! Beliefs are the core's own [`Belief`] and [`Drift::remote_belief_ends_at`] (T2), on the
//! client's own clock. With [`Habits`] a client acts by itself; without, a script moves it.

use std::time::Duration;

use paxoslease_core::{Belief, Instant, Tenure, Token};

use crate::clock::Clock;
use crate::rng::Rng;
use crate::trace::TrueTime;

/// How a client lives that acts by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    /// The shortest and the longest ttl it asks for.
    pub ttl: (Duration, Duration),
    /// How long it wants to hold a lease, at least and at most.
    pub hold: (Duration, Duration),
    /// How long it does something else, at least and at most.
    pub think: (Duration, Duration),
    /// How long it waits for another holder.
    pub wait: Duration,
    /// After this long without an answer, beyond its `wait`, it turns to another node.
    pub patience: Duration,
    /// How many renewals in a thousand go through another node.
    pub wander_permille: u32,
    /// How many acquires in a thousand it does not live to see answered.
    pub vanish_permille: u32,
    /// How many leases in a thousand it lets lapse instead of releasing them.
    pub lapse_permille: u32,
    /// How many answers in a thousand it is slow to act on.
    pub slow_permille: u32,
    /// How slow at most.
    pub slow_max: Duration,
    /// Renews even after its lease lapsed, asks everything twice, and sometimes for too much.
    pub naive: bool,
}

impl Habits {
    /// Does nothing wrong and is quick about it.
    #[must_use]
    pub const fn calm(ttl: Duration) -> Self {
        Self {
            ttl: (ttl, ttl),
            hold: (Duration::from_millis(1), Duration::from_millis(10)),
            think: (Duration::from_millis(1), Duration::from_millis(10)),
            wait: Duration::from_secs(60),
            patience: Duration::from_secs(5),
            wander_permille: 0,
            vanish_permille: 0,
            lapse_permille: 0,
            slow_permille: 0,
            slow_max: Duration::ZERO,
            naive: false,
        }
    }
}

/// What a request was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Acquire,
    Renew,
    Release,
}

/// A request whose answer still counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) token: Token,
    pub(crate) asked: Asked,
    pub(crate) node: u16,
    /// T2: noted before it was sent.
    pub(crate) sent_at: Instant,
    pub(crate) sent_at_true: TrueTime,
}

/// What a client is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Idle,
    Acquiring,
    Holding,
    Releasing,
    Gone,
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) clock: Clock,
    pub(crate) name: usize,
    pub(crate) node: u16,
    pub(crate) asked_count: u32,
    pub(crate) pending: Vec<Pending>,
    pub(crate) belief: Option<Belief>,
    pub(crate) state: State,
    pub(crate) habits: Option<Habits>,
    /// The ttl of the lease it has or wants.
    pub(crate) ttl: Duration,
    pub(crate) hold_until: Instant,
    /// When its next wake-up is due; others are stale.
    pub(crate) wake_at: TrueTime,
    pub(crate) grants: u64,
    pub(crate) answers: u64,
}

/// How many answers a client can be waiting for.
const PENDING_MAX: usize = 8;

impl Client {
    pub(crate) fn new(clock: Clock, name: usize, habits: Option<Habits>) -> Self {
        Self {
            clock,
            name,
            node: 1,
            asked_count: 0,
            pending: Vec::new(),
            belief: None,
            state: State::Idle,
            habits,
            ttl: Duration::ZERO,
            hold_until: Instant::ZERO,
            wake_at: TrueTime(u64::MAX),
            grants: 0,
            answers: 0,
        }
    }

    pub(crate) fn note(&mut self, pending: Pending) {
        if self.pending.len() == PENDING_MAX {
            self.pending.remove(0);
        }
        self.pending.push(pending);
    }

    /// The request an answer is for, if it still counts.
    pub(crate) fn take(&mut self, token: Token) -> Option<Pending> {
        let place = self.pending.iter().position(|pending| pending.token == token)?;
        Some(self.pending.remove(place))
    }

    /// The tenure it was granted last, if it may still ask about it.
    pub(crate) fn tenure(&self) -> Option<Tenure> {
        self.belief.as_ref().map(Belief::tenure)
    }

    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.belief.as_ref().is_some_and(|belief| belief.is_held(now))
    }
}

pub(crate) fn span(rng: &mut Rng, (min, max): (Duration, Duration)) -> Duration {
    Duration::from_nanos(rng.between(min.as_nanos() as u64, max.as_nanos() as u64))
}
