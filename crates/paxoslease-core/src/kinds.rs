//! The kinds of messages by name, for counters and traces.

use crate::{Hint, Message, Reply, Request};

impl Message<'_> {
    /// The names of all kinds, for counters and traces.
    pub const KINDS: [&'static str; 17] = [
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
        "Released",
        "Inspected",
        "Stood",
        "Held",
        "Freed",
        "Note",
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
                Reply::Released { .. } => 11,
                Reply::Inspected { .. } => 12,
                Reply::Stood { .. } => 13,
            },
            Self::Hint(hint) => match hint {
                Hint::Held { .. } => 14,
                Hint::Freed { .. } => 15,
                Hint::Note { .. } => 16,
            },
        }
    }

    /// The name of this kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_index()]
    }
}
