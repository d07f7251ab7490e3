//! A lease somebody holds: renewed by itself, given back when dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Label, Tenure};
use pollster::block_on;

use crate::client::Shared;
use crate::command::{Command, Release};
use crate::error::{AskError, ReleaseError};
use crate::ticket::{Stage, Ticket};

/// How a lease stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and renewed in time.
    Held,
    /// Held, but two thirds of the ttl passed without a renewal: a good moment to wind up, or not
    /// to begin anything long.
    Jeopardy,
    /// Not held any more. It will not come back; a new acquire begins a new tenure with a higher
    /// fence.
    Lost,
}

/// A lease that is held, from [`crate::Client::acquire`].
///
/// It renews itself in the background until it is dropped, released or lost. Dropping it gives the
/// lease back in the background; [`Self::release`] does so and waits for the confirmation.
///
/// [`Self::is_held`] is computed from the clock every time. What happens *after* it answered is
/// covered by nothing: a process may be paused between the question and the deed. Where that
/// matters, pass [`Self::fence`] along and let the resource refuse lower ones.
#[must_use = "a lease that is dropped is given back at once"]
pub struct LeaseGuard {
    shared: Arc<Shared>,
    ticket: Arc<Ticket>,
    label: Label,
    tenure: Tenure,
    ttl: Duration,
}

impl LeaseGuard {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        ticket: Arc<Ticket>,
        label: Label,
        tenure: Tenure,
        ttl: Duration,
    ) -> Self {
        Self { shared, ticket, label, tenure, ttl }
    }

    /// What is held.
    #[must_use]
    pub fn name(&self) -> &str {
        self.label.name().as_str()
    }

    /// Who is shown as the holder.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.label.holder().as_str()
    }

    /// The fencing token: greater for every later tenure of the same name, the same for this one.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.tenure.fence()
    }

    /// The ttl it was asked for, and is renewed with.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether the lease is held, by a fresh reading of the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long it is held still if no renewal succeeds; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.look().0
    }

    /// How it stands, by a fresh reading of the clock.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        match self.look() {
            (Duration::ZERO, _) => LeaseState::Lost,
            (_, true) => LeaseState::Jeopardy,
            (_, false) => LeaseState::Held,
        }
    }

    /// How long it is held still, and whether its renewal is late. Whoever once saw it over never
    /// sees it held again, also if a renewal was on its way.
    fn look(&self) -> (Duration, bool) {
        let mut state = self.ticket.lock();
        // Read after the lock was taken: waiting for it must not count as held.
        let now = self.shared.clock.now();
        if !state.belief.is_held(now) {
            state.belief.release();
        }
        (state.belief.remaining(now), state.stage == Stage::Jeopardy)
    }

    /// Waits until the lease stands otherwise than `than`, and says how. Cancel-safe.
    ///
    /// ```no_run
    /// # async fn example(lease: paxoslease_client::LeaseGuard) {
    /// use paxoslease_client::LeaseState;
    /// let mut state = lease.state();
    /// while state != LeaseState::Lost {
    ///     state = lease.state_other(state).await;
    ///     println!("now {state:?}");
    /// }
    /// # }
    /// ```
    pub async fn state_other(&self, than: LeaseState) -> LeaseState {
        loop {
            let changed = self.ticket.changed.listen();
            let state = self.state();
            if state != than {
                return state;
            }
            changed.await;
        }
    }

    /// How often it was renewed so far.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.ticket.lock().renewals
    }

    /// Waits until the lease was renewed more often than `than`, or is lost, and says how often.
    /// For those who hand on until when it is held. Cancel-safe.
    pub async fn renewals_other(&self, than: u64) -> u64 {
        loop {
            let changed = self.ticket.changed.listen();
            let renewals = self.renewals();
            if renewals != than || !self.is_held() {
                return renewals;
            }
            changed.await;
        }
    }

    /// Waits until the lease is lost, and returns *before* it can be anybody else's, as long as
    /// this process runs when it should. Cancel-safe. Take it as the signal to stop; ask
    /// [`Self::is_held`] before anything that must not happen twice.
    pub async fn lost(&self) {
        let mut state = LeaseState::Held;
        while state != LeaseState::Lost {
            state = self.state_other(state).await;
        }
    }

    /// As [`Self::lost`], blocking this thread.
    pub fn lost_blocking(&self) {
        block_on(self.lost());
    }

    /// Gives the lease back and waits until a majority confirmed, so that the next acquire of
    /// anybody finds it free. From the first poll on it is not held any more; dropping the future
    /// does not undo that.
    ///
    /// # Errors
    /// When it had been lost before, or nobody confirmed in time. It is not held in any case.
    pub async fn release(self) -> Result<(), ReleaseError> {
        if !self.drop_belief() {
            let name = self.name().to_owned();
            return Err(ReleaseError::NotHeld { name, fence: self.fence() });
        }
        let (reply, answer) = oneshot::channel();
        self.give_back(Some(reply));
        answer.await.unwrap_or(Err(ReleaseError::Unconfirmed(AskError::Stopped)))
    }

    /// As [`Self::release`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::release`].
    pub fn release_blocking(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }

    /// P6: the belief goes first; nothing brings it back. Says whether the cell is to be told.
    fn drop_belief(&self) -> bool {
        let mut state = self.ticket.lock();
        state.belief.release();
        let live = state.stage.is_live();
        if live {
            state.stage = Stage::Released;
        }
        live
    }

    fn give_back(&self, reply: Option<oneshot::Sender<Result<(), ReleaseError>>>) {
        let release =
            Release { name: self.label.name().as_str().into(), tenure: self.tenure, reply };
        // A client that was shut down has given its leases back, or they run out.
        let _stopped = self.shared.post(Command::GiveBack(Arc::clone(&self.ticket), release));
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if self.drop_belief() {
            self.give_back(None);
        }
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, fence, state) = (self.name(), self.fence(), self.state());
        write!(f, "LeaseGuard({name:?}, fence {fence}, {state:?})")
    }
}
