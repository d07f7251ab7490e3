//! One request to a node: its bytes, and how it fails.

use std::task::Waker;

use paxoslease_core::Instant;
use paxoslease_holder::transport::{GuardId, ReleaseOutcome, Span};
use paxoslease_holder::{AskError, RenewError};

use super::Engine;
use super::protocol::Word::{Number, Text};
use super::protocol::{put, put_acquire, put_get, put_hello_again, put_renew, put_status};
use crate::command::{Keep, Query, Release, ReleaseReply, Renew};

#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: NodeRequest,
    pub(super) give_up_at: Instant,
    /// Whether an earlier node may have executed it.
    pub(super) was_sent: bool,
    /// The endpoints whose nodes have refused it.
    pub(super) refused_by: Vec<String>,
    /// Whether some endpoints had failed already when it came: then a pass over all of them has to
    /// begin again for this request.
    pub(super) is_late: bool,
    /// The last refusal, except of an acquire: its `PendingAcquire` has its own.
    pub(super) refusal: Option<AskError>,
}

#[derive(Debug)]
pub(super) enum NodeRequest {
    /// The acquire with this id.
    Acquire(u64),
    /// The holder of the lease that the acquire with this id does not get, for its error.
    Holder(u64),
    /// Cancels the wait that the node knows by this number.
    Cancel(u64),
    RenewGuard(GuardId),
    Renew(Renew),
    Keep(Keep),
    Release(Release),
    Query(Query),
    /// Asks who the members are now.
    Hello,
    Ping,
}

impl PendingRequest {
    pub(super) const fn new(request: NodeRequest, give_up_at: Instant) -> Self {
        Self {
            request,
            give_up_at,
            was_sent: false,
            refused_by: Vec::new(),
            is_late: false,
            refusal: None,
        }
    }
}

impl NodeRequest {
    /// Whether a node needs other nodes to answer.
    pub(super) const fn needs_majority(&self) -> bool {
        match self {
            Self::Query(query) => matches!(query, Query::Get { .. }),
            Self::Cancel(_) | Self::Hello | Self::Ping => false,
            _ => true,
        }
    }

    /// Tells the caller, unless the caller has left.
    pub(super) fn fail(self, error: AskError) {
        match self {
            Self::Renew(renew) => drop(renew.reply.send(Err(RenewError::Ask(error)))),
            Self::Keep(keep) => drop(keep.reply.send(Err(RenewError::Ask(error)))),
            Self::Release(release) => release.over(ReleaseOutcome::Unconfirmed(error)),
            Self::Query(query) => query.fail(error),
            Self::Acquire(_)
            | Self::Holder(_)
            | Self::Cancel(_)
            | Self::RenewGuard(_)
            | Self::Hello
            | Self::Ping => {}
        }
    }
}

impl Release {
    /// Tells the caller, unless the caller has left.
    pub(super) fn over(self, outcome: ReleaseOutcome) {
        let Self { label, tenure, reply, .. } = self;
        match reply {
            ReleaseReply::None => {}
            ReleaseReply::Guard(caller) => {
                caller.released(outcome).into_iter().for_each(Waker::wake);
            }
            ReleaseReply::Caller(reply) => {
                let _left = reply.send(outcome.into_result(label.name(), tenure.fence()));
            }
        }
    }
}

impl Engine {
    /// No endpoint or no time is left. The refusal by a node explains more than "unreachable".
    pub(super) fn give_up(&mut self, now: Instant, pending: PendingRequest, error: &AskError) {
        self.fail(now, pending.request, pending.refusal.unwrap_or_else(|| error.clone()));
    }

    /// Keeps a node's refusal, in case no other node answers.
    pub(super) fn remember(&mut self, pending: &mut PendingRequest, error: &AskError) {
        match pending.request {
            NodeRequest::Acquire(id) => self.acquires.remember(id, error),
            _ => pending.refusal = Some(error.clone()),
        }
    }

    /// Like [`NodeRequest::fail`], also for acquires.
    pub(super) fn fail(&mut self, now: Instant, request: NodeRequest, error: AskError) {
        match request {
            NodeRequest::Holder(id) => self.holder_unknown(now, id, error),
            NodeRequest::Acquire(id) => {
                if let Some(acquire) = self.acquires.remove(id) {
                    acquire.fail(error.into());
                }
            }
            request => {
                if let NodeRequest::Keep(Keep { guard: Some(id), .. }) = &request {
                    self.guards.renewal_failed(*id, now);
                }
                request.fail(error);
            }
        }
    }

    /// Writes a request. `false` if no caller and no guard needs it any more.
    pub(super) fn put(&mut self, now: Instant, request: &NodeRequest) -> bool {
        let out = &mut self.out;
        match request {
            NodeRequest::Acquire(id) => {
                let Some(acquire) = self.acquires.send(*id, now) else { return false };
                let options = acquire.queue_options(now);
                put_acquire(out, &acquire.label, acquire.span, acquire.permits, options);
            }
            NodeRequest::Holder(id) => {
                let Some(label) = self.acquires.held_label(*id) else { return false };
                put_get(out, label.name().as_str());
            }
            // A node that does not know the command goes on waiting, and the client releases what
            // it grants.
            NodeRequest::Cancel(number) => put(out, &[Text("LEASE.CANCEL"), Number(*number)]),
            NodeRequest::RenewGuard(id) => {
                let timeouts = self.renewal_timeout.for_endpoints(self.endpoints.len());
                let Some(guard) = self.guards.renewing(*id, now, timeouts) else { return false };
                put_renew(out, &guard.label, id.tenure, guard.span);
            }
            NodeRequest::Renew(Renew { label, tenure, ttl, .. }) => {
                put_renew(out, label, *tenure, Span { ttl: *ttl, lasts: None });
            }
            NodeRequest::Keep(Keep { label, tenure, lasts, .. }) => {
                put_renew(out, label, *tenure, Span::durable(*lasts));
            }
            NodeRequest::Release(Release { label, tenure, forced, is_durable, .. }) => {
                let (name, fence) = (Text(label.name().as_str()), Number(tenure.fence()));
                let options = [(*forced, "FORCE"), (*is_durable, "DURABLE")];
                let options = options.into_iter().filter(|(is_set, _)| *is_set);
                let words = [Text("LEASE.RELEASE"), name, fence].into_iter();
                let words: Vec<_> = words.chain(options.map(|(_, word)| Text(word))).collect();
                put(out, &words);
            }
            NodeRequest::Query(Query::Get { name, .. }) => put_get(out, name),
            NodeRequest::Query(Query::List { from, prefix, count, .. }) => {
                let session = self.session.as_ref().map_or(0, |session| session.number);
                let (cursor, pattern) = (from.cursor(session), format!("{prefix}*"));
                let count = Number(u64::from(*count));
                let words = [Text("MATCH"), Text(&pattern), Text("COUNT"), count];
                put(out, &[&[Text("LEASE.LIST"), Text(cursor)], &words[..]].concat());
            }
            NodeRequest::Query(Query::Status { .. }) => put_status(out),
            NodeRequest::Hello => put_hello_again(out),
            NodeRequest::Ping => put(out, &[Text("PING")]),
        }
        true
    }
}
