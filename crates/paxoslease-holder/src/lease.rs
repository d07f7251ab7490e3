//! A lease that is held: it renews itself, and it is released when it is dropped.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use paxoslease_core::Label;

use crate::block_on;
use crate::error::{AskError, LeaseLost, ReleaseError};
use crate::grant::remaining;
use crate::transport::{Caller, ReleaseOutcome, Request, Stage, Ticket, Transport};

/// The state of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and renewed in time.
    Held,
    /// Held, but two thirds of the ttl passed without a renewal: a good moment to finish, or not to
    /// begin anything long.
    Jeopardy,
    /// Not held any more. It will not come back; a new acquire begins a new tenure with a higher
    /// fence.
    Lost,
}

/// A lease that is held.
///
/// It renews itself in the background until it is dropped, released or lost. Dropping it releases
/// the lease in the background; [`Self::release`] does so and waits for the confirmation.
///
/// [`Self::is_held`] is computed from the clock every time. What happens *after* it answered is not
/// covered: a process may be paused between the question and the action. Where that matters, pass
/// [`Self::fence`] along and let the resource refuse lower ones.
#[must_use = "a lease that is dropped is released at once"]
pub struct LeaseGuard {
    view: LeaseView,
    label: Label,
    fence: u64,
    ttl: Duration,
    /// What [`Self::changed`] saw last.
    seen: Progress,
}

/// The renewals of a lease, and its state.
type Progress = (u64, LeaseState);

impl LeaseGuard {
    pub(crate) const fn new(
        transport: Arc<dyn Transport>,
        ticket: Arc<Ticket>,
        label: Label,
        fence: u64,
        ttl: Duration,
    ) -> Self {
        let view = LeaseView { transport, ticket };
        Self { view, label, fence, ttl, seen: (0, LeaseState::Held) }
    }

    /// Another way to look at this lease, which does not keep it: for a thread or a task that must
    /// learn when the lease is over, while the guard is elsewhere.
    #[must_use]
    pub fn view(&self) -> LeaseView {
        self.view.clone()
    }

    /// The name that is held.
    #[must_use]
    pub fn name(&self) -> &str {
        self.label.name().as_str()
    }

    /// The holder text that others see.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.label.holder().as_str().expect("a guard's holder was given as a str")
    }

    /// The fencing token: greater for every later tenure of the same name, constant in a tenure.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.fence
    }

    /// The ttl that the lease is renewed with, or how long it was to be durable when it was
    /// acquired; [`Duration::MAX`] for ever.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether the lease is held, by a fresh reading of the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.view.is_held()
    }

    /// How long the lease is held if no renewal succeeds; zero once it is over, and
    /// [`Duration::MAX`] for ever.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// The state of the lease, by a fresh reading of the clock.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        self.view.state()
    }

    /// How often the lease was renewed.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.view.renewals()
    }

    /// Waits until the lease is renewed or its state changes, and returns the state. Like
    /// `changed()` of a tokio watch, it compares with what the last call returned, so no change
    /// between two calls goes unnoticed. Returns [`LeaseState::Lost`] at once when the lease is
    /// over. Cancel-safe.
    ///
    /// ```no_run
    /// # extern crate paxoslease_holder as paxoslease;
    /// # async fn example(mut lease: paxoslease::LeaseGuard) {
    /// use paxoslease::LeaseState;
    ///
    /// while lease.changed().await != LeaseState::Lost {
    ///     println!("{:?}, for {:?} at least", lease.state(), lease.remaining());
    /// }
    /// # }
    /// ```
    pub async fn changed(&mut self) -> LeaseState {
        self.seen = self.view.changed_since(self.seen).await;
        self.seen.1
    }

    /// Like [`Self::changed`], but blocks this thread.
    pub fn changed_blocking(&mut self) -> LeaseState {
        block_on(self.changed())
    }

    /// Waits until the lease is lost, and returns *before* another holder can have it, as long as
    /// this process is scheduled in time. Cancel-safe. Take it as the signal to stop; ask
    /// [`Self::is_held`] before anything that must not happen twice.
    pub async fn lost(&self) {
        self.view.ended().await;
    }

    /// Like [`Self::lost`], but blocks this thread.
    pub fn lost_blocking(&self) {
        block_on(self.lost());
    }

    /// Runs `work` while the lease is held. If the lease is lost first, drops `work` where it
    /// waits, and fails. Runs on any executor. Dropping the future drops `work` and keeps the
    /// lease.
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn example(lease: paxoslease_holder::LeaseGuard) -> Result<(), Box<dyn Error>> {
    /// # async fn copy_to_store(fence: u64) -> u64 { fence }
    /// let copied = lease.run(copy_to_store(lease.fence())).await?;
    /// lease.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the lease is not held any more. `work` may have ended even so: success means that the
    /// lease was held until the end of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        let ended = poll_fn(|context| match lost.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(context).map(Some),
        });
        let ended = ended.await.filter(|_| self.is_held());
        ended.ok_or_else(|| LeaseLost { name: self.name().to_owned(), fence: self.fence })
    }

    /// Releases the lease and waits until a majority confirmed it, so that the next acquire finds
    /// the name free. The lease is not held from the first poll on; dropping the future does not
    /// undo that.
    ///
    /// # Errors
    /// When the lease had been lost before, or no majority confirmed in time. The lease is not held
    /// in any case.
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let released = Releasing { guard: &mut self, asked: false }.await;
        let LeaseView { transport, ticket } = self.view();
        drop(self);
        transport.tickets().put(ticket);
        released
    }

    /// Like [`Self::release`], but blocks this thread.
    ///
    /// # Errors
    /// Those of [`Self::release`].
    pub fn release_blocking(self) -> Result<(), ReleaseError> {
        block_on(self.release())
    }

    /// P6: the belief goes first. Says whether the lease is to be released.
    fn drop_belief(&self) -> bool {
        let ticket = &self.view.ticket;
        let mut state = ticket.lock();
        state.drop_belief();
        let live = state.stage.is_live();
        if live {
            state.stage = Stage::Releasing;
            drop(state);
            ticket.changed.notify(usize::MAX);
        }
        live
    }

    fn ask_release(&self) -> Result<(), AskError> {
        let request = Request::Release(Caller::new(&self.view.ticket));
        self.view.transport.ask(self.label.name(), request).map_err(|_| AskError::Stopped)
    }

    fn result_of(&self, outcome: ReleaseOutcome) -> Result<(), ReleaseError> {
        outcome.into_result(self.label.name(), self.fence)
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if self.drop_belief() {
            // A thread that has ended has released its leases, or they run out.
            let _ended = self.ask_release();
        }
    }
}

