//! Asking for a lease: the options, and the future behind them.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Holder, Label, Name, Ttl, TtlError};
use pollster::block_on;

use crate::client::Shared;
use crate::command::{Command, Reply, Wish, WishReply};
use crate::error::{AcquireError, AskError};
use crate::grant::Grant;
use crate::lease::LeaseGuard;

/// A wish for a lease, from [`crate::Client::acquire`] and [`crate::Client::try_acquire`]. Does
/// nothing until it is awaited, or run by [`Self::blocking`].
#[derive(Clone)]
#[must_use = "a wish does nothing until it is awaited"]
pub struct Acquire<'a> {
    shared: &'a Arc<Shared>,
    name: &'a str,
    holder: Option<&'a str>,
    ttl: Duration,
    wait: Duration,
}

/// The future of an [`Acquire`] or [`Detached`]. Dropping it takes the wish back, and whatever was
/// granted meanwhile.
pub type Acquiring<T> = Pin<Box<dyn Future<Output = Result<T, AcquireError>> + Send>>;

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

    /// How long to wait while somebody else holds it, or no majority of the cell can be reached;
    /// zero for not at all.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Who is shown as the holder, up to 256 bytes; `user@host:pid` unless told otherwise.
    pub const fn holder(mut self, holder: &'a str) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Asks for a lease that is left to the caller: not renewed, not given back when dropped.
    pub const fn detached(self) -> Detached<'a> {
        Detached(self)
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
        let name = Name::new(self.name).map_err(|error| AskError::Name(error.to_string()))?;
        let holder = Holder::new(holder);
        Ok(Label::new(name, holder.map_err(|error| AcquireError::Holder(error.to_string()))?))
    }

    fn ask<T: Send + 'static>(
        self,
        reply: impl FnOnce(Arc<Shared>, Reply<T, AcquireError>) -> WishReply + Send + 'static,
    ) -> Acquiring<T> {
        let label = self.label();
        let ttl = checked_ttl(self.ttl).map_err(AcquireError::Ttl);
        let (shared, wait) = (Arc::clone(self.shared), self.wait);
        Box::pin(async move {
            let (label, ttl) = (label?, ttl?);
            let (sender, answer) = oneshot::channel();
            let id = shared.next_wish();
            let reply = reply(Arc::clone(&shared), sender);
            let stopped = || AcquireError::Ask(AskError::Stopped);
            shared
                .post(Command::Acquire(Wish { id, label, ttl, wait, reply }))
                .map_err(|_| stopped())?;
            let mut wished = Wished { shared, id, answered: false };
            let answer = answer.await;
            wished.answered = true;
            answer.unwrap_or_else(|_| Err(stopped()))
        })
    }
}

/// Takes the wish back unless there was an answer.
struct Wished {
    shared: Arc<Shared>,
    id: u64,
    answered: bool,
}

impl Drop for Wished {
    fn drop(&mut self) {
        if !self.answered {
            // A client that was shut down has nothing to take back.
            let _stopped = self.shared.post(Command::Abandon(self.id));
        }
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = Result<LeaseGuard, AcquireError>;
    type IntoFuture = Acquiring<LeaseGuard>;

    fn into_future(self) -> Acquiring<LeaseGuard> {
        self.ask(WishReply::Guard)
    }
}

/// A wish for a lease without a guard, from [`Acquire::detached`].
#[derive(Clone, Debug)]
#[must_use = "a wish does nothing until it is awaited"]
pub struct Detached<'a>(Acquire<'a>);

impl Detached<'_> {
    /// Asks and waits on this thread, for programs without an async runtime.
    ///
    /// # Errors
    /// As for awaiting it.
    pub fn blocking(self) -> Result<Grant, AcquireError> {
        block_on(self.into_future())
    }
}

impl IntoFuture for Detached<'_> {
    type Output = Result<Grant, AcquireError>;
    type IntoFuture = Acquiring<Grant>;

    fn into_future(self) -> Acquiring<Grant> {
        self.0.ask(|_, reply| WishReply::Detached(reply))
    }
}

/// What can be seen of a ttl from here; only the cell knows its longest.
pub(crate) fn checked_ttl(asked: Duration) -> Result<Ttl, String> {
    if asked < Ttl::MIN.as_duration() {
        return Err(TtlError::TooShort(asked).to_string());
    }
    let too_long = TtlError::TooLong { asked, max_lease: Ttl::MAX };
    Ttl::from_duration(asked).ok_or_else(|| too_long.to_string())
}
