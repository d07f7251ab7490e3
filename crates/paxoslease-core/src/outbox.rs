//! The outputs of a shard: messages to send and events to act on.
//!
//! Both own their texts (see `storage/text.rs`), and the caller polls them from queues whose memory
//! is reused. A broadcast is stored once, with the set of its receivers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::mem;
use core::ops::Deref;
use core::time::Duration;

use crate::durable::message::{DurableBody, StoreRefusal};
use crate::durable::value::DurableWrite;
use crate::{
    Ballot, Cell, Hint, Holder, Instant, Label, Lasts, MemberSet, Message, NodeId, Record,
    ReleaseId, Reply, Request, Seen, Tenure, Ttl,
};

/// The receivers of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum To {
    /// All acceptors in a set.
    Members(MemberSet),
    /// One node, acceptor or not.
    Node(NodeId),
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// The receivers.
    pub to: To,
    /// Whether a majority, this node included, is enough for now. The other receivers may get the
    /// message a little later, together with others.
    pub majority_first: bool,
    pub(crate) body: Body,
}

/// A [`Message`] that owns its texts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Body {
    Prepare { label: Label, ballot: Ballot },
    Propose { label: Label, ballot: Ballot, ttl: Ttl },
    Renew { label: Label, tenure: Tenure, ballot: Ballot, ttl: Ttl },
    Heal { label: Label, tenure: Tenure, ballot: Ballot, ttl: Ttl },
    Release { label: Label, tenure: Tenure, id: ReleaseId },
    Inspect { label: Label, query: u64 },
    Promise { ballot: Ballot, accepted: Option<Sighting> },
    Accept { ballot: Ballot },
    Reject { ballot: Ballot, promised: Ballot, accepted: Option<Sighting> },
    NotHeld { ballot: Ballot, promised: Ballot },
    Healed { ballot: Ballot },
    NotHealed { ballot: Ballot, promised: Ballot },
    Released { tenure: Tenure, by: Option<ReleaseId> },
    Inspected { query: u64, accepted: Option<Sighting> },
    Held(Sighting),
    Freed { label: Label, nodes_before: u8 },
    Note(Label),
    Durable(Box<DurableBody>),
}

/// A lease that some acceptor reported as live. It may be over by the time it is read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sighting {
    /// The tenure; its number is the fence.
    pub tenure: Tenure,
    /// The time that was left when the acceptor reported it.
    pub remaining: Ttl,
    /// The name and the holder's text.
    pub label: Label,
}

/// A sighting, and what is left of a durable lease, which only inspections and lists report. Rounds
/// do without it, so that their messages and events stay small.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LiveLease {
    /// The lease.
    pub seen: Sighting,
    /// Set for a durable lease: what was left of it, which may be more than any [`Ttl`].
    pub durable: Option<Lasts>,
}

impl LiveLease {
    /// What was left of the lease.
    #[must_use]
    pub fn lasts(&self) -> Lasts {
        self.durable.unwrap_or_else(|| self.seen.lasts())
    }
}

impl Deref for LiveLease {
    type Target = Sighting;

    fn deref(&self) -> &Sighting {
        &self.seen
    }
}

impl Sighting {
    /// What was left of the lease, up to the longest ttl.
    #[must_use]
    pub fn lasts(&self) -> Lasts {
        Lasts::from_millis(self.remaining.as_millis().into()).expect("a ttl is not zero")
    }

    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen { tenure: self.tenure, remaining: self.remaining, holder: self.label.holder() }
    }
}

impl Transmit {
    /// The message, which borrows its texts.
    #[must_use]
    pub fn message(&self) -> Message<'_> {
        self.body.message()
    }

    /// The nodes that receive the message.
    pub fn receivers(&self, cell: &Cell) -> impl Iterator<Item = NodeId> {
        let (set, node) = match self.to {
            To::Members(set) => (set, None),
            To::Node(node) => (MemberSet::EMPTY, Some(node)),
        };
        cell.nodes(set).chain(node)
    }
}

