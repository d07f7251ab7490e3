//! The kinds of messages by name, for counters and traces.

use crate::{Hint, Message, Reply, Request};

impl Message<'_> {
    /// The names of all kinds, for counters and traces.
    pub const KINDS: [&'static str; 14] = [
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
        "Released",
        "Inspected",
        "Held",
        "Freed",
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
                Reply::Released { .. } => 10,
                Reply::Inspected { .. } => 11,
            },
            Self::Hint(hint) => match hint {
                Hint::Held { .. } => 12,
                Hint::Freed { .. } => 13,
            },
        }
    }

    /// The name of this kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_index()]
    }
}
