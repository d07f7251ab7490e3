//! Why a load failed.

use std::io;
use std::time::Duration;

use crate::plan::PlanError;

/// Why a load failed. Its leases expire after their ttl.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The plan is not valid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An address could not be resolved.
    #[error("cannot look up {endpoint}: {source}; expected host:port")]
    Resolve {
        /// The endpoint as given.
        endpoint: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// No endpoint accepts or keeps a connection.
    #[error("cannot reach {endpoints}: {source}; is it running, and is this its port for clients?")]
    Unreachable {
        /// All endpoints.
        endpoints: String,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// The server accepts connections and does not answer.
    #[error("{endpoint} has not answered for {} s; does it hang?", .silence.as_secs())]
    Silent {
        /// An endpoint with an unanswered request.
        endpoint: String,
        /// The time since the last answer.
        silence: Duration,
    },
    /// The server is not a PaxosLease node.
    #[error("{endpoint} is no PaxosLease node, it says it is `{server}`; nothing was asked of it")]
    Foreign {
        /// The endpoint or name.
        endpoint: String,
        /// The name that it reports.
        server: String,
    },
    /// The TLS handshake or the token failed.
    #[error("no trust between here and {endpoint}: {problem}")]
    Tls {
        /// The endpoint or name.
        endpoint: String,
        /// The problem.
        problem: String,
    },
    /// The server refuses requests with a lasting error.
    #[error("{endpoint} refuses: {text}")]
    Refused {
        /// The endpoint or name.
        endpoint: String,
        /// The error text of the server.
        text: String,
    },
    /// The load could not acquire the leases that it has to renew.
    #[error("a lease to renew could not be taken from {endpoint}: {text}")]
    Fill {
        /// The endpoint or name.
        endpoint: String,
        /// The error text.
        text: String,
    },
    /// Another client holds a lease that the load has to renew.
    #[error("{name} is held by another; choose other names, or wait until its ttl is over")]
    Taken {
        /// The endpoint or name.
        name: String,
    },
    /// The server sent an unexpected reply.
    #[error("{endpoint} does not speak as expected: {text}; is this its port for clients?")]
    Garbled {
        /// The endpoint or name.
        endpoint: String,
        /// The unexpected reply.
        text: String,
    },
    /// The event loop failed.
    #[error("cannot wait for sockets: {0}")]
    System(#[from] io::Error),
}

impl LoadError {
    /// Whether the reason is the service, not the plan or the permissions.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Fill { .. } => true,
            Self::Foreign { .. } | Self::Garbled { .. } => true,
            Self::Resolve { source, .. } => source.kind() != io::ErrorKind::InvalidInput,
            Self::Plan(_)
            | Self::Tls { .. }
            | Self::Refused { .. }
            | Self::Taken { .. }
            | Self::System(_) => false,
        }
    }
}
