//! What a caller and its shard share about one lease: the question, the answer, the belief.
//!
//! The shard writes what happened, the caller reads it from any thread. Whether the lease is held
//! is computed by [`Belief`] alone, from a fresh reading of the clock (T4); here is only where it
//! is kept. Tickets are used again, so that asking allocates nothing in the long run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use event_listener::Event;
use paxoslease_core::Belief;

use crate::error::{AcquireError, ReleaseError};

#[derive(Debug)]
pub(crate) struct Ticket {
    state: Mutex<State>,
    /// Rings when a lease that was granted changes its state.
    pub(crate) changed: Event,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    /// From the grant on.
    pub(crate) belief: Option<Belief>,
    /// The shard's number for the request, then for the guard.
    pub(crate) slot: u32,
    /// The one future that waits for an answer.
    pub(crate) waker: Option<Waker>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The caller waits for a lease.
    Asked,
    /// The caller left before there was an answer (P8).
    Left,
    /// There is no lease.
    Refused(AcquireError),
    /// There is a lease.
    Held,
    /// There is a lease, and its renewal is late.
    Jeopardy,
    /// The lease is over, and not by the caller's wish.
    Lost,
    /// The caller gave it up (P6); the shard is told.
    Releasing,
    /// The caller gave it up, and this came of it.
    Released(Result<(), ReleaseError>),
}

impl Ticket {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::ASKED), changed: Event::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the answer and wakes whoever waits for it.
    pub(crate) fn settle(&self, stage: Stage) {
        let waker = self.lock().answer(stage);
        waker.into_iter().for_each(Waker::wake);
    }

    /// A lease is over that was not given up: the belief goes first, then people are told.
    pub(crate) fn lose(&self) {
        let mut state = self.lock();
        if let Some(belief) = &mut state.belief {
            belief.release();
        }
        if matches!(state.stage, Stage::Held | Stage::Jeopardy) {
            state.stage = Stage::Lost;
        }
        drop(state);
        self.changed.notify(usize::MAX);
    }
}

impl State {
    const ASKED: Self = Self { stage: Stage::Asked, belief: None, slot: u32::MAX, waker: None };

    /// Leaves the answer; whoever waits is to be woken.
    #[must_use]
    pub(crate) fn answer(&mut self, stage: Stage) -> Option<Waker> {
        self.stage = stage;
        self.waker.take()
    }

    /// Remembers whom to wake.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

/// Tickets nobody uses just now.
#[derive(Debug, Default)]
pub(crate) struct TicketPool(Mutex<Vec<Arc<Ticket>>>);

const POOLED_MAX: usize = 4096;

impl TicketPool {
    pub(crate) fn take(&self) -> Arc<Ticket> {
        let pooled = self.lock().pop();
        // The shard may still be about to drop its share of a ticket it answered.
        let unshared = pooled.filter(|ticket| Arc::strong_count(ticket) == 1);
        let Some(ticket) = unshared else { return Arc::new(Ticket::new()) };
        *ticket.lock() = State::ASKED;
        ticket
    }

    pub(crate) fn put(&self, ticket: Arc<Ticket>) {
        let mut pooled = self.lock();
        if pooled.len() < POOLED_MAX {
            pooled.push(ticket);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Ticket>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
