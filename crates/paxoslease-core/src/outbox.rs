//! What a shard hands its caller: messages to send and events to act on.
//!
//! Both own their texts (compactly, see `text.rs`), wait in queues whose memory is reused, and are
//! taken by polling. A broadcast is kept once, with the set of members it is for.

use alloc::collections::VecDeque;
use core::mem;
use core::time::Duration;

use crate::{
    Ballot, Hint, Holder, Instant, Label, MemberSet, Message, NodeId, Record, Reply, Request, Seen,
    Tenure, Ttl,
};

/// Whom a message is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum To {
    /// These acceptors of the cell.
    Members(MemberSet),
    /// One node, acceptor or not.
    Node(NodeId),
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// Whom to.
    pub to: To,
    pub(crate) body: Body,
}

/// A [`Message`] that owns its texts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Body {
    Prepare { label: Label, ballot: Ballot },
    Propose { label: Label, ballot: Ballot, ttl: Ttl },
    Renew { label: Label, tenure: Tenure, ballot: Ballot, ttl: Ttl },
    Heal { label: Label, tenure: Tenure, ballot: Ballot, ttl: Ttl },
    Release { label: Label, tenure: Tenure },
    Inspect { label: Label, query: u64 },
    Promise { ballot: Ballot, accepted: Option<Sighting> },
    Accept { ballot: Ballot },
    Reject { ballot: Ballot, promised: Ballot, accepted: Option<Sighting> },
    NotHeld { ballot: Ballot, promised: Ballot },
    Released { tenure: Tenure, held: bool },
    Inspected { query: u64, accepted: Option<Sighting> },
    Held(Sighting),
    Freed { label: Label, nodes_before: u8 },
}

/// A live lease somebody reported, with its name: what is known of a holder, never the truth.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sighting {
    /// Whose.
    pub tenure: Tenure,
    /// How long still when it was reported.
    pub remaining: Ttl,
    /// The resource, and who holds it.
    pub label: Label,
}

impl Sighting {
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen { tenure: self.tenure, remaining: self.remaining, holder: self.label.holder() }
    }
}

impl Transmit {
    /// The message, borrowing its texts from here.
    #[must_use]
    pub fn message(&self) -> Message<'_> {
        self.body.message()
    }
}

impl Body {
    /// Copies a request, to answer it later.
    pub(crate) fn copied(request: Request<'_>) -> Self {
        let named = |name| Label::new(name, Holder::NONE);
        match request {
            Request::Prepare { name, ballot } => Self::Prepare { label: named(name), ballot },
            Request::Propose { name, ballot, ttl, holder } => {
                Self::Propose { label: Label::new(name, holder), ballot, ttl }
            }
            Request::Renew { name, tenure, ballot, ttl } => {
                Self::Renew { label: named(name), tenure, ballot, ttl }
            }
            Request::Heal { name, tenure, ballot, ttl, holder } => {
                Self::Heal { label: Label::new(name, holder), tenure, ballot, ttl }
            }
            Request::Release { name, tenure } => Self::Release { label: named(name), tenure },
            Request::Inspect { name, query } => Self::Inspect { label: named(name), query },
        }
    }

    pub(crate) fn request(&self) -> Option<Request<'_>> {
        match self.message() {
            Message::Request(request) => Some(request),
            Message::Reply(_) | Message::Hint(_) => None,
        }
    }

    /// The tenure an acceptor is asked to store or prolong.
    pub(crate) fn stores(&self) -> Option<Tenure> {
        match self {
            Self::Propose { ballot, .. } => Tenure::of(*ballot),
            Self::Renew { tenure, .. } | Self::Heal { tenure, .. } => Some(*tenure),
            _ => None,
        }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        let request = Message::Request;
        match self {
            Self::Prepare { label, ballot } => {
                request(Request::Prepare { name: label.name(), ballot: *ballot })
            }
            Self::Propose { label, ballot, ttl } => request(Request::Propose {
                name: label.name(),
                ballot: *ballot,
                ttl: *ttl,
                holder: label.holder(),
            }),
            Self::Renew { label, tenure, ballot, ttl } => request(Request::Renew {
                name: label.name(),
                tenure: *tenure,
                ballot: *ballot,
                ttl: *ttl,
            }),
            Self::Heal { label, tenure, ballot, ttl } => request(Request::Heal {
                name: label.name(),
                tenure: *tenure,
                ballot: *ballot,
                ttl: *ttl,
                holder: label.holder(),
            }),
            Self::Release { label, tenure } => {
                request(Request::Release { name: label.name(), tenure: *tenure })
            }
            Self::Inspect { label, query } => {
                request(Request::Inspect { name: label.name(), query: *query })
            }
            Self::Held(sighting) => {
                Message::Hint(Hint::Held { name: sighting.label.name(), seen: sighting.seen() })
            }
            Self::Freed { label, nodes_before } => {
                Message::Hint(Hint::Freed { name: label.name(), nodes_before: *nodes_before })
            }
            reply => Message::Reply(reply.reply()),
        }
    }

    fn reply(&self) -> Reply<'_> {
        fn seen(accepted: &Option<Sighting>) -> Option<Seen<'_>> {
            accepted.as_ref().map(Sighting::seen)
        }
        match self {
            Self::Promise { ballot, accepted } => {
                Reply::Promise { ballot: *ballot, accepted: seen(accepted) }
            }
            Self::Accept { ballot } => Reply::Accept { ballot: *ballot },
            Self::Reject { ballot, promised, accepted } => {
                Reply::Reject { ballot: *ballot, promised: *promised, accepted: seen(accepted) }
            }
            Self::NotHeld { ballot, promised } => {
                Reply::NotHeld { ballot: *ballot, promised: *promised }
            }
            Self::Released { tenure, held } => Reply::Released { tenure: *tenure, held: *held },
            Self::Inspected { query, accepted } => {
                Reply::Inspected { query: *query, accepted: seen(accepted) }
            }
            _ => unreachable!("requests and hints were matched before"),
        }
    }
}

