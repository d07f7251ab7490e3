//! What handles and guards ask of the client's thread.

use async_channel::Sender;
use paxoslease_core::{Belief, Label, Lasts, Tenure, Ttl};
use paxoslease_holder::transport::{Caller, GuardId, Request, Subscription};
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
    Get { name: Box<str>, reply: Reply<Option<LeaseInfo>> },
    List { from: PageStart, prefix: Box<str>, count: u32, reply: Reply<Page> },
    Status { reply: Reply<NodeStatus> },
}

impl Query {
    /// Tells the caller, unless the caller has left.
    pub(crate) fn fail(self, error: AskError) {
        let _left = match self {
            Self::Get { reply, .. } => reply.send(Err(error)).is_err(),
            Self::List { reply, .. } => reply.send(Err(error)).is_err(),
            Self::Status { reply } => reply.send(Err(error)).is_err(),
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
pub(crate) struct Keep {
    pub(crate) label: Label,
    pub(crate) tenure: Tenure,
    pub(crate) lasts: Lasts,
    /// The guard of this tenure, if it has one.
    pub(crate) guard: Option<GuardId>,
    pub(crate) reply: Reply<Belief, RenewError>,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) label: Label,
    pub(crate) tenure: Tenure,
    pub(crate) forced: bool,
    /// K10: whether a caller ever asked to keep the tenure.
    pub(crate) is_durable: bool,
    pub(crate) reply: ReleaseReply,
}

/// Where the result of a release goes: nowhere, to a guard, or to a caller that released by fence.
#[derive(Debug)]
pub(crate) enum ReleaseReply {
    None,
    Guard(Caller),
    Caller(Reply<(), ReleaseError>),
}
