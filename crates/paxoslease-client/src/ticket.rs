//! What a guard and the client's thread share about one lease.
//!
//! The thread writes what happened, the guard reads it from any thread. Whether the lease is held
//! is computed by [`Belief`] alone, from a fresh reading of the clock (T4); here is only where it
//! is kept.

use std::sync::{Mutex, MutexGuard, PoisonError};

use event_listener::Event;
use paxoslease_core::Belief;

#[derive(Debug)]
pub(crate) struct Ticket {
    state: Mutex<State>,
    /// Rings when the lease changes its state or was renewed.
    pub(crate) changed: Event,
    /// The thread's number for the guard.
    pub(crate) slot: usize,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) belief: Belief,
    pub(crate) renewals: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Held,
    /// The renewal is late.
    Jeopardy,
    /// The lease is over, and not by the holder's wish.
    Lost,
    /// The holder gave it up (P6).
    Released,
}

impl Stage {
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::Held | Self::Jeopardy)
    }
}

impl Ticket {
    pub(crate) const fn new(belief: Belief, slot: usize) -> Self {
        let state = Mutex::new(State { stage: Stage::Held, belief, renewals: 0 });
        Self { state, changed: Event::new(), slot }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves on if the lease is at `from`, and tells people.
    pub(crate) fn pass(&self, from: Stage, to: Stage) {
        let mut state = self.lock();
        if state.stage != from {
            return;
        }
        state.stage = to;
        drop(state);
        self.changed.notify(usize::MAX);
    }

    /// A lease is over that was not given up: the belief goes first, then people are told.
    pub(crate) fn lose(&self) {
        let mut state = self.lock();
        state.belief.release();
        if state.stage.is_live() {
            state.stage = Stage::Lost;
        }
        drop(state);
        self.changed.notify(usize::MAX);
    }
}