impl Body {
    /// Copies a request, so that it can be answered later.
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
            Request::Release { name, tenure, id } => {
                Self::Release { label: named(name), tenure, id }
            }
            Request::Inspect { name, query } => Self::Inspect { label: named(name), query },
        }
    }

    /// The tenure that an acceptor is asked to store or prolong.
    pub(crate) fn stores(&self) -> Option<Tenure> {
        match self {
            Self::Propose { ballot, .. } => Tenure::of(*ballot),
            Self::Renew { tenure, .. } | Self::Heal { tenure, .. } => Some(*tenure),
            _ => None,
        }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        use Message::{Hint as H, Reply as A, Request as R};
        fn seen(accepted: &Option<Sighting>) -> Option<Seen<'_>> {
            accepted.as_ref().map(Sighting::seen)
        }
        match *self {
            Self::Prepare { ref label, ballot } => {
                R(Request::Prepare { name: label.name(), ballot })
            }
            Self::Propose { ref label, ballot, ttl } => {
                let (name, holder) = (label.name(), label.holder());
                R(Request::Propose { name, ballot, ttl, holder })
            }
            Self::Renew { ref label, tenure, ballot, ttl } => {
                R(Request::Renew { name: label.name(), tenure, ballot, ttl })
            }
            Self::Heal { ref label, tenure, ballot, ttl } => {
                let (name, holder) = (label.name(), label.holder());
                R(Request::Heal { name, tenure, ballot, ttl, holder })
            }
            Self::Release { ref label, tenure, id } => {
                R(Request::Release { name: label.name(), tenure, id })
            }
            Self::Inspect { ref label, query } => R(Request::Inspect { name: label.name(), query }),
            Self::Promise { ballot, ref accepted } => {
                A(Reply::Promise { ballot, accepted: seen(accepted) })
            }
            Self::Accept { ballot } => A(Reply::Accept { ballot }),
            Self::Reject { ballot, promised, ref accepted } => {
                A(Reply::Reject { ballot, promised, accepted: seen(accepted) })
            }
            Self::NotHeld { ballot, promised } => A(Reply::NotHeld { ballot, promised }),
            Self::Healed { ballot } => A(Reply::Healed { ballot }),
            Self::NotHealed { ballot, promised } => A(Reply::NotHealed { ballot, promised }),
            Self::Released { tenure, by } => A(Reply::Released { tenure, by }),
            Self::Inspected { query, ref accepted } => {
                A(Reply::Inspected { query, accepted: seen(accepted) })
            }
            Self::Held(ref held) => H(Hint::Held { name: held.label.name(), seen: held.seen() }),
            Self::Freed { ref label, nodes_before } => {
                H(Hint::Freed { name: label.name(), nodes_before })
            }
            Self::Note(ref label) => H(Hint::Note { name: label.name(), text: label.holder() }),
            Self::Durable(ref body) => body.message(),
        }
    }
}

/// The caller's number for one of its requests; the answer carries it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// An answer to a request, a hint for watchers, or work for the disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An acquire succeeded.
    Granted {
        /// The acquire that this answers.
        token: Token,
        /// The tenure that began; its number is the fence.
        tenure: Tenure,
        /// How long the acceptors exclude other tenures.
        ttl: Ttl,
        /// When the winning round began, on this node's clock: the belief counts from here.
        started_at: Instant,
        /// How long the request waited before that round (for T2 on another clock).
        waited: Duration,
    },
    /// An acquire was denied, because a majority reported this holder.
    Denied {
        /// The acquire that this answers.
        token: Token,
        /// The lease that the majority reported.
        by: Sighting,
    },
    /// No majority answered in time, or contenders kept splitting the vote. What an acquire left
    /// at single acceptors is undone, or expires with its ttl.
    NoQuorum {
        /// The acquire, renewal or inspection that this answers.
        token: Token,
    },
    /// A renewal succeeded.
    Renewed {
        /// The renewal that this answers.
        token: Token,
        /// The tenure renewed.
        tenure: Tenure,
        /// How long the acceptors exclude other tenures.
        ttl: Ttl,
        /// When the winning round began, on this node's clock.
        started_at: Instant,
    },
    /// K8: a majority has the lease on disk, and it lasts this long.
    Kept {
        /// The operation that this answers.
        token: Token,
        /// The fence of the tenure now.
        fence: Tenure,
        /// How long the lease lasts, from the moment each acceptor received the value.
        lasts: Lasts,
        /// When the value was sent, on this node's clock: the belief counts from here.
        started_at: Instant,
    },
    /// K14: the disks of a majority have no room for the lease, or there are none. An earlier end
    /// that the operation was to set may be in force at some members.
    NotKept {
        /// The operation that this answers.
        token: Token,
        /// Why.
        why: StoreRefusal,
    },
    /// Make this write of a register durable, and then call [`crate::Shard::durable_written`].
    Durable {
        /// The number of the write; the next one has the next number.
        sequence: u64,
        /// What to write.
        write: Box<DurableWrite>,
    },
    /// A renewal or an operation found that the tenure is over; it cannot be held again.
    NotHeld {
        /// The renewal or operation that this answers.
        token: Token,
        /// The tenure that is over.
        tenure: Tenure,
    },
    /// A release has ended.
    Released {
        /// The release that this answers.
        token: Token,
        /// Whether this release ended the tenure; `None` if that is not known (P6).
        held: Option<bool>,
        /// Whether a majority confirmed. If not, the wait for confirmations has ended.
        confirmed: bool,
    },
    /// An inspection has ended. The answer is what a majority stored a moment ago (P10).
    Inspected {
        /// The inspection that this answers.
        token: Token,
        /// The lease, if there was one.
        accepted: Option<Box<LiveLease>>,
    },
    /// Make this record durable, then call [`crate::Shard::record_written`].
    Persist(Record),
    /// A hint for watchers: this lease was granted.
    HeldHint(Sighting),
    /// A hint for watchers: this name was released.
    FreedHint {
        /// The name, without a holder.
        label: Label,
        /// What ended; `None` if another node told of it.
        tenure: Option<Tenure>,
    },
    /// A hint for watchers: this lease expired, and the name has not been leased since.
    ExpiredHint {
        /// The name and the holder's text.
        label: Label,
        /// The tenure that expired.
        tenure: Tenure,
    },
    /// A text for the clients that watch a name.
    NoteHint(Label),
}

