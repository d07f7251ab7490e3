//! The errors of a holder, one enum per operation. Each error says what happened, what to do next,
//! and whether anything is left behind.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use paxoslease_core::{Permits, TextError, TtlError};

use crate::human::human_end;
use crate::limit::Limit;
use crate::status::Membership;
use crate::watch::LeaseInfo;

/// What an error says about a missing majority when no node said more.
const NO_MAJORITY: &str = "no majority of the cell answered in time; see the node's status for \
                           members that are unreachable or quarantined";

/// Why a request was not answered, whatever it was about. Nothing was changed that outlives the ttl
/// of the request. Texts that come from a node say what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// None of the endpoints answered in time.
    #[error(
        "no answer from {}: {problem}; check that a node runs there, and the list of endpoints",
        endpoints.join(", ")
    )]
    Unreachable {
        /// The endpoints that the client tried.
        endpoints: Vec<String>,
        /// The last problem.
        problem: String,
    },
    /// No majority of the cell answered in time, or contenders kept splitting the vote.
    #[error("no quorum: {0}")]
    NoQuorum(Cow<'static, str>),
    /// As [`Self::NoQuorum`], and the node itself does not vote yet.
    #[error("in quarantine for {0}")]
    Quarantine(Quarantine),
    /// The node is at one of its limits, or about to stop.
    #[error("at a limit: {problem}")]
    Busy {
        /// The limit; `None` if the node stops, or is of another version.
        limit: Option<Limit>,
        /// The limit and its value, and what to do.
        problem: String,
    },
    /// The members do not keep a durable lease. After an acquire nothing is held.
    #[error("not durable: {0}")]
    NotDurable(String),
    /// The token is missing or unknown.
    #[error("not authenticated: {0}")]
    Unauthenticated(String),
    /// The token does not permit this request.
    #[error("access denied: {0}; check what the token may do")]
    Denied(String),
    /// The TLS handshake with a node failed, or one does not trust the other. No request was sent.
    #[error("no TLS with {endpoint}: {problem}; check the CA, the certificates and the endpoint")]
    Tls {
        /// The node's endpoint.
        endpoint: String,
        /// What went wrong.
        problem: String,
    },
    /// The node requires TLS, and the client has no CA to trust. No request was sent.
    #[error("{endpoint} requires TLS: give this client the CA of the nodes")]
    TlsRequired {
        /// The node's endpoint.
        endpoint: String,
    },
    /// The client did not send its token, because others could read it. No request was sent.
    #[error(
        "refused to send the token to {endpoint} without TLS, because others could read it; use TLS, \
         or allow it for a network that you trust"
    )]
    TokenInClear {
        /// The node's endpoint.
        endpoint: String,
    },
    /// The name is out of bounds.
    #[error("bad name: {0}")]
    Name(TextError),
    /// The node's answer is not valid, or the node does not know the request.
    #[error("unexpected answer; is this a PaxosLease node of this version? {0}")]
    Protocol(String),
    /// The node or the client was shut down.
    #[error("the node or client that serves this handle was shut down")]
    Stopped,
}

/// Why a node does not vote yet: it may have granted leases that it does not know any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quarantine {
    /// How long until the node votes.
    pub remaining: Duration,
    /// Whether the node found its stable record when it started. It has none when it starts for the
    /// first time.
    pub has_record: bool,
}

impl Quarantine {
    const SINCE_RESTART: &str = "this node has just started, and leases that it granted before \
                                 may still be held; too few other nodes vote; retry then, or ask another node";
    const NO_RECORD: &str = "this node has no record, so leases that it granted may still be held; \
                             too few other nodes vote; retry then, or, if this cell never ran \
                             before, start each node with --new-cell (in Rust: new_cell(true))";

    /// Reads what [`Self`] displays. Nodes send that to clients.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (millis, reason) = text.split_once(" ms: ")?;
        let remaining = Duration::from_millis(millis.parse().ok()?);
        Some(Self { remaining, has_record: reason != Self::NO_RECORD })
    }
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = if self.has_record { Self::SINCE_RESTART } else { Self::NO_RECORD };
        // Rounded up: a quarantine of less than a millisecond is not over yet.
        write!(f, "{} ms: {reason}", self.remaining.as_nanos().div_ceil(1_000_000))
    }
}

