//! The kinds of messages by name, for counters and traces.

use crate::{DurableMessage, Hint, Message, Reply, Request};

impl Message<'_> {
    /// The names of all kinds, for counters and traces.
    pub const KINDS: [&'static str; 27] = [
        "Prepare",
        "Propose",
        "Renew",
        "Heal",
        "Release",
        "Inspect",
        "Stand",
        "Promise",
        "Accept",
        "Reject",
        "NotHeld",
        "Healed",
        "NotHealed",
        "Released",
        "Inspected",
        "Stood",
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
                Request::Stand { .. } => 6,
            },
            Self::Reply(reply) => match reply {
                Reply::Promise { .. } => 7,
                Reply::Accept { .. } => 8,
                Reply::Reject { .. } => 9,
                Reply::NotHeld { .. } => 10,
                Reply::Healed { .. } => 11,
                Reply::NotHealed { .. } => 12,
                Reply::Released { .. } => 13,
                Reply::Inspected { .. } => 14,
                Reply::Stood { .. } => 15,
            },
            Self::Hint(hint) => match hint {
                Hint::Held { .. } => 16,
                Hint::Freed { .. } => 17,
                Hint::Note { .. } => 18,
            },
            Self::Durable(message) => match message {
                DurableMessage::Prepare { .. } => 19,
                DurableMessage::Store { .. } => 20,
                DurableMessage::All { .. } => 21,
                DurableMessage::Promise { .. } => 22,
                DurableMessage::Stored { .. } => 23,
                DurableMessage::Reject { .. } => 24,
                DurableMessage::Refused { .. } => 25,
                DurableMessage::IsDurable { .. } => 26,
            },
        }
    }

    /// The name of this kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_index()]
    }
}
