//! One client: its requests, its belief, and its next action.
//!
//! Beliefs are the core's own [`Belief`] and [`Drift::remote_belief_ends_at`] (T2), on the client's
//! clock. A client with [`Habits`] acts by itself; a client without acts only when a script says
//! so.

use std::time::Duration;

use paxoslease_core::{Belief, Instant, Tenure, Token};

use crate::algorithm::Command;
use crate::clock::Clock;
use crate::trace::TrueTime;

/// The behaviour of a client that acts by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Habits {
    /// The range of its ttls.
    pub ttl: (Duration, Duration),
    /// The range of the time for which it holds a lease.
    pub hold: (Duration, Duration),
    /// The range of the time between a release and the next acquire.
    pub think: (Duration, Duration),
    /// How long it waits while another client holds the lease.
    pub wait: Duration,
    /// How long it waits for an answer, beyond `wait`, before it turns to another node.
    pub patience: Duration,
    /// How many renewals in a thousand go through another node.
    pub wander_permille: u32,
    /// How many acquires in a thousand it abandons before their answer.
    pub vanish_permille: u32,
    /// How many leases in a thousand it lets expire instead of releasing them.
    pub lapse_permille: u32,
    /// How many acquires in a thousand are for durable leases, and how many renewals set the end of
    /// the lease instead (K8). After the first, all do (K10).
    pub durable_permille: u32,
    /// How many answers in a thousand it acts on late.
    pub slow_permille: u32,
    /// How late at most.
    pub slow_max: Duration,
    /// A careless client: it renews after the end of its lease, sends every request twice, and
    /// sometimes asks for too long a ttl.
    pub naive: bool,
}

impl Habits {
    /// Makes no mistakes and acts at once.
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
            durable_permille: 0,
            slow_permille: 0,
            slow_max: Duration::ZERO,
            naive: false,
        }
    }
}

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) token: Token,
    pub(crate) command: Command,
    pub(crate) node: u16,
    /// Read before the request was sent (T2).
    pub(crate) sent_at: Instant,
    pub(crate) sent_at_true: TrueTime,
    /// The highest fence that any client was told of before.
    pub(crate) fence_before: u64,
}

impl Pending {
    pub(crate) const fn is_acquire(&self) -> bool {
        matches!(self.command, Command::Acquire { .. } | Command::AcquireDurable { .. })
    }
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
    /// The ttl of the lease that it holds or acquires.
    pub(crate) ttl: Duration,
    pub(crate) hold_until: Instant,
    /// Whether it asked to keep the lease that was granted to it last, and whether that is
    /// unanswered.
    pub(crate) stands: bool,
    pub(crate) is_standing: bool,
    /// When its next wake-up is due. Wake-ups at other times are stale.
    pub(crate) wake_at: TrueTime,
    pub(crate) grants: u64,
    pub(crate) answers: u64,
}

/// The most requests that wait for an answer.
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
            stands: false,
            is_standing: false,
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

    /// The request to which an answer belongs, if it still waits for one.
    pub(crate) fn take(&mut self, token: Token) -> Option<Pending> {
        let place = self.pending.iter().position(|pending| pending.token == token)?;
        Some(self.pending.remove(place))
    }

    /// The last tenure granted to the client.
    pub(crate) fn tenure(&self) -> Option<Tenure> {
        self.belief.as_ref().map(Belief::tenure)
    }

    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.belief.as_ref().is_some_and(|belief| belief.is_held(now))
    }
}
