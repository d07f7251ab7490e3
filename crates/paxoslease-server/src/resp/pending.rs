//! Requests without an answer: which session gets the answer, and what to undo if that session has
//! ended (P8).

use std::sync::Arc;
use std::time::Duration;

use paxoslease_node::front::{Answer, Instant, Label, Permits, Request, ShardHandle};
use slab::Slab;

use super::redis::{KeyList, OperationId};
use crate::audit::Entry;
use crate::durable::DurableRequest;
use crate::quota::{Claim, Renewal};

/// The number of a request.
pub(super) type RequestId = usize;

#[derive(Default)]
pub(super) struct PendingRequest {
    pub(super) owner: Owner,
    /// The name and holder of an acquire; other requests have nothing to undo.
    pub(super) label: Option<Label>,
    /// Whether it queues while another holder has the lease, so that its reply may take long.
    pub(super) waits: bool,
    /// Whether the reply to an inspection is only the time that is left.
    pub(super) only_ttl: bool,
    pub(super) notify: Option<Box<Notify>>,
    /// The list of keys that a page of leases belongs to.
    pub(super) keys: Option<Box<KeyList>>,
    /// Set if it asks for a durable lease, or sets its end.
    pub(super) durable: Option<DurableRequest>,
    /// The claim of an acquire with a token that has a quota.
    pub(super) claim: Option<Claim>,
    /// A renewal with such a token.
    pub(super) renewal: Option<Box<Renewal>>,
    /// What goes to the audit log if it succeeds. That of an acquire is put there once the grant
    /// was sent.
    pub(super) entry: Option<Box<Entry>>,
}

impl PendingRequest {
    /// Whether it is an acquire of a name that `which` selects.
    pub(super) fn is_for(&self, which: impl Fn(&str) -> bool) -> bool {
        self.label.as_ref().is_some_and(|label| which(label.name().as_str()))
    }

    /// Whether its answer leads to work that is counted in steps.
    pub(super) fn takes_steps(&self) -> bool {
        self.keys.is_some() || matches!(self.owner, Owner::Operation { .. })
    }

    /// A permit was granted. From now on, the request is for the lease of that permit.
    pub(super) fn name_permit(&mut self, answer: &Answer) {
        let label = self.label.as_ref().and_then(|asked| answer.granted_label(asked));
        if let (Some(label), Some(entry)) = (&label, &mut self.entry) {
            entry.name = Some(label.name().to_string());
        }
        self.label = label;
    }

    /// Its memory in bytes.
    pub(super) fn cost(&self) -> usize {
        let notify = self.notify.as_ref().map(|notify| size_of::<Notify>() + notify.id.len());
        let entry = self.entry.as_ref().map_or(0, |entry| entry.cost());
        size_of::<Self>() + self.label.as_ref().map_or(0, text_len) + notify.unwrap_or(0) + entry
    }
}

/// The bytes of both texts of a label.
pub(super) fn text_len(label: &Label) -> usize {
    label.name().as_bytes().len() + label.holder().as_bytes().len()
}

/// Where the answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Owner {
    /// The session of this number, as the reply to its command of that number.
    Reply { session: usize, command: u64 },
    /// The session of this number, as a push.
    Push { session: usize },
    /// An operation of the Redis dialect, about its key at this place.
    Operation { operation: OperationId, place: usize },
    /// The session has ended.
    #[default]
    Nobody,
}

/// An acquire that does not delay the replies behind it. It is tried without a wait first. If it
/// must wait, it is requested again, and the answer is a push.
pub(super) struct Notify {
    pub(super) id: Arc<[u8]>,
    pub(super) ttl: Duration,
    pub(super) permits: Option<Permits>,
    pub(super) asked_at: Instant,
    pub(super) patient_until: Instant,
    /// How long the first try took, which counts as waited.
    pub(super) waited: Duration,
}

#[derive(Default)]
pub(super) struct PendingRequests(Slab<PendingRequest>);

impl PendingRequests {
    pub(super) fn insert(&mut self, ask: PendingRequest) -> RequestId {
        self.0.insert(ask)
    }

    pub(super) fn get(&mut self, id: RequestId) -> &mut PendingRequest {
        &mut self.0[id]
    }

    pub(super) fn remove(&mut self, id: RequestId) {
        self.0.remove(id);
    }

    pub(super) fn take(&mut self, id: RequestId) -> PendingRequest {
        self.0.remove(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The session of a request has ended: withdraws an acquire. The answer still comes.
    pub(super) fn orphan(&mut self, shard: &mut ShardHandle<'_>, id: RequestId) {
        let ask = &mut self.0[id];
        ask.owner = Owner::Nobody;
        if let Some(label) = &ask.label {
            shard.ask(id as u64, Request::Abandon { lease: label.name().into() });
        }
    }

    /// Ends the wait of an acquire with NOTIFY. Returns whether it waited for a push and is
    /// withdrawn. An acquire that is still tried will not begin to wait.
    pub(super) fn take_back(&mut self, shard: &mut ShardHandle<'_>, id: RequestId) -> bool {
        let ask = &mut self.0[id];
        let waits = matches!(ask.owner, Owner::Push { .. });
        if waits {
            self.orphan(shard, id);
        } else if let Some(notify) = &mut ask.notify {
            notify.patient_until = Instant::ZERO;
        }
        waits
    }

    /// The grant was not sent: releases the lease, under the same number.
    pub(super) fn give_back(&mut self, shard: &mut ShardHandle<'_>, id: RequestId, fence: u64) {
        let ask = &mut self.0[id];
        ask.owner = Owner::Nobody;
        ask.claim.take().into_iter().for_each(Claim::give_back);
        match &ask.label {
            Some(label) => {
                let (lease, is_durable) = (label.name().into(), ask.durable.is_some());
                shard.ask(id as u64, Request::Release { lease, fence, is_durable });
            }
            None => self.remove(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use paxoslease_node::front::{Holder, Name};

    use super::*;

    #[test]
    fn a_request_costs_what_it_keeps() {
        let ask = |label, notify| PendingRequest { label, notify, ..PendingRequest::default() };
        let bare = ask(None, None).cost();
        assert!(bare >= size_of::<PendingRequest>());
        let (name, holder) = ("n".repeat(512), "h".repeat(256));
        let (name, holder) = (Name::new(&name).expect("short"), Holder::new(&holder));
        let label = Label::new(name, holder.expect("short"));
        let notify = Notify {
            id: [7; 64].into(),
            ttl: Duration::ZERO,
            permits: None,
            asked_at: Instant::ZERO,
            patient_until: Instant::ZERO,
            waited: Duration::ZERO,
        };
        let full = ask(Some(label), Some(Box::new(notify))).cost();
        assert!(full >= bare + 512 + 256 + 64);
    }
}
