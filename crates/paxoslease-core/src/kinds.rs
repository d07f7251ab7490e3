//! The kinds of messages by name, for counters and traces.

use crate::{DurableMessage, Hint, Message, Reply, Request};

impl Message<'_> {
    /// The names of all kinds, for counters and traces.
    pub const KINDS: [&'static str; 26] = [
        "Prepare",
        "Propose",
        "Renew",
        "Heal",
        "Release",
        "Inspect",
        "Promise",
        "Accept",
        "Reject",
        "NotHeld",
        "Healed",
        "NotHealed",
        "Released",
        "Inspected",
        "Held",
        "Freed",
        "Note",
        "DurablePrepare",
        "Store",
        "All",
        "DurablePromise",
        "Stored",
        "DurableReject",
        "Refused",
        "DurableInspected",
        "IsDurable",
    ];

    /// The index of this kind in [`Self::KINDS`].
    #[must_use]
    pub const fn kind_index(&self) -> usize {
        match self {
            Self::Request(request) => match request {
                Request::Prepare { .. } => 0,
                Request::Propose { .. } => 1,
                Request::Renew { .. } => 2,
                Request::Heal { .. } => 3,
                Request::Release { .. } => 4,
                Request::Inspect { .. } => 5,
            },
            Self::Reply(reply) => match reply {
                Reply::Promise { .. } => 6,
                Reply::Accept { .. } => 7,
                Reply::Reject { .. } => 8,
                Reply::NotHeld { .. } => 9,
                Reply::Healed { .. } => 10,
                Reply::NotHealed { .. } => 11,
                Reply::Released { .. } => 12,
                Reply::Inspected { .. } => 13,
            },
            Self::Hint(hint) => match hint {
                Hint::Held { .. } => 14,
                Hint::Freed { .. } => 15,
                Hint::Note { .. } => 16,
            },
            Self::Durable(message) => match message {
                DurableMessage::Prepare { .. } => 17,
                DurableMessage::Store { .. } => 18,
                DurableMessage::All { .. } => 19,
                DurableMessage::Promise { .. } => 20,
                DurableMessage::Stored { .. } => 21,
                DurableMessage::Reject { .. } => 22,
                DurableMessage::Refused { .. } => 23,
                DurableMessage::Inspected { .. } => 24,
                DurableMessage::IsDurable { .. } => 25,
            },
        }
    }

    /// The name of this kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_index()]
    }
}
