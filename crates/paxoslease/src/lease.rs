//! A lease somebody holds: renewed by itself, given back when dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use paxoslease_core::Label;

use crate::blocking::block_on;
use crate::command::Command;
use crate::error::ReleaseError;
use crate::node::Shared;
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

/// A lease that is held, from [`crate::Node::acquire`].
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
    fence: u64,
    ttl: Duration,
}

impl LeaseGuard {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        ticket: Arc<Ticket>,
        label: Label,
        fence: u64,
        ttl: Duration,
    ) -> Self {
        Self { shared, ticket, label, fence, ttl }
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
        self.fence
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
        let late = state.stage == Stage::Jeopardy;
        let Some(belief) = &mut state.belief else { return (Duration::ZERO, late) };
        if !belief.is_held(now) {
            belief.release();
        }
        (belief.remaining(now), late)
    }

    /// Waits until the lease stands otherwise than `than`, and says how. Cancel-safe.
    ///
    /// ```no_run
    /// # async fn example(lease: paxoslease::LeaseGuard) {
    /// use paxoslease::LeaseState;
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
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let released = Releasing { guard: &mut self, asked: false }.await;
        self.recycle();
        released
    }

    /// As [`Self::release`], blocking this thread.
    ///
    /// # Errors
    /// As for [`Self::release`].
    pub fn release_blocking(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }

    /// P6: the belief goes first; nothing brings it back. Says whether the shard is to be told.
    fn drop_belief(&self) -> bool {
        let mut state = self.ticket.lock();
        if let Some(belief) = &mut state.belief {
            belief.release();
        }
        let live = matches!(state.stage, Stage::Held | Stage::Jeopardy);
        if live {
            state.stage = Stage::Releasing;
        }
        live
    }

    fn tell_shard(&self) -> Result<(), ReleaseError> {
        let command = Command::Release { ticket: Arc::clone(&self.ticket) };
        let posted = self.shared.post(self.label.name(), command);
        posted.map_err(|_| ReleaseError::Stopped)
    }

    /// Leaves the ticket for the next acquire.
    fn recycle(mut self) {
        let ticket = std::mem::replace(&mut self.ticket, Arc::clone(&self.shared.no_ticket));
        self.shared.tickets.put(ticket);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if self.drop_belief() {
            // A shard that is gone has given its leases back, or they run out.
            let _gone = self.tell_shard();
        }
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, fence, state) = (self.name(), self.fence, self.state());
        write!(f, "LeaseGuard({name:?}, fence {fence}, {state:?})")
    }
}

struct Releasing<'a> {
    guard: &'a mut LeaseGuard,
    asked: bool,
}

impl Future for Releasing<'_> {
    type Output = Result<(), ReleaseError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.asked, true) {
            if !self.guard.drop_belief() {
                return Poll::Ready(Err(ReleaseError::NotHeld));
            }
            self.guard.ticket.lock().wait(context.waker());
            if let Err(stopped) = self.guard.tell_shard() {
                return Poll::Ready(Err(stopped));
            }
            return Poll::Pending;
        }
        let mut state = self.guard.ticket.lock();
        if let Stage::Released(result) = &state.stage {
            return Poll::Ready(result.clone());
        }
        state.wait(context.waker());
        Poll::Pending
    }
}
