//! A reply that is not due yet, because a reply before it is not known.
//!
//! A reply that is known is kept until it is due, while its client may send more commands. So its
//! memory counts as unread. The limit on commands under way bounds replies that are not known.

use paxoslease_node::front::Answer;
use paxoslease_wire::resp::Protocol;

use super::pending::{PendingRequests, RequestId, text_len};
use super::redis::OperationId;

pub(super) struct Expected {
    /// The version that the client spoke when it sent the command.
    pub(super) protocol: Protocol,
    pub(super) state: State,
    /// What was added to the total for it.
    counted: usize,
}

pub(super) enum State {
    Pending(RequestId),
    /// An operation of the Redis dialect that has not ended.
    Operation(OperationId),
    Answered(RequestId, Answer),
    Bytes(Box<[u8]>),
    /// The reply of an operation that acquired leases: their requests and fences.
    Grants(Box<[u8]>, Vec<(RequestId, u64)>),
}

impl Expected {
    pub(super) const fn new(protocol: Protocol, state: State) -> Self {
        Self { protocol, state, counted: 0 }
    }

    /// The reply is known but not due: adds its memory to the total.
    pub(super) fn count(&mut self, pending: &mut PendingRequests, total: &mut usize) {
        self.count_as(self.state.cost(pending), total);
    }

    /// The same for a reply that is not known but takes memory.
    pub(super) fn count_as(&mut self, cost: usize, total: &mut usize) {
        self.forget(total);
        self.counted = cost;
        *total += cost;
    }

    /// Subtracts from the total what was added.
    pub(super) fn forget(&mut self, total: &mut usize) {
        *total -= std::mem::take(&mut self.counted);
    }
}

impl State {
    /// The memory in bytes. For short replies this is more than their text.
    fn cost(&self, pending: &mut PendingRequests) -> usize {
        let more = match self {
            // The number of operations is bounded like that of requests.
            Self::Pending(_) | Self::Operation(_) => 0,
            Self::Answered(ask, answer) => pending.get(*ask).cost() + answer_cost(answer),
            Self::Bytes(bytes) => bytes.len(),
            Self::Grants(bytes, grants) => {
                let requests = grants.iter().map(|(ask, _)| pending.get(*ask).cost());
                bytes.len() + requests.sum::<usize>()
            }
        };
        size_of::<Expected>() + more
    }
}

/// The memory of an answer besides itself. Lists are bytes by then.
fn answer_cost(answer: &Answer) -> usize {
    match answer {
        Answer::Held(seen) => text_len(&seen.label),
        Answer::Inspected(Some(seen)) => text_len(&seen.label) + size_of_val(&**seen),
        _ => 0,
    }
}
