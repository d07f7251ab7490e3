//! Asking for a lease: the options, and the future behind them.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use paxoslease_core::{Belief, Holder, Label, Name, Permits, Ttl};

use crate::block_on;
use crate::error::{AcquireError, AskError};
use crate::grant::Grant;
use crate::lease::LeaseGuard;
use crate::transport::{
    AcquireRequest, Caller, Request, Span, Stage, Ticket, Transport, checked_ttl, lasting,
};

/// A request for a lease that is not sent yet. It does nothing until it is awaited, or run by
/// [`Self::blocking`].
#[derive(Clone)]
#[must_use = "an acquire does nothing until it is awaited"]
pub struct Acquire<'a> {
    transport: Arc<dyn Transport>,
    name: &'a str,
    holder: Option<&'a str>,
    ttl: Duration,
    wait: Duration,
    permits: Option<u64>,
    lasts: Option<Duration>,
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, holder, ttl, wait, .. } = self;
        write!(f, "Acquire({name:?}, holder {holder:?}, ttl {ttl:?}, wait {wait:?})")
    }
}

impl<'a> Acquire<'a> {
    /// For transports: the request of a lease through this one.
    pub fn new(
        transport: Arc<dyn Transport>,
        name: &'a str,
        ttl: Duration,
        wait: Duration,
    ) -> Self {
        Self { transport, name, holder: None, ttl, wait, permits: None, lasts: None }
    }

    /// How long the lease lasts unless it is renewed: 50 ms to the cell's `max_lease`. If this
    /// process dies, it takes that long until another holder can have the lease.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while another holder has the lease, or no majority of the cell can be
    /// reached; zero for not at all.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The holder text that others see, up to 256 bytes; `user@host:pid` by default.
    pub const fn holder(mut self, holder: &'a str) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Asks for one of `permits` permits of a semaphore, 1 to 64, so that this many holders can
    /// have one at a time. Each permit is a lease of its own, with its own fence: that of permit 2
    /// of `gpu` has the name `gpu#2`. All holders must name the same number.
    pub const fn permits(mut self, permits: u64) -> Self {
        self.permits = Some(permits);
        self
    }

    /// Asks for a durable lease, which is on the disks of a majority before it is granted, and
    /// lasts this long from then: at least 50 ms, maybe longer than the cell's `max_lease`, and
    /// [`Duration::MAX`] for ever. There is no ttl. It outlives this process and every crash, until
    /// it is released or over. A guard prolongs it by the same time, and releases it when it is
    /// dropped.
    pub const fn durable(mut self, lasts: Duration) -> Self {
        self.lasts = Some(lasts);
        self
    }

    /// Asks for a lease without a guard: it is not renewed, and not released when it is dropped.
    pub const fn detached(self) -> Detached<'a> {
        Detached(self)
    }

    /// Asks and waits on this thread, for programs without an async runtime.
    ///
    /// # Errors
    /// Those of awaiting it.
    pub fn blocking(self) -> Result<LeaseGuard, AcquireError> {
        block_on(self.into_future())
    }

    fn label(&self) -> Result<Label, AcquireError> {
        let name = Name::new(self.name).map_err(AskError::Name)?;
        let holder = self.holder.unwrap_or_else(|| self.transport.default_holder());
        Ok(Label::new(name, Holder::new(holder).map_err(AcquireError::Holder)?))
    }

    fn checked(&self) -> Result<(Span, AcquiringState), AcquireError> {
        if self.lasts.is_some() && self.permits.is_some() {
            return Err(AcquireError::DurablePermits);
        }
        let out_of_bounds = |count| Permits::new(count).ok_or(AcquireError::Permits(count));
        let permits = self.permits.map(out_of_bounds).transpose()?;
        let label = self.label()?;
        permits.map_or(Ok(()), |n| label.permit(n.count()).map(drop)).map_err(AskError::Name)?;
        let span = match self.lasts {
            Some(lasts) => Span::durable(lasting(lasts)?),
            None => Span { ttl: checked_ttl(self.ttl)?, lasts: None },
        };
        Ok((span, AcquiringState::Unsent { label, wait: self.wait, permits }))
    }

    fn into_acquiring<T: Lease>(self) -> Acquiring<T> {
        let span = tracing::debug_span!("acquire", name = self.name, ttl = ?self.ttl);
        let refused = |error| (Span { ttl: Ttl::MIN, lasts: None }, AcquiringState::Refused(error));
        let (asked, state) = self.checked().unwrap_or_else(refused);
        Acquiring { transport: self.transport, state, asked, span, lease: PhantomData }
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = Result<LeaseGuard, AcquireError>;
    type IntoFuture = Acquiring<LeaseGuard>;

    fn into_future(self) -> Acquiring<LeaseGuard> {
        self.into_acquiring()
    }
}

/// A request for a lease without a guard, from [`Acquire::detached`].
#[derive(Clone, Debug)]
#[must_use = "an acquire does nothing until it is awaited"]
pub struct Detached<'a>(Acquire<'a>);

impl Detached<'_> {
    /// Asks and waits on this thread, for programs without an async runtime.
    ///
    /// # Errors
    /// Those of awaiting it.
    pub fn blocking(self) -> Result<Grant, AcquireError> {
        block_on(self.into_future())
    }
}

impl IntoFuture for Detached<'_> {
    type Output = Result<Grant, AcquireError>;
    type IntoFuture = Acquiring<Grant>;

    fn into_future(self) -> Acquiring<Grant> {
        self.0.into_acquiring()
    }
}

