//! What a node and a client build on: how handles reach the thread that serves them, and what that
//! thread and its handles share about each lease.

mod guards;
mod ticket;
mod wheel;

use std::sync::Arc;
use std::time::Duration;

use paxoslease_clock::Clock;
use paxoslease_core::{
    Belief, Drift, Holder, Instant, Label, Lasts, Name, Permits, Tenure, Ttl, TtlError,
};

pub use crate::watch::{Subscription, prefix_of, subscribe};
pub use guards::{Due, Guard, GuardId, Guards, is_worthwhile};
pub(crate) use ticket::Stage;
pub use ticket::{Caller, ReleaseOutcome, State, Ticket, TicketPool};

use crate::{AskError, Grant, ReleaseError, RenewError};

/// The way from handles and guards to the thread that serves them.
pub trait Transport: Send + Sync {
    /// Hands a request to the thread that serves this name.
    ///
    /// # Errors
    /// Gives the request back when that thread has ended.
    fn ask(&self, name: Name<'_>, request: Request) -> Result<(), Request>;

    /// The clock that leases are counted by.
    fn clock(&self) -> &Clock;

    /// The holder text of an acquire that names none.
    fn default_holder(&self) -> &str;

    /// Tickets that are free for reuse.
    fn tickets(&self) -> &TicketPool;
}

/// A request for a lease, or about one.
#[derive(Debug)]
pub enum Request {
    /// Acquires a lease.
    Acquire(AcquireRequest),
    /// P8: the caller of an acquire has dropped its future.
    Abandon(Arc<Ticket>),
    /// P6: the guard has dropped its belief.
    Release(Caller),
    /// Renews a tenure that has no guard here.
    RenewTenure {
        /// The name.
        label: Label,
        /// The tenure.
        tenure: Tenure,
        /// How long the lease should last from now on.
        ttl: Ttl,
        /// The answer: a new belief, and the ttl that was granted.
        reply: oneshot::Sender<Result<(Belief, Ttl), RenewError>>,
    },
    /// K8: sets how long a tenure lasts, and makes it durable. It may have a guard here.
    KeepTenure {
        /// The name.
        label: Label,
        /// The tenure.
        tenure: Tenure,
        /// How long the lease lasts from now on.
        lasts: Lasts,
        /// The answer: a new belief. Its tenure may have a higher number.
        reply: oneshot::Sender<Result<Belief, RenewError>>,
    },
    /// Releases a tenure that has no guard here.
    ReleaseTenure {
        /// The name.
        label: Label,
        /// The tenure.
        tenure: Tenure,
        /// K10: whether a caller ever asked to keep the tenure.
        is_durable: bool,
        /// The answer; `None` when no caller waits for it.
        reply: Option<oneshot::Sender<Result<(), ReleaseError>>>,
    },
}

/// A request for a lease.
#[derive(Debug)]
pub struct AcquireRequest {
    /// Where the answer goes.
    pub caller: Caller,
    /// The name, and the holder text.
    pub label: Label,
    /// How long the lease should last unless it is renewed.
    pub span: Span,
    /// How long to queue while another holder has the lease.
    pub wait: Duration,
    /// Set for one permit of the semaphore with this name, instead of the lease of the name.
    pub permits: Option<Permits>,
    /// Whether the serving thread renews the lease ([`LeaseGuard`](crate::LeaseGuard)), or the
    /// caller does ([`Grant`]).
    pub renewed: bool,
}

/// How long a lease lasts from its grant or renewal on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The ttl; of a durable lease, the longest time for which its holder believes in it.
    pub ttl: Ttl,
    /// Set for a durable lease.
    pub lasts: Option<Lasts>,
}

impl Span {
    /// That of a durable lease.
    #[must_use]
    pub fn durable(lasts: Lasts) -> Self {
        Self { ttl: lasts.capped(Ttl::MAX), lasts: Some(lasts) }
    }

    /// When a belief ends that counts from `started_at`; [`Instant::MAX`] if the lease has no end.
    #[must_use]
    pub fn belief_ends_at(self, drift: Drift, started_at: Instant) -> Instant {
        if self.lasts == Some(Lasts::FOREVER) {
            return Instant::MAX;
        }
        drift.belief_ends_at(started_at, self.ttl)
    }

    pub(crate) fn as_duration(self) -> Duration {
        let lasts = self.lasts.map(|lasts| lasts.as_millis());
        let lasts = lasts.map(|millis| millis.map_or(Duration::MAX, Duration::from_millis));
        lasts.unwrap_or(self.ttl.as_duration())
    }
}

