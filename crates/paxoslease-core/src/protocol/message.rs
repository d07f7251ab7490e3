//! The messages nodes exchange (protocol section 2). They borrow their texts, so that a decoder
//! hands them over without copying.
//!
//! Every message names its round by ballot (a Release by its tenure); a reply names its round
//! alone, never the resource again. Who sent it is the transport's knowledge.

use crate::{Ballot, Holder, Name, Tenure, Ttl};

/// What one node sends another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message<'a> {
    /// To an acceptor.
    Request(Request<'a>),
    /// From an acceptor to the proposer that asked.
    Reply(Reply<'a>),
    /// Never trusted, never needed: losing all hints costs only time.
    Hint(Hint<'a>),
}

/// What a proposer asks of an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request<'a> {
    /// The paper's prepare request.
    Prepare {
        /// The resource.
        name: Name<'a>,
        /// The round.
        ballot: Ballot,
    },
    /// The paper's propose request; begins the tenure named by `ballot`.
    Propose {
        /// The resource.
        name: Name<'a>,
        /// The round, and the tenure it begins.
        ballot: Ballot,
        /// How long to exclude others.
        ttl: Ttl,
        /// Who asks, for people to read.
        holder: Holder<'a>,
    },
    /// Prolongs a live tenure.
    Renew {
        /// The resource.
        name: Name<'a>,
        /// The tenure to prolong.
        tenure: Tenure,
        /// This renewal's own round.
        ballot: Ballot,
        /// How long to exclude others from now on.
        ttl: Ttl,
    },
    /// Gives a renewed tenure back to an acceptor that lost it.
    Heal {
        /// The resource.
        name: Name<'a>,
        /// The tenure a majority just renewed.
        tenure: Tenure,
        /// The ballot of that renewal.
        ballot: Ballot,
        /// The ttl of that renewal.
        ttl: Ttl,
        /// Who holds it, for people to read.
        holder: Holder<'a>,
    },
    /// Ends a tenure.
    Release {
        /// The resource.
        name: Name<'a>,
        /// The tenure to end.
        tenure: Tenure,
    },
    /// Asks what is stored; changes nothing.
    Inspect {
        /// The resource.
        name: Name<'a>,
        /// The asker's number for this question.
        query: u64,
    },
}

/// What an acceptor answers.
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
    /// The paper's *reject*, with what the sender must go above.
    Reject {
        /// The round answered.
        ballot: Ballot,
        /// `max(promised, floor)` here.
        promised: Ballot,
        /// The live lease, if any.
        accepted: Option<Seen<'a>>,
    },
    /// A renewal found no such live tenure.
    NotHeld {
        /// The round answered.
        ballot: Ballot,
        /// `max(promised, floor)` here.
        promised: Ballot,
    },
    /// A release was carried out, or there was nothing to release.
    Released {
        /// The tenure that is over.
        tenure: Tenure,
        /// Whether it was live here.
        held: bool,
    },
    /// What is stored.
    Inspected {
        /// The asker's number for this question.
        query: u64,
        /// The live lease, if any.
        accepted: Option<Seen<'a>>,
    },
}

/// A live lease as an acceptor reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seen<'a> {
    /// Whose.
    pub tenure: Tenure,
    /// How long still, on the acceptor's clock, rounded up.
    pub remaining: Ttl,
    /// Who, for people to read.
    pub holder: Holder<'a>,
}

/// What may speed things up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hint<'a> {
    /// The paper's learn message: somebody was granted a lease.
    Held {
        /// The resource.
        name: Name<'a>,
        /// Which tenure, who, and how long still.
        seen: Seen<'a>,
    },
    /// The paper's release hint: it may be worth trying now.
    Freed {
        /// The resource.
        name: Name<'a>,
        /// How many nodes have their turn before the receiver, as far as the sender knows.
        nodes_before: u8,
    },
}

impl Message<'_> {
    /// Every kind by name, for counters and traces.
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

    /// Its place among [`Self::KINDS`].
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

    /// Its kind by name.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        Self::KINDS[self.kind_index()]
    }
}

impl<'a> Request<'a> {
    /// The resource it is about.
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

    /// The round it belongs to; a Release and an Inspect belong to none.
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
    /// What the next round must reach, where the reply says so.
    #[must_use]
    pub const fn promised(&self) -> Option<Ballot> {
        match self {
            Self::Reject { promised, .. } | Self::NotHeld { promised, .. } => Some(*promised),
            Self::Promise { .. }
            | Self::Accept { .. }
            | Self::Released { .. }
            | Self::Inspected { .. } => None,
        }
    }
}