/// Why a lease was not granted. Nothing is held, and nothing was changed that outlives the ttl.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another holder has the lease, and the wait, if any, is over.
    #[error("{name:?} is held by {}; wait longer, or try again later", HeldBy(holder.as_ref()))]
    Held {
        /// The name that was asked for.
        name: String,
        /// The holder: a hint. `None` when the lease was released just after the refusal.
        holder: Option<LeaseInfo>,
    },
    /// The ttl is out of bounds.
    #[error("bad ttl: {0}")]
    Ttl(#[from] TtlError),
    /// The holder text is out of bounds.
    #[error("bad holder: {0}")]
    Holder(TextError),
    /// The number of permits is out of bounds.
    #[error("{0} permits; a semaphore has 1 to {max}", max = Permits::MAX)]
    Permits(u64),
    /// A semaphore has no durable permits.
    #[error("a semaphore has no durable permits; ask for a lease, or for permits with a ttl")]
    DurablePermits,
    /// The request was not answered.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Why a lease was not renewed or kept. After a renewal it lasts as long as it did before. After
/// [`Self::Ask`] for an end that a holder set, the end before or the new one may be in force.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// That tenure is over, or never began.
    #[error("{name:?} is not held with fence {fence} any more; acquire it anew")]
    NotHeld {
        /// The name.
        name: String,
        /// The fence of the tenure.
        fence: u64,
    },
    /// The ttl is out of bounds.
    #[error("bad ttl: {0}")]
    Ttl(#[from] TtlError),
    /// The request was not answered.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Why a release was not confirmed. The lease is not held in any case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease had been lost before.
    #[error("{name:?} was not held with fence {fence} any more when it was released")]
    NotHeld {
        /// The name.
        name: String,
        /// The fence of the tenure.
        fence: u64,
    },
    /// No majority confirmed. The lease is free when its ttl is over, at the latest. A durable
    /// lease may have to be released again.
    #[error(
        "the release was not confirmed, so the lease is free when its ttl is over; release a \
         durable lease again: {0}"
    )]
    Unconfirmed(#[from] AskError),
}

/// A lease was lost while work ran under it ([`LeaseGuard::run`](crate::LeaseGuard::run)).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name:?} (fence {fence}) was lost during the work; acquire it anew")]
pub struct LeaseLost {
    /// The name.
    pub name: String,
    /// The fence of the tenure that is over.
    pub fence: u64,
}

impl AskError {
    /// No majority answered, and no node said why.
    pub const NO_MAJORITY: Self = Self::NoQuorum(Cow::Borrowed(NO_MAJORITY));

    /// Why a node finds no majority, as far as it can tell by itself.
    #[must_use]
    pub fn no_majority(
        membership: Membership,
        quarantine: Option<Quarantine>,
        disk_problem: Option<&str>,
    ) -> Self {
        match (membership.problem(), quarantine, disk_problem) {
            (Some(problem), _, _) => Self::NoQuorum(Cow::Borrowed(problem)),
            (None, Some(quarantine), _) => Self::Quarantine(quarantine),
            (None, None, Some(problem)) => Self::NoQuorum(Cow::Owned(format!(
                "no majority answered in time, and the disk of this node failed, so that it \
                 accepts no lease longer than those before: {problem}; repair its data_dir, or ask \
                 for a shorter ttl; nothing was changed that outlives the ttl"
            ))),
            (None, None, None) => Self::NO_MAJORITY,
        }
    }

    /// Whether a retry is useless until a certificate, a token or the endpoints change.
    #[must_use]
    pub const fn is_lack_of_trust(&self) -> bool {
        matches!(
            self,
            Self::Unauthenticated(_)
                | Self::Denied(_)
                | Self::Tls { .. }
                | Self::TlsRequired { .. }
                | Self::TokenInClear { .. }
        )
    }
}

/// The holder of a lease, in the text of an error.
struct HeldBy<'a>(Option<&'a LeaseInfo>);

impl fmt::Display for HeldBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(LeaseInfo { holder, fence, remaining, .. }) = self.0 else {
            return f.write_str("another holder, or was a moment ago");
        };
        write!(f, "{holder:?} (fence {fence}) {}", human_end(*remaining))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarantine_is_read_as_it_is_shown() {
        for has_record in [false, true] {
            let quarantine = Quarantine { remaining: Duration::from_millis(41_250), has_record };
            assert_eq!(Quarantine::parse(&quarantine.to_string()), Some(quarantine));
        }
        assert_eq!(Quarantine::parse("soon"), None);
    }
}
