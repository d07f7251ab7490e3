//! A reply that is not due yet: those before it come first, whether it is known already or not.
//!
//! What is known is kept until then, and its client sends on meanwhile: so what it costs counts as
//! unread. What is not known is bounded by the questions a connection may have under way.

use paxoslease_node::front::Answer;
use paxoslease_wire::resp::Protocol;

use super::pending::{PendingRequests, RequestId, text_len};

pub(super) struct Expected {
    /// What the client spoke when it asked.
    pub(super) protocol: Protocol,
    pub(super) state: State,
    /// What it was counted for. Remembered, so that just as much is taken off again.
    counted: usize,
}

pub(super) enum State {
    Pending(RequestId),
    Answered(RequestId, Answer),
    Bytes(Box<[u8]>),
}

impl Expected {
    pub(super) const fn new(protocol: Protocol, state: State) -> Self {
        Self { protocol, state, counted: 0 }
    }

    /// Is known and has to wait: adds to the total what it costs as it is now.
    pub(super) fn count(&mut self, pending: &mut PendingRequests, total: &mut usize) {
        self.forget(total);
        self.counted = self.state.cost(pending);
        *total += self.counted;
    }

    /// Takes off the total what was added.
    pub(super) fn forget(&mut self, total: &mut usize) {
        *total -= std::mem::take(&mut self.counted);
    }
}

impl State {
    /// The memory it takes: for many short replies that is more than their bytes.
    fn cost(&self, pending: &mut PendingRequests) -> usize {
        let more = match self {
            Self::Pending(_) => 0,
            Self::Answered(ask, answer) => pending.get(*ask).cost() + answer_cost(answer),
            Self::Bytes(bytes) => bytes.len(),
        };
        size_of::<Expected>() + more
    }
}

/// What an answer takes besides itself. Lists are bytes by then.
fn answer_cost(answer: &Answer) -> usize {
    match answer {
        Answer::Held(seen) | Answer::Inspected(Some(seen)) => text_len(&seen.label),
        _ => 0,
    }
}
