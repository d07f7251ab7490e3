//! What handles and guards ask of the client's thread.

use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::{Label, Tenure, Ttl};
use tokio::sync::watch;

use crate::client::Shared;
use crate::election::Leader;
use crate::error::{AcquireError, AskError, ReleaseError, RenewError};
use crate::grant::Grant;
use crate::lease::LeaseGuard;
use crate::list::{Page, PageStart};
use crate::status::Status;
use crate::ticket::Ticket;
use crate::watch::{Sighting, Subscription};

pub(crate) type Reply<T, E = AskError> = oneshot::Sender<Result<T, E>>;

pub(crate) enum Command {
    Acquire(Wish),
    /// Nobody waits for this wish any more (P8).
    Abandon(u64),
    Renew(Renew),
    Release(Release),
    /// As above, of a guard: it is not to be renewed any more.
    GiveBack(Arc<Ticket>, Release),
    Get {
        name: Box<str>,
        reply: Reply<Option<Sighting>>,
    },
    List {
        from: PageStart,
        prefix: Box<str>,
        count: u32,
        reply: Reply<Page>,
    },
    Status {
        reply: Reply<Status>,
    },
    StatusOf {
        endpoint: String,
        reply: Reply<Status>,
    },
    Watch(Subscription),
    Observe {
        name: Box<str>,
        leader: watch::Sender<Option<Leader>>,
    },
    Stop,
}

/// A wish for a lease.
pub(crate) struct Wish {
    /// Unique in this client.
    pub(crate) id: u64,
    pub(crate) label: Label,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Duration,
    pub(crate) reply: WishReply,
}

/// What a granted wish becomes.
pub(crate) enum WishReply {
    Guard(Arc<Shared>, Reply<LeaseGuard, AcquireError>),
    Detached(Reply<Grant, AcquireError>),
    /// Whoever wished is gone; a grant is to be given back (P8).
    Nobody,
}

impl WishReply {
    /// Whoever left need not hear it.
    pub(crate) fn fail(self, error: AcquireError) {
        let _left = match self {
            Self::Guard(_, reply) => reply.send(Err(error)).is_err(),
            Self::Detached(reply) => reply.send(Err(error)).is_err(),
            Self::Nobody => true,
        };
    }
}

pub(crate) struct Renew {
    pub(crate) name: Box<str>,
    pub(crate) tenure: Tenure,
    pub(crate) ttl: Ttl,
    pub(crate) reply: Reply<Grant, RenewError>,
}

pub(crate) struct Release {
    pub(crate) name: Box<str>,
    pub(crate) tenure: Tenure,
    /// `None` when nobody waits for the confirmation.
    pub(crate) reply: Option<Reply<(), ReleaseError>>,
}