/// The caller's number for one of its requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// What happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An acquire succeeded.
    Granted {
        /// Whose request.
        token: Token,
        /// The tenure that began; its number is the fence.
        tenure: Tenure,
        /// How long others are excluded.
        ttl: Ttl,
        /// When the winning round began: belief counts from here on this node's clock.
        started_at: Instant,
        /// How long the request waited before that (for T2 on another clock).
        waited: Duration,
    },
    /// An acquire was refused: a majority reported this holder. Nothing is held.
    Denied {
        /// Whose request.
        token: Token,
        /// Who holds it.
        by: Sighting,
    },
    /// No majority answered in time, or contenders kept splitting the vote. Nothing was changed
    /// that outlives the ttl.
    NoQuorum {
        /// Whose request.
        token: Token,
    },
    /// A renewal succeeded.
    Renewed {
        /// Whose request.
        token: Token,
        /// The tenure renewed.
        tenure: Tenure,
        /// How long others are excluded.
        ttl: Ttl,
        /// When the winning round began.
        started_at: Instant,
    },
    /// A renewal found the tenure over. It cannot come back.
    NotHeld {
        /// Whose request.
        token: Token,
        /// The tenure that is over.
        tenure: Tenure,
    },
    /// A release is done.
    Released {
        /// Whose request.
        token: Token,
        /// Whether any acceptor still had it.
        held: bool,
        /// Whether a majority confirmed; if not, it was given time to expire instead.
        confirmed: bool,
    },
    /// An inspection is done. A hint: what a quorum said a moment ago.
    Inspected {
        /// Whose request.
        token: Token,
        /// Who holds it, if anyone.
        accepted: Option<Sighting>,
    },
    /// Make this record durable, then call [`crate::Shard::record_written`].
    Persist(Record),
    /// A hint for watchers: this lease was granted.
    HeldHint(Sighting),
    /// A hint for watchers: this name was released.
    FreedHint(Label),
    /// A hint for watchers: this lease ran out a while ago, and nobody took the name since.
    ExpiredHint {
        /// The name, and who held it.
        label: Label,
        /// Whose tenure it was.
        tenure: Tenure,
    },
}

impl Event {
    /// Whose request it answers, if it answers one.
    #[must_use]
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. }
            | Self::Denied { token, .. }
            | Self::NoQuorum { token }
            | Self::Renewed { token, .. }
            | Self::NotHeld { token, .. }
            | Self::Released { token, .. }
            | Self::Inspected { token, .. } => Some(*token),
            Self::Persist(_)
            | Self::HeldHint(_)
            | Self::FreedHint(_)
            | Self::ExpiredHint { .. } => None,
        }
    }
}

/// The queues behind `poll_transmit` and `poll_event`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    transmits: VecDeque<Transmit>,
    /// How many transmits at the front have been offered to the node's own acceptor.
    offered: usize,
    events: VecDeque<Event>,
}

impl Outbox {
    pub(crate) fn send(&mut self, to: To, body: Body) {
        self.transmits.push_back(Transmit { to, body });
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next transmit that leaves this node. All have been offered to its own acceptor.
    pub(crate) fn pop_transmit(&mut self) -> Option<Transmit> {
        loop {
            let transmit = self.transmits.pop_front()?;
            self.offered = self.offered.saturating_sub(1);
            if transmit.to != To::Members(MemberSet::EMPTY) {
                return Some(transmit);
            }
        }
    }

    /// Lends the next request that is also for this node's own acceptor, which is taken off its
    /// addressees. To be [put back](Self::put_back): moving it twice costs less than a copy.
    pub(crate) fn take_for(&mut self, own: MemberSet) -> Option<(usize, Body)> {
        while let Some(transmit) = self.transmits.get_mut(self.offered) {
            let place = self.offered;
            self.offered += 1;
            if let To::Members(set) = transmit.to
                && set.contains(own)
            {
                transmit.to = To::Members(set.without(own));
                let lent = Body::Accept { ballot: Ballot::ZERO };
                return Some((place, mem::replace(&mut transmit.body, lent)));
            }
        }
        None
    }

    pub(crate) fn put_back(&mut self, place: usize, body: Body) {
        self.transmits[place].body = body;
    }
}