/// What an acquire ends with: a [`LeaseGuard`] or a [`Grant`].
trait Lease: Sized {
    const RENEWED: bool;

    fn granted(granted: Granted) -> Self;

    /// Releases a lease that no caller has seen.
    fn release(granted: Granted);
}

/// A ticket that was granted, and all that a lease is made of.
struct Granted {
    transport: Arc<dyn Transport>,
    ticket: Arc<Ticket>,
    label: Label,
    asked: Span,
    belief: Belief,
    waited: Duration,
}

impl Lease for LeaseGuard {
    const RENEWED: bool = true;

    fn granted(granted: Granted) -> Self {
        let Granted { transport, ticket, label, asked, belief, .. } = granted;
        Self::new(transport, ticket, label, belief.tenure().fence(), asked.as_duration())
    }

    fn release(granted: Granted) {
        drop(Self::granted(granted));
    }
}

impl Lease for Grant {
    const RENEWED: bool = false;

    fn granted(granted: Granted) -> Self {
        let Granted { transport, ticket, label, asked, belief, waited } = granted;
        transport.tickets().put(ticket);
        Self::new(transport.clock().clone(), label, belief, asked.as_duration(), waited)
    }

    fn release(granted: Granted) {
        let Granted { transport, label, asked, belief, .. } = granted;
        let (named, tenure) = (label.clone(), belief.tenure());
        let is_durable = asked.lasts.is_some();
        let request = Request::ReleaseTenure { label, tenure, is_durable, reply: None };
        // A thread that has ended has nothing to take back.
        let _ended = transport.ask(named.name(), request);
    }
}

/// The future of an [`Acquire`] or [`Detached`]. Dropping it withdraws the request, and releases
/// what was granted meanwhile.
#[must_use = "futures do nothing until they are awaited"]
#[expect(private_bounds, reason = "there are two kinds of leases, and both are here")]
pub struct Acquiring<T: Lease> {
    transport: Arc<dyn Transport>,
    state: AcquiringState,
    asked: Span,
    span: tracing::Span,
    lease: PhantomData<fn() -> T>,
}

enum AcquiringState {
    Refused(AcquireError),
    Unsent { label: Label, wait: Duration, permits: Option<Permits> },
    Asked { ticket: Arc<Ticket>, label: Label },
    Done,
}

impl<T: Lease> fmt::Debug for Acquiring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acquiring")
    }
}

impl Granted {
    /// `None` unless the ticket was granted.
    fn new(
        transport: &Arc<dyn Transport>,
        ticket: Arc<Ticket>,
        label: Label,
        asked: Span,
    ) -> Option<Self> {
        let (belief, waited, permit) = {
            let state = ticket.lock();
            (state.belief?, state.waited, state.permit)
        };
        let permit = permit.and_then(|number| label.permit(number).ok());
        let label = permit.unwrap_or(label);
        Some(Self { transport: Arc::clone(transport), ticket, label, asked, belief, waited })
    }
}

impl<T: Lease> Future for Acquiring<T> {
    type Output = Result<T, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let _entered = this.span.enter();
        match std::mem::replace(&mut this.state, AcquiringState::Done) {
            AcquiringState::Refused(error) => Poll::Ready(Err(error)),
            AcquiringState::Unsent { label, wait, permits } => {
                let ticket = this.transport.tickets().take();
                ticket.lock().wait(context.waker());
                let request = AcquireRequest {
                    caller: Caller::new(&ticket),
                    label: label.clone(),
                    span: this.asked,
                    wait,
                    permits,
                    renewed: T::RENEWED,
                };
                if this.transport.ask(label.name(), Request::Acquire(request)).is_err() {
                    return Poll::Ready(Err(AskError::Stopped.into()));
                }
                this.state = AcquiringState::Asked { ticket, label };
                Poll::Pending
            }
            AcquiringState::Asked { ticket, label } => {
                let mut state = ticket.lock();
                match &state.stage {
                    Stage::Asked => {
                        state.wait(context.waker());
                        drop(state);
                        this.state = AcquiringState::Asked { ticket, label };
                        Poll::Pending
                    }
                    Stage::Refused(error) => {
                        let error = error.clone();
                        drop(state);
                        this.transport.tickets().put(ticket);
                        tracing::debug!(%error, "not granted");
                        Poll::Ready(Err(error))
                    }
                    Stage::Left => unreachable!("only dropping the future leaves"),
                    // Also a lease that was lost meanwhile: the guard says so.
                    Stage::Held
                    | Stage::Jeopardy
                    | Stage::Lost
                    | Stage::Releasing
                    | Stage::Released(_) => {
                        drop(state);
                        let granted = Granted::new(&this.transport, ticket, label, this.asked);
                        let granted = granted.expect("a grant begins a belief");
                        tracing::debug!(fence = granted.belief.tenure().fence(), "granted");
                        Poll::Ready(Ok(T::granted(granted)))
                    }
                }
            }
            AcquiringState::Done => panic!("polled after it was done"),
        }
    }
}

impl<T: Lease> Drop for Acquiring<T> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, AcquiringState::Done);
        let AcquiringState::Asked { ticket, label } = state else { return };
        let mut state = ticket.lock();
        if state.stage == Stage::Asked {
            state.stage = Stage::Left;
            drop(state);
            // A thread that has ended has nothing to take back.
            let _ended = self.transport.ask(label.name(), Request::Abandon(ticket));
            return;
        }
        drop(state);
        if let Some(granted) = Granted::new(&self.transport, ticket, label, self.asked) {
            T::release(granted);
        }
    }
}
