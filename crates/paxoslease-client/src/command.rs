//! What handles and guards ask of the client's thread.

use async_channel::Sender;
use paxoslease_core::{Belief, Label, Tenure, Ttl};
use paxoslease_holder::transport::{Caller, Request, Subscription};
use paxoslease_holder::{
    AskError, LeaseInfo, MembersError, MembersPlan, MembersRequest, ReleaseError, RenewError,
};

use crate::election::LeaderChange;
use crate::list::{Page, PageStart};
use crate::status::NodeStatus;

pub(crate) type Reply<T, E = AskError> = oneshot::Sender<Result<T, E>>;

/// A `Request` comes from a handle or a guard, a `ForceRelease` from an operator, for a tenure of
/// another holder. A `Query` is for the node of the current connection.
pub(crate) enum Command {
    Request(Request),
    ForceRelease(Release),
    Query(Query),
    StatusOf { endpoint: String, reply: Reply<NodeStatus> },
    MemberStatus { reply: Reply<NodeStatus> },
    Members { request: MembersRequest, reply: Reply<MembersPlan, MembersError> },
    Watch(Subscription),
    Observe { name: Box<str>, changes: Sender<LeaderChange> },
    Stop,
}

/// A question to one node, most for a hint.
#[derive(Debug)]
pub(crate) enum Query {
    Get {
        name: Box<str>,
        reply: Reply<Option<LeaseInfo>>,
    },
    List {
        from: PageStart,
        prefix: Box<str>,
        count: u32,
        reply: Reply<Page>,
    },
    Status {
        reply: Reply<NodeStatus>,
    },
    /// Has the members keep a tenure of this caller for so long.
    Keep {
        name: Box<str>,
        fence: u64,
        millis: u64,
        reply: Reply<(), RenewError>,
    },
}

impl Query {
    /// Tells the caller, unless the caller has left.
    pub(crate) fn fail(self, error: AskError) {
        let _left = match self {
            Self::Get { reply, .. } => reply.send(Err(error)).is_err(),
            Self::List { reply, .. } => reply.send(Err(error)).is_err(),
            Self::Status { reply } => reply.send(Err(error)).is_err(),
            Self::Keep { reply, .. } => reply.send(Err(RenewError::Ask(error))).is_err(),
        };
    }
}

#[derive(Debug)]
pub(crate) struct Renew {
    pub(crate) label: Label,
    pub(crate) tenure: Tenure,
    pub(crate) ttl: Ttl,
    pub(crate) reply: Reply<(Belief, Ttl), RenewError>,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) label: Label,
    pub(crate) tenure: Tenure,
    pub(crate) forced: bool,
    pub(crate) reply: ReleaseReply,
}

/// Where the result of a release goes: nowhere, to a guard, or to a caller that released by fence.
#[derive(Debug)]
pub(crate) enum ReleaseReply {
    None,
    Guard(Caller),
    Caller(Reply<(), ReleaseError>),
}
