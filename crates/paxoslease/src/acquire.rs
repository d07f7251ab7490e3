//! Asking for a lease: the options, and the future behind them.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use paxoslease_core::{Holder, Label, Name};

use crate::blocking::block_on;
use crate::command::Command;
use crate::error::AcquireError;
use crate::lease::LeaseGuard;
use crate::node::Shared;
use crate::ticket::{Stage, Ticket};

/// A wish for a lease, from [`crate::Node::acquire`] and [`crate::Node::try_acquire`]. Does nothing
/// until it is awaited, or run by [`Self::blocking`].
#[must_use = "a wish does nothing until it is awaited"]
pub struct Acquire<'a> {
    shared: &'a Arc<Shared>,
    name: &'a str,
    holder: Option<&'a str>,
    ttl: Duration,
    wait: Duration,
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, holder, ttl, wait, .. } = self;
        write!(f, "Acquire({name:?}, holder {holder:?}, ttl {ttl:?}, wait {wait:?})")
    }
}

impl<'a> Acquire<'a> {
    pub(crate) const fn new(
        shared: &'a Arc<Shared>,
        name: &'a str,
        ttl: Duration,
        wait: Duration,
    ) -> Self {
        Self { shared, name, holder: None, ttl, wait }
    }

    /// How long the lease lasts unless it is renewed: 50 ms to the cell's `max_lease`. How long it
    /// takes until somebody else can have it if this process dies.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while somebody else holds it; zero for not at all.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Who is shown as the holder, up to 256 bytes; `user@host:pid` unless told otherwise.
    pub const fn holder(mut self, holder: &'a str) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Asks and waits on this thread, for programs without an async runtime.
    ///
    /// # Errors
    /// As for awaiting it.
    pub fn blocking(self) -> Result<LeaseGuard, AcquireError> {
        block_on(self.into_future())
    }

    fn label(&self) -> Result<Label, AcquireError> {
        let holder = self.holder.unwrap_or(&self.shared.default_holder);
        let name = Name::new(self.name).map_err(AcquireError::Name)?;
        Ok(Label::new(name, Holder::new(holder).map_err(AcquireError::Holder)?))
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = Result<LeaseGuard, AcquireError>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Acquiring {
        let span = tracing::debug_span!("acquire", name = self.name, ttl = ?self.ttl);
        let state = match self.label() {
            Ok(label) => AcquiringState::Wish { label, ttl: self.ttl, wait: self.wait },
            Err(error) => AcquiringState::Refused(error),
        };
        Acquiring { shared: Arc::clone(self.shared), state, span }
    }
}

/// The future of an [`Acquire`]. Dropping it takes the wish back, and whatever was granted
/// meanwhile.
#[must_use = "futures do nothing until they are awaited"]
pub struct Acquiring {
    shared: Arc<Shared>,
    state: AcquiringState,
    span: tracing::Span,
}

enum AcquiringState {
    Refused(AcquireError),
    Wish { label: Label, ttl: Duration, wait: Duration },
    Asked { ticket: Arc<Ticket>, label: Label, ttl: Duration },
    Done,
}

impl fmt::Debug for Acquiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acquiring")
    }
}

impl Future for Acquiring {
    type Output = Result<LeaseGuard, AcquireError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let _entered = this.span.enter();
        match std::mem::replace(&mut this.state, AcquiringState::Done) {
            AcquiringState::Refused(error) => Poll::Ready(Err(error)),
            AcquiringState::Wish { label, ttl, wait } => {
                let ticket = this.shared.tickets.take();
                ticket.lock().wait(context.waker());
                let asked = label.clone();
                let command =
                    Command::Acquire { ticket: Arc::clone(&ticket), label: asked, ttl, wait };
                if this.shared.post(label.name(), command).is_err() {
                    return Poll::Ready(Err(AcquireError::Stopped));
                }
                this.state = AcquiringState::Asked { ticket, label, ttl };
                Poll::Pending
            }
            AcquiringState::Asked { ticket, label, ttl } => {
                let mut state = ticket.lock();
                match &state.stage {
                    Stage::Asked => {
                        state.wait(context.waker());
                        drop(state);
                        this.state = AcquiringState::Asked { ticket, label, ttl };
                        Poll::Pending
                    }
                    Stage::Refused(error) => {
                        let error = error.clone();
                        drop(state);
                        this.shared.tickets.put(ticket);
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
                        let belief = state.belief.expect("a grant begins a belief");
                        drop(state);
                        let fence = belief.tenure().fence();
                        tracing::debug!(fence, "granted");
                        let shared = Arc::clone(&this.shared);
                        Poll::Ready(Ok(LeaseGuard::new(shared, ticket, label, fence, ttl)))
                    }
                }
            }
            AcquiringState::Done => panic!("polled after it was done"),
        }
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, AcquiringState::Done);
        let AcquiringState::Asked { ticket, label, ttl } = state else { return };
        let mut state = ticket.lock();
        if state.stage == Stage::Asked {
            state.stage = Stage::Left;
            drop(state);
            // A shard that is gone has nothing to take back.
            let _gone = self.shared.post(label.name(), Command::Abandon { ticket });
            return;
        }
        let granted = state.belief;
        drop(state);
        if let Some(belief) = granted {
            // Granted and never looked at: dropping the guard gives it back.
            let shared = Arc::clone(&self.shared);
            drop(LeaseGuard::new(shared, ticket, label, belief.tenure().fence(), ttl));
        }
    }
}