/// Renews a lease by its fence, which may come from another process.
///
/// # Errors
/// When the tenure is over, or the request is not answered.
pub async fn renew(
    transport: &dyn Transport,
    name: &str,
    fence: u64,
    ttl: Duration,
) -> Result<Grant, RenewError> {
    let name = Name::new(name).map_err(AskError::Name)?;
    let ttl = checked_ttl(ttl)?;
    let Some(tenure) = Tenure::from_fence(fence) else {
        return Err(RenewError::NotHeld { name: name.to_string(), fence });
    };
    let (reply, answer) = oneshot::channel();
    let label = Label::new(name, Holder::NONE);
    let request = Request::RenewTenure { label: label.clone(), tenure, ttl, reply };
    transport.ask(name, request).map_err(|_| AskError::Stopped)?;
    let (belief, ttl) = answer.await.unwrap_or_else(|_| Err(AskError::Stopped.into()))?;
    Ok(Grant::new(transport.clock().clone(), label, belief, ttl.as_duration(), Duration::ZERO))
}

/// Sets how long a lease lasts by its fence, which may come from another process.
///
/// # Errors
/// When the tenure is over, or the request is not answered.
pub async fn keep(
    transport: &dyn Transport,
    name: &str,
    fence: u64,
    lasts: Duration,
) -> Result<Grant, RenewError> {
    let name = Name::new(name).map_err(AskError::Name)?;
    let lasts = lasting(lasts)?;
    let Some(tenure) = Tenure::from_fence(fence) else {
        return Err(RenewError::NotHeld { name: name.to_string(), fence });
    };
    let (reply, answer) = oneshot::channel();
    let label = Label::new(name, Holder::NONE);
    let request = Request::KeepTenure { label: label.clone(), tenure, lasts, reply };
    transport.ask(name, request).map_err(|_| AskError::Stopped)?;
    let belief = answer.await.unwrap_or_else(|_| Err(AskError::Stopped.into()))?;
    let ttl = Span::durable(lasts).as_duration();
    Ok(Grant::new(transport.clock().clone(), label, belief, ttl, Duration::ZERO))
}

/// Releases a lease by its fence, which may come from another process. `is_durable` if a caller
/// asked to keep it and may have got no answer.
///
/// # Errors
/// When the tenure was over, or no majority confirmed.
pub async fn release(
    transport: &dyn Transport,
    name: &str,
    fence: u64,
    is_durable: bool,
) -> Result<(), ReleaseError> {
    let name = Name::new(name).map_err(AskError::Name)?;
    let Some(tenure) = Tenure::from_fence(fence) else {
        return Err(ReleaseError::NotHeld { name: name.to_string(), fence });
    };
    let (reply, answer) = oneshot::channel();
    let label = Label::new(name, Holder::NONE);
    let request = Request::ReleaseTenure { label, tenure, is_durable, reply: Some(reply) };
    transport.ask(name, request).map_err(|_| AskError::Stopped)?;
    answer.await.unwrap_or_else(|_| Err(AskError::Stopped.into()))
}

/// The bounds of a ttl that all cells share; only a node knows the longest lease of its cell.
pub(crate) fn checked_ttl(asked: Duration) -> Result<Ttl, TtlError> {
    if asked < Ttl::MIN.as_duration() {
        return Err(TtlError::TooShort(asked));
    }
    Ttl::from_duration(asked).ok_or(TtlError::TooLong { asked, max_lease: Ttl::MAX })
}

/// How long a durable lease lasts. Unlike a ttl, it has no upper bound.
pub(crate) fn lasting(asked: Duration) -> Result<Lasts, TtlError> {
    if asked < Ttl::MIN.as_duration() {
        return Err(TtlError::TooShort(asked));
    }
    let millis = u64::try_from(asked.as_millis()).ok().and_then(Lasts::from_millis);
    Ok(millis.unwrap_or(Lasts::FOREVER))
}

/// The name of the user: cron sets LOGNAME, and services often have no variable at all.
fn user_name() -> String {
    let of_variable = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
    let uid = nix::unistd::Uid::effective();
    let of_uid = || nix::unistd::User::from_uid(uid).ok()?.map(|user| user.name);
    let name = of_variable("USER").or_else(|| of_variable("LOGNAME")).or_else(of_uid);
    name.unwrap_or_else(|| uid.to_string())
}

/// `user@host:pid`, cut to the longest holder text.
#[must_use]
pub fn default_holder() -> String {
    let user = user_name();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut holder = format!("{user}@{host}:{}", std::process::id());
    holder.truncate(holder.floor_char_boundary(Holder::LEN_MAX));
    holder
}
