//! The messages between nodes (protocol section 2). They borrow their texts, so that a decoder
//! copies nothing.
//!
//! Every message names its round by its ballot (a Release by its tenure). A reply does not repeat
//! the name. No message carries its sender, because the transport knows it.

use crate::{Ballot, DurableMessage, Holder, Name, ReleaseId, Tenure, Ttl};

/// A message from one node to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message<'a> {
    /// From a proposer to an acceptor.
    Request(Request<'a>),
    /// From an acceptor to the proposer that sent the request.
    Reply(Reply<'a>),
    /// Saves time. No rule of safety relies on a hint.
    Hint(Hint<'a>),
    /// About the register of a durable name (protocol section 10).
    Durable(DurableMessage<'a>),
}

/// A proposer's request to an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request<'a> {
    /// The paper's prepare request.
    Prepare {
        /// The leased name.
        name: Name<'a>,
        /// The round that asks for a promise.
        ballot: Ballot,
    },
    /// The paper's propose request; begins the tenure named by `ballot`.
    Propose {
        /// The leased name.
        name: Name<'a>,
        /// The round, and the tenure it begins.
        ballot: Ballot,
        /// How long to exclude other tenures.
        ttl: Ttl,
        /// The client's text.
        holder: Holder<'a>,
    },
    /// Prolongs a tenure where it is live (P5).
    Renew {
        /// The leased name.
        name: Name<'a>,
        /// The tenure to prolong.
        tenure: Tenure,
        /// The round of this renewal.
        ballot: Ballot,
        /// How long to exclude other tenures from now on.
        ttl: Ttl,
    },
    /// Stores a renewed tenure at an acceptor that has lost it (P5).
    Heal {
        /// The leased name.
        name: Name<'a>,
        /// The tenure that a majority has renewed.
        tenure: Tenure,
        /// The ballot of that renewal.
        ballot: Ballot,
        /// The ttl of that renewal.
        ttl: Ttl,
        /// The holder's text.
        holder: Holder<'a>,
    },
    /// Ends a tenure (P6).
    Release {
        /// The leased name.
        name: Name<'a>,
        /// The tenure to end.
        tenure: Tenure,
        /// Names this Release. A repetition has the same.
        id: ReleaseId,
    },
    /// Asks for the live lease; changes nothing.
    Inspect {
        /// The leased name.
        name: Name<'a>,
        /// The sender's number for this inspection.
        query: u64,
    },
}

/// An acceptor's answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reply<'a> {
    /// The paper's prepare response with answer *accept*.
    Promise {
        /// The round answered.
        ballot: Ballot,
        /// The live lease, if any.
        accepted: Option<Seen<'a>>,
    },
    /// The paper's propose response with answer *accept*; also for a renewal.
    Accept {
        /// The round answered.
        ballot: Ballot,
    },
    /// The paper's answer *reject*, with the promise that the next ballot has to reach.
    Reject {
        /// The round answered.
        ballot: Ballot,
        /// `max(promised, floor)` at the acceptor.
        promised: Ballot,
        /// The live lease, if any.
        accepted: Option<Seen<'a>>,
    },
    /// The answer to a Renew of a tenure that is not live.
    NotHeld {
        /// The round answered.
        ballot: Ballot,
        /// `max(promised, floor)` at the acceptor.
        promised: Ballot,
    },
    /// In a joint epoch, the answer to a Heal that was stored (J1).
    Healed {
        /// The round answered.
        ballot: Ballot,
    },
    /// In a joint epoch, the answer to a Heal that was refused (J1). It differs from the refusals
    /// of a round's first step, which may arrive later.
    NotHealed {
        /// The round answered.
        ballot: Ballot,
        /// `max(promised, floor)` at the acceptor.
        promised: Ballot,
    },
    /// The answer to a Release, whether the tenure was stored or not.
    Released {
        /// The tenure that is over.
        tenure: Tenure,
        /// The Release that ended it here; zero if the acceptor may have forgotten it, and `None`
        /// if the tenure was not live here (A9).
        by: Option<ReleaseId>,
    },
    /// The answer to an Inspect.
    Inspected {
        /// The sender's number for this inspection.
        query: u64,
        /// The live lease, if any.
        accepted: Option<Seen<'a>>,
    },
}

/// A live lease as an acceptor reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seen<'a> {
    /// The tenure; its number is the fence.
    pub tenure: Tenure,
    /// The time left on the acceptor's clock, rounded up.
    pub remaining: Ttl,
    /// The holder's text.
    pub holder: Holder<'a>,
}

/// A message that may save time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hint<'a> {
    /// The paper's learn message: a lease was granted.
    Held {
        /// The leased name.
        name: Name<'a>,
        /// The lease.
        seen: Seen<'a>,
    },
    /// The paper's release hint: the name may be free.
    Freed {
        /// The leased name.
        name: Name<'a>,
        /// How many nodes have their turn before the receiver, by the sender's queue.
        nodes_before: u8,
    },
    /// A text for the clients that watch a name. It says nothing about a lease.
    Note {
        /// The name.
        name: Name<'a>,
        /// The text.
        text: Holder<'a>,
    },
}

impl<'a> Request<'a> {
    /// The name that the request is about.
    #[must_use]
    pub const fn name(&self) -> Name<'a> {
        match self {
            Self::Prepare { name, .. }
            | Self::Propose { name, .. }
            | Self::Renew { name, .. }
            | Self::Heal { name, .. }
            | Self::Release { name, .. }
            | Self::Inspect { name, .. } => *name,
        }
    }

    /// The round; `None` for a Release and an Inspect.
    #[must_use]
    pub const fn ballot(&self) -> Option<Ballot> {
        match self {
            Self::Prepare { ballot, .. }
            | Self::Propose { ballot, .. }
            | Self::Renew { ballot, .. }
            | Self::Heal { ballot, .. } => Some(*ballot),
            Self::Release { .. } | Self::Inspect { .. } => None,
        }
    }
}

impl Reply<'_> {
    /// The promise that the next ballot has to reach, if the reply reports one.
    #[must_use]
    pub const fn promised(&self) -> Option<Ballot> {
        match self {
            Self::Reject { promised, .. }
            | Self::NotHeld { promised, .. }
            | Self::NotHealed { promised, .. } => Some(*promised),
            Self::Promise { .. }
            | Self::Accept { .. }
            | Self::Healed { .. }
            | Self::Released { .. }
            | Self::Inspected { .. } => None,
        }
    }

    /// Whether the acceptor did not do as it was asked. Every other acceptor counts then.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Reject { .. }
                | Self::NotHeld { .. }
                | Self::NotHealed { .. }
                | Self::Released { by: None, .. }
        )
    }
}
