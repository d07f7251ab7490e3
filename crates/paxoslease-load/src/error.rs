//! Why a load failed.

use std::io;
use std::time::Duration;

use crate::plan::PlanError;

/// Why a load failed. Its leases expire after their ttl.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("cannot look up {endpoint}: {source}; expected host:port")]
    Resolve { endpoint: String, source: io::Error },
    #[error("cannot reach {endpoints}: {source}; is it running, and is this its port for clients?")]
    Unreachable {
        /// All endpoints.
        endpoints: String,
        source: io::Error,
    },
    #[error("{endpoint} has not answered for {} s; does it hang?", .silence.as_secs())]
    Silent {
        /// An endpoint with an unanswered request.
        endpoint: String,
        silence: Duration,
    },
    #[error("{endpoint} is not a PaxosLease node, but `{server}`; no request was sent")]
    Foreign { endpoint: String, server: String },
    #[error("TLS or access to {endpoint} failed: {problem}")]
    Tls { endpoint: String, problem: String },
    #[error("{endpoint} refuses: {text}")]
    Refused { endpoint: String, text: String },
    #[error("a lease to renew could not be taken from {endpoint}: {text}")]
    Fill { endpoint: String, text: String },
    #[error("{name} is held by another; choose other names, or wait until its ttl is over")]
    Taken { name: String },
    #[error("unexpected reply from {endpoint}: {text}; is this its client port?")]
    Garbled { endpoint: String, text: String },
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
