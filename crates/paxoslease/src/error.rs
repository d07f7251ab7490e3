//! What can go wrong, one enum per operation. Each says what was expected and what is left behind.

use std::time::Duration;

use paxoslease_core::{TextError, TtlError};

/// Why a lease was not granted. Nothing is held, and nothing was changed that outlives the ttl.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds it, and the wait, if any, is over.
    #[error(
        "{name:?} is held by {holder:?} (fence {fence}), for {remaining:?} at most unless renewed"
    )]
    Held {
        /// What was asked for.
        name: String,
        /// Who holds it, in the holder's own words: a hint.
        holder: String,
        /// That tenure's fence: a hint, and not ours to use.
        fence: u64,
        /// How long that lease lasts unless it is renewed: a hint.
        remaining: Duration,
    },
    /// No majority of the cell answered in time, or contenders kept splitting the vote.
    #[error(
        "no majority of the cell answered in time; see the node's status for who is unreachable \
         or quarantined"
    )]
    NoQuorum,
    /// The ttl is out of bounds.
    #[error("{0}")]
    Ttl(#[from] TtlError),
    /// The name is out of bounds.
    #[error("bad name: {0}")]
    Name(TextError),
    /// The holder text is out of bounds.
    #[error("bad holder: {0}")]
    Holder(TextError),
    /// The node is at one of its limits.
    #[error("the node is at its limit: {0}; try again later or raise the limit")]
    Busy(String),
    /// The node was shut down.
    #[error("the node was shut down")]
    Stopped,
}

/// How a release ended other than well. The lease is not held in any case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lease had been lost before.
    #[error("the lease was not held any more when it was released")]
    NotHeld,
    /// No majority confirmed in time. The lease is free at the latest when its ttl is over.
    #[error("no majority confirmed the release; the lease is free when its ttl is over")]
    Unconfirmed,
    /// The node was shut down before a majority confirmed. The lease is free at the latest when
    /// its ttl is over.
    #[error("the node was shut down before a majority confirmed the release")]
    Stopped,
}

/// Why a question about the cell was not answered. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The name is out of bounds.
    #[error("bad name: {0}")]
    Name(TextError),
    /// No majority of the cell answered in time.
    #[error(
        "no majority of the cell answered in time; see the node's status for who is unreachable \
         or quarantined"
    )]
    NoQuorum,
    /// The node is at one of its limits.
    #[error("the node is at its limit: {0}; try again later or raise the limit")]
    Busy(String),
    /// The node was shut down.
    #[error("the node was shut down")]
    Stopped,
}
