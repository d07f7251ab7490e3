//! What a caller and the serving thread share about one lease: the request, the answer, the belief.
//!
//! The serving thread writes what happened, the caller reads it from any thread. Whether the lease
//! is held is computed by [`Belief`] alone, from a fresh reading of the clock (T4); the ticket only
//! keeps it. Tickets are reused, so that a request allocates nothing in the long run.

use std::num::NonZeroU8;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use event_listener::Event;
use paxoslease_core::{Belief, Name};

use crate::error::{AcquireError, AskError, ReleaseError};

/// One request for a lease, and the lease that comes of it.
#[derive(Debug)]
pub struct Ticket {
    state: Mutex<State>,
    /// Notified when a lease that was granted changes its state or is renewed.
    pub(crate) changed: Event,
}

/// The contents of a [`Ticket`].
#[derive(Debug)]
pub struct State {
    pub(crate) stage: Stage,
    /// Set by the grant.
    pub(crate) belief: Option<Belief>,
    /// How long the request was queued before it was granted.
    pub(crate) waited: Duration,
    pub(crate) renewals: u64,
    /// The permit that was granted, if the request was for one of a semaphore.
    pub permit: Option<NonZeroU8>,
    /// The serving thread's number for the request, then for the guard.
    pub slot: u64,
    /// The future that waits for an answer.
    waker: Option<Waker>,
}

/// How far a request and its lease have come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The caller waits for a lease.
    Asked,
    /// The caller left before the answer (P8).
    Left,
    /// The lease was not granted.
    Refused(AcquireError),
    /// The lease is held.
    Held,
    /// The lease is held, and its renewal is late.
    Jeopardy,
    /// The lease ended without the caller's doing.
    Lost,
    /// The caller has dropped its belief (P6); the serving thread releases the lease.
    Releasing,
    /// The release is over.
    Released(ReleaseOutcome),
}

/// How the release of a guard ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReleaseOutcome {
    /// A majority confirmed it.
    Confirmed,
    /// The lease had been lost before.
    NotHeld,
    /// No majority confirmed it.
    Unconfirmed(AskError),
}

impl ReleaseOutcome {
    /// The result of a release of this tenure.
    ///
    /// # Errors
    /// Unless a majority confirmed it.
    pub fn into_result(self, name: Name<'_>, fence: u64) -> Result<(), ReleaseError> {
        match self {
            Self::Confirmed => Ok(()),
            Self::NotHeld => Err(ReleaseError::NotHeld { name: name.to_string(), fence }),
            Self::Unconfirmed(error) => Err(ReleaseError::Unconfirmed(error)),
        }
    }
}

impl Default for Ticket {
    fn default() -> Self {
        Self { state: Mutex::new(State::ASKED), changed: Event::new() }
    }
}

impl Ticket {
    /// Locks the contents.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease ended without the caller's doing: first the belief, then the notification.
    pub fn lose(&self) {
        let mut state = self.lock();
        state.drop_belief();
        if state.stage.is_live() {
            state.stage = Stage::Lost;
        }
        drop(state);
        self.changed.notify(usize::MAX);
    }

    /// Moves from one stage to the next and notifies, if the lease is at `from`.
    pub(super) fn advance(&self, from: &Stage, to: Stage) {
        let mut state = self.lock();
        if state.stage != *from {
            return;
        }
        state.stage = to;
        drop(state);
        self.changed.notify(usize::MAX);
    }
}

impl State {
    const ASKED: Self = Self {
        stage: Stage::Asked,
        belief: None,
        waited: Duration::ZERO,
        renewals: 0,
        permit: None,
        slot: u64::MAX,
        waker: None,
    };

    /// The belief of a lease that was granted.
    #[must_use]
    pub const fn belief(&self) -> Option<Belief> {
        self.belief
    }

    /// Sets the answer. Returns the waker of the caller.
    fn answer(&mut self, stage: Stage) -> Option<Waker> {
        self.stage = stage;
        self.waker.take()
    }

    /// Remembers the waker of the caller.
    pub(crate) fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// P6: nothing brings the belief back.
    pub(crate) fn drop_belief(&mut self) {
        if let Some(belief) = &mut self.belief {
            belief.release();
        }
    }
}

impl Stage {
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self, Self::Held | Self::Jeopardy)
    }
}

/// The serving thread's share of a ticket whose caller waits for an answer. When it is dropped
/// without one, the caller is told that the thread has ended: no caller waits for ever.
#[derive(Debug)]
pub struct Caller(Option<Arc<Ticket>>);

impl Caller {
    pub(crate) fn new(ticket: &Arc<Ticket>) -> Self {
        Self(Some(Arc::clone(ticket)))
    }

    /// The ticket.
    #[must_use]
    pub fn ticket(&self) -> &Arc<Ticket> {
        self.0.as_ref().expect("only an answer takes it, and the caller with it")
    }

    /// Whether the caller of an acquire has dropped its future.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.ticket().lock().stage == Stage::Left
    }

    /// The lease was not granted. Returns the waker of the caller.
    #[must_use]
    pub fn refuse(self, error: AcquireError) -> Option<Waker> {
        self.answer(Stage::Refused(error))
    }

    /// The release of the guard is over. Returns the waker of the caller.
    #[must_use]
    pub fn released(self, outcome: ReleaseOutcome) -> Option<Waker> {
        self.answer(Stage::Released(outcome))
    }

    /// The lease was granted, for the guard in `slot`. Returns the ticket and the waker of the
    /// caller; `None` if the caller has left (P8).
    #[must_use]
    pub fn grant(
        mut self,
        belief: Belief,
        slot: u64,
        waited: Duration,
    ) -> Option<(Arc<Ticket>, Option<Waker>)> {
        let ticket = self.0.take()?;
        let mut state = ticket.lock();
        if state.stage != Stage::Asked {
            return None;
        }
        (state.belief, state.slot, state.waited) = (Some(belief), slot, waited);
        let waker = state.answer(Stage::Held);
        drop(state);
        Some((ticket, waker))
    }

    fn answer(mut self, stage: Stage) -> Option<Waker> {
        // The ticket is dropped before the caller wakes, so that it finds the ticket unshared.
        self.0.take()?.lock().answer(stage)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Some(ticket) = self.0.take() else { return };
        let mut state = ticket.lock();
        let waker = match state.stage {
            Stage::Asked => state.answer(Stage::Refused(AskError::Stopped.into())),
            Stage::Releasing => {
                let outcome = ReleaseOutcome::Unconfirmed(AskError::Stopped);
                state.answer(Stage::Released(outcome))
            }
            _ => None,
        };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Tickets that are free for reuse.
#[derive(Debug, Default)]
pub struct TicketPool(Mutex<Vec<Arc<Ticket>>>);

const POOLED_MAX: usize = 4096;

impl TicketPool {
    /// A ticket for a new request.
    pub(crate) fn take(&self) -> Arc<Ticket> {
        let pooled = self.lock().pop();
        // The serving thread may still be about to drop its share of a ticket that it answered.
        let unshared = pooled.filter(|ticket| Arc::strong_count(ticket) == 1);
        let Some(ticket) = unshared else { return Arc::default() };
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