impl fmt::Debug for LeaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, fence, state) = (self.name(), self.fence, self.state());
        write!(f, "LeaseGuard({name:?}, fence {fence}, {state:?})")
    }
}

/// A view of a lease, from [`LeaseGuard::view`]. It tells whether the lease is held, and when it is
/// over. It neither keeps the lease nor ends it.
#[derive(Clone)]
pub struct LeaseView {
    transport: Arc<dyn Transport>,
    ticket: Arc<Ticket>,
}

/// How a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LeaseEnd {
    /// Without its holder's doing.
    Lost,
    /// Its guard was released or dropped.
    Released,
}

impl LeaseView {
    /// Whether the lease is held, by a fresh reading of the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long the lease is held if no renewal succeeds; zero once it is over, and
    /// [`Duration::MAX`] for ever.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.look().0
    }

    /// The state of the lease, by a fresh reading of the clock. A lease that was released is
    /// [`LeaseState::Lost`].
    #[must_use]
    pub fn state(&self) -> LeaseState {
        match self.look() {
            (Duration::ZERO, _) => LeaseState::Lost,
            (_, true) => LeaseState::Jeopardy,
            (_, false) => LeaseState::Held,
        }
    }

    /// How long the lease is held, and whether its renewal is late. Once a caller saw the lease
    /// over, no caller sees it held again, even if a renewal was on its way.
    fn look(&self) -> (Duration, bool) {
        let mut state = self.ticket.lock();
        // Read after the lock was taken: the wait for it must not count as held.
        let now = self.transport.clock().now();
        let late = state.stage == Stage::Jeopardy;
        let Some(belief) = state.belief else { return (Duration::ZERO, late) };
        if !belief.is_held(now) {
            state.drop_belief();
        }
        (remaining(&belief, now), late)
    }

    /// How often the lease was renewed.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.ticket.lock().renewals
    }

    /// Waits until the lease was renewed, or its state changed, since it was as `seen`. Returns at
    /// once when the lease is over. Cancel-safe.
    pub async fn changed_since(&self, seen: (u64, LeaseState)) -> (u64, LeaseState) {
        loop {
            let changed = self.ticket.changed.listen();
            let now = (self.renewals(), self.state());
            if now != seen || now.1 == LeaseState::Lost {
                return now;
            }
            changed.await;
        }
    }

    /// How the lease ended; `None` while it is held.
    #[must_use]
    pub fn end(&self) -> Option<LeaseEnd> {
        if self.is_held() {
            return None;
        }
        Some(match self.ticket.lock().stage {
            Stage::Releasing | Stage::Released(_) => LeaseEnd::Released,
            _ => LeaseEnd::Lost,
        })
    }

    /// Waits until the lease is over, and says how it ended. As prompt as [`LeaseGuard::lost`].
    /// Cancel-safe.
    pub async fn ended(&self) -> LeaseEnd {
        loop {
            let changed = self.ticket.changed.listen();
            if let Some(end) = self.end() {
                return end;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for LeaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseView({:?})", self.state())
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
                return Poll::Ready(self.guard.result_of(ReleaseOutcome::NotHeld));
            }
            self.guard.view.ticket.lock().wait(context.waker());
            if let Err(stopped) = self.guard.ask_release() {
                return Poll::Ready(Err(stopped.into()));
            }
            return Poll::Pending;
        }
        let mut state = self.guard.view.ticket.lock();
        if let Stage::Released(outcome) = &state.stage {
            return Poll::Ready(self.guard.result_of(outcome.clone()));
        }
        state.wait(context.waker());
        Poll::Pending
    }
}
