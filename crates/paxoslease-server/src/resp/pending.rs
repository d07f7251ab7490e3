//! Questions under way: whose they are, and what has to be undone when nobody is left to hear the
//! answer (P8).

use std::sync::Arc;
use std::time::Duration;

use paxoslease_node::front::{Instant, Label, Request, ShardHandle};
use slab::Slab;

use crate::quota::Claim;

/// A question's number.
pub(super) type RequestId = usize;

pub(super) struct PendingRequest {
    pub(super) owner: Owner,
    /// What an acquire is for; nothing else has to be undone.
    pub(super) label: Option<Label>,
    /// Whether it may be long until its reply, for it waits for whoever holds the lease.
    pub(super) waits: bool,
    pub(super) notify: Option<Box<Notify>>,
    /// Of an acquire by a token with a quota.
    pub(super) claim: Option<Claim>,
}

impl PendingRequest {
    /// Whether it is an acquire of such a name.
    pub(super) fn is_for(&self, which: impl Fn(&str) -> bool) -> bool {
        self.label.as_ref().is_some_and(|label| which(label.name().as_str()))
    }

    /// The memory it takes.
    pub(super) fn cost(&self) -> usize {
        let notify = self.notify.as_ref().map(|notify| size_of::<Notify>() + notify.id.len());
        size_of::<Self>() + self.label.as_ref().map_or(0, text_len) + notify.unwrap_or(0)
    }
}

/// How long both texts of a label are.
pub(super) fn text_len(label: &Label) -> usize {
    label.name().as_bytes().len() + label.holder().as_bytes().len()
}

/// Who hears the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The session of this number, as the reply to its command of that number.
    Reply { session: usize, command: u64 },
    /// The session of this number, as a push.
    Push { session: usize },
    /// Nobody any more.
    Nobody,
}

/// An acquire that will not hold up the replies behind it: first tried, and when it must wait,
/// asked for again with its patience.
pub(super) struct Notify {
    pub(super) id: Arc<[u8]>,
    pub(super) ttl: Duration,
    pub(super) asked_at: Instant,
    pub(super) patient_until: Instant,
    /// How long the first try took: waited, as far as the holder is concerned.
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

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nobody will hear the answer any more: takes an acquire back. The answer comes all the same.
    pub(super) fn orphan(&mut self, shard: &mut ShardHandle<'_>, id: RequestId) {
        let ask = &mut self.0[id];
        ask.owner = Owner::Nobody;
        if let Some(label) = &ask.label {
            shard.ask(id as u64, Request::Abandon { lease: label.name().into() });
        }
    }

    /// An acquire with NOTIFY shall wait no longer. If it waits for a push, it is taken back, and
    /// this says so; if it is tried still, it will not begin to.
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

    /// Nobody heard that it was granted: gives it back, under the same number.
    pub(super) fn give_back(&mut self, shard: &mut ShardHandle<'_>, id: RequestId, fence: u64) {
        let ask = &mut self.0[id];
        ask.owner = Owner::Nobody;
        ask.claim.take().into_iter().for_each(Claim::give_back);
        match &ask.label {
            Some(label) => {
                shard.ask(id as u64, Request::Release { lease: label.name().into(), fence });
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
    fn a_question_costs_what_it_keeps() {
        let owner = Owner::Nobody;
        let ask =
            |label, notify| PendingRequest { owner, label, waits: false, notify, claim: None };
        let bare = ask(None, None).cost();
        assert!(bare >= size_of::<PendingRequest>());
        let (name, holder) = ("n".repeat(512), "h".repeat(256));
        let (name, holder) = (Name::new(&name).expect("short"), Holder::new(&holder));
        let label = Label::new(name, holder.expect("short"));
        let notify = Notify {
            id: [7; 64].into(),
            ttl: Duration::ZERO,
            asked_at: Instant::ZERO,
            patient_until: Instant::ZERO,
            waited: Duration::ZERO,
        };
        let full = ask(Some(label), Some(Box::new(notify))).cost();
        assert!(full >= bare + 512 + 256 + 64);
    }
}