impl Event {
    /// The request that the event answers; `None` for hints and records.
    #[must_use]
    pub const fn token(&self) -> Option<Token> {
        match self {
            Self::Granted { token, .. }
            | Self::Denied { token, .. }
            | Self::NoQuorum { token }
            | Self::Renewed { token, .. }
            | Self::Kept { token, .. }
            | Self::NotKept { token, .. }
            | Self::NotHeld { token, .. }
            | Self::Released { token, .. }
            | Self::Inspected { token, .. } => Some(*token),
            Self::Persist(_)
            | Self::Durable { .. }
            | Self::HeldHint(_)
            | Self::FreedHint { .. }
            | Self::NoteHint(_)
            | Self::ExpiredHint { .. } => None,
        }
    }
}

/// The queues behind `poll_transmit` and `poll_event`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    transmits: VecDeque<Transmit>,
    /// How many of `transmits` the node's own acceptor has seen.
    offered: usize,
    events: VecDeque<Event>,
}

impl Outbox {
    pub(crate) fn send(&mut self, to: To, body: Body) {
        self.transmits.push_back(Transmit { to, majority_first: false, body });
    }

    /// The Release of a tenure, if it was just sent, may reach a majority first.
    pub(crate) fn send_majority_first(&mut self, released: Tenure) {
        if let Some(Transmit { majority_first, body: Body::Release { tenure, .. }, .. }) =
            self.transmits.back_mut()
        {
            *majority_first = *tenure == released;
        }
    }

    /// Drops the messages of an epoch that is over.
    pub(crate) fn drop_transmits(&mut self) {
        self.transmits.clear();
        self.offered = 0;
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    #[cold]
    pub(crate) fn persist(&mut self, record: Record) {
        self.emit(Event::Persist(record));
    }

    pub(crate) fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next transmit that leaves this node. Its own acceptor has seen all of them.
    pub(crate) fn pop_transmit(&mut self) -> Option<Transmit> {
        loop {
            let transmit = self.transmits.pop_front()?;
            self.offered = self.offered.saturating_sub(1);
            if transmit.to != To::Members(MemberSet::EMPTY) {
                return Some(transmit);
            }
        }
    }

    /// Takes the next request that is also for this node's own acceptor, and removes that acceptor
    /// from its receivers. The caller has to [put it back](Self::put_back): moving it twice costs
    /// less than a copy.
    pub(crate) fn take_for(&mut self, own: MemberSet) -> Option<(usize, Body)> {
        while let Some(transmit) = self.transmits.get_mut(self.offered) {
            let place = self.offered;
            self.offered += 1;
            if let To::Members(set) = transmit.to
                && set.contains(own)
            {
                transmit.to = To::Members(set.without(own));
                let placeholder = Body::Accept { ballot: Ballot::ZERO };
                return Some((place, mem::replace(&mut transmit.body, placeholder)));
            }
        }
        None
    }

    /// `agrees` is whether this node's own acceptor did as it was asked. If not, every other
    /// acceptor counts.
    pub(crate) fn put_back(&mut self, place: usize, body: Body, agrees: bool) {
        let transmit = &mut self.transmits[place];
        transmit.body = body;
        transmit.majority_first &= agrees;
    }
}
