//! Why a load came to nothing.

use std::io;
use std::time::Duration;

use crate::plan::PlanError;

/// Why a load came to nothing. Leases that were taken last until their ttl is over, at most.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There can be no such load.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An address that leads nowhere.
    #[error("cannot look up {endpoint}: {source}; expected host:port")]
    Resolve {
        /// As it was given.
        endpoint: String,
        /// What the system says.
        source: io::Error,
    },
    /// No endpoint takes a connection, or keeps it.
    #[error("cannot reach {endpoints}: {source}; is it running, and is this its port for clients?")]
    Unreachable {
        /// All of them.
        endpoints: String,
        /// What the system says of the last.
        source: io::Error,
    },
    /// It takes connections, and then is silent.
    #[error("{endpoint} has not answered for {} s; does it hang?", .silence.as_secs())]
    Silent {
        /// One that owes an answer.
        endpoint: String,
        /// For how long nobody has answered.
        silence: Duration,
    },
    /// Another kind of server.
    #[error("{endpoint} is no PaxosLease node, it says it is `{server}`; nothing was asked of it")]
    Foreign {
        /// Which.
        endpoint: String,
        /// What it calls itself.
        server: String,
    },
    /// One side does not trust the other.
    #[error("no trust between here and {endpoint}: {problem}")]
    Tls {
        /// Which.
        endpoint: String,
        /// What went wrong.
        problem: String,
    },
    /// It refuses what would be asked again and again.
    #[error("{endpoint} refuses: {text}")]
    Refused {
        /// Which.
        endpoint: String,
        /// In its words.
        text: String,
    },
    /// Leases that were to be renewed could not be taken.
    #[error("a lease to renew could not be taken from {endpoint}: {text}")]
    Fill {
        /// Which.
        endpoint: String,
        /// In its words, or ours.
        text: String,
    },
    /// A name that was to be renewed is held by somebody else.
    #[error("{name} is held by another; choose other names, or wait until its ttl is over")]
    Taken {
        /// Which.
        name: String,
    },
    /// Whatever it speaks, it is not what was expected.
    #[error("{endpoint} does not speak as expected: {text}; is this its port for clients?")]
    Garbled {
        /// Which.
        endpoint: String,
        /// What was not expected.
        text: String,
    },
    /// This machine does not let us.
    #[error("cannot wait for sockets: {0}")]
    System(#[from] io::Error),
}

impl LoadError {
    /// Whether there is no cell that could serve, rather than something wrong with the question.
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
