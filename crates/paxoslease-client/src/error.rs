//! What can go wrong, one enum per operation. Each says what was expected, what to do next, and
//! what is left behind.

use std::fmt;
use std::time::Duration;

use crate::watch::Sighting;

/// Why a question was not answered, whatever it was about. Nothing was changed that outlives the
/// ttl it was asked with. Texts in here are the node's own, and say what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// None of the endpoints answered in time.
    #[error(
        "no answer from {}: {problem}; check that a node runs there, and the list of endpoints",
        endpoints.join(", ")
    )]
    Unreachable {
        /// Whom the client tried.
        endpoints: Vec<String>,
        /// What went wrong last.
        problem: String,
    },
    /// No majority of the cell answered in time, or contenders kept splitting the vote.
    #[error("no quorum: {0}")]
    NoQuorum(String),
    /// The node was restarted and has to stay silent for a while.
    #[error("in quarantine: {0}")]
    Quarantine(String),
    /// The node is at one of its limits.
    #[error("at a limit: {0}")]
    Busy(String),
    /// The token is missing or unknown.
    #[error("not authenticated: {0}; check the token")]
    Unauthenticated(String),
    /// The token is not good for this.
    #[error("access denied: {0}; check what the token may do")]
    Denied(String),
    /// A node and this client do not agree on TLS, or one does not trust the other. Nothing was
    /// asked.
    #[error("no TLS with {endpoint}: {problem}; check the CA, the certificates and the endpoint")]
    Tls {
        /// Which node.
        endpoint: String,
        /// What went wrong.
        problem: String,
    },
    /// The name is out of bounds.
    #[error("bad name: {0}")]
    Name(String),
    /// The server's answer makes no sense, or it does not know the question.
    #[error("unexpected answer; is this a PaxosLease node of this version? {0}")]
    Protocol(String),
    /// The client was shut down.
    #[error("the client was shut down")]
    Stopped,
}

/// Why a lease was not granted. Nothing is held, and nothing was changed that outlives the ttl.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds it, and the wait, if any, is over.
    #[error("{name:?} is held by {}; wait longer, or try again later", by(seen.as_ref()))]
    Held {
        /// What was asked for.
        name: String,
        /// Who holds it: a hint. `None` when it was given back just after the refusal.
        seen: Option<Sighting>,
    },
    /// The ttl is out of bounds.
    #[error("bad ttl: {0}")]
    Ttl(String),
    /// The holder text is out of bounds.
    #[error("bad holder: {0}")]
    Holder(String),
    /// The question was not answered.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// Why a lease was not renewed. It lasts as long as it did before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// That tenure is over, or never was.
    #[error("{name:?} is not held with fence {fence} any more; acquire it anew")]
    NotHeld {
        /// What was to be renewed.
        name: String,
        /// The tenure.
        fence: u64,
    },
    /// The ttl is out of bounds.
    #[error("bad ttl: {0}")]
    Ttl(String),
    /// The question was not answered.
    #[error(transparent)]
    Ask(#[from] AskError),
}

/// How a release ended other than well. The lease is not held in any case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease had been lost before.
    #[error("{name:?} was not held with fence {fence} any more when it was released")]
    NotHeld {
        /// What was to be released.
        name: String,
        /// The tenure.
        fence: u64,
    },
    /// Nobody confirmed. The lease is free at the latest when its ttl is over.
    #[error("the release was not confirmed, so the lease is free when its ttl is over: {0}")]
    Unconfirmed(#[from] AskError),
}

/// Why there is no client. Nothing runs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Nowhere to connect to.
    #[error("no endpoint given; expected host:port, for example 127.0.0.1:7400")]
    NoEndpoint,
    /// An endpoint that is none.
    #[error("bad endpoint {endpoint:?}: {problem}; expected host:port, for example 10.0.0.1:7400")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The thread of the client could not be started.
    #[error("cannot start the client's thread: {0}")]
    Thread(String),
}

impl AskError {
    /// Whether asking again is in vain until somebody changes a certificate, a token or the
    /// endpoints.
    #[must_use]
    pub const fn is_lack_of_trust(&self) -> bool {
        matches!(self, Self::Unauthenticated(_) | Self::Denied(_) | Self::Tls { .. })
    }
}

/// Who holds it, for the text of an error.
fn by(seen: Option<&Sighting>) -> impl fmt::Display + '_ {
    struct By<'a>(Option<&'a Sighting>);
    impl fmt::Display for By<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Some(Sighting { holder, fence, remaining, .. }) = self.0 else {
                return f.write_str("somebody else, or was a moment ago");
            };
            // To the millisecond: a hint needs no more.
            let remaining = Duration::from_millis(remaining.as_millis() as u64);
            write!(f, "{holder:?} (fence {fence}) for {remaining:?} at most unless renewed")
        }
    }
    By(seen)
}
