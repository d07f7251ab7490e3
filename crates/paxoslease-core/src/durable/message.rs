//! The messages about registers: they are rare, and larger than those about ordinary leases.

use alloc::boxed::Box;

use crate::outbox::Body;
use crate::{Ballot, Holder, Label, Lasts, Message, Name, Tenure};

/// A message about the register of a durable name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DurableMessage<'a> {
    /// Phase 1 of a change (K6).
    Prepare {
        /// The durable name.
        name: Name<'a>,
        /// The change.
        ballot: Ballot,
    },
    /// Phase 2 of a change (K7).
    Store {
        /// The durable name.
        name: Name<'a>,
        /// The holder's text, for a held value.
        holder: Holder<'a>,
        /// The change.
        ballot: Ballot,
        /// What to store. An end counts from the moment of receipt.
        value: SentValue,
    },
    /// A hint: every member stores the value of this ballot (K5).
    All {
        /// The durable name.
        name: Name<'a>,
        /// The change that stored the value.
        ballot: Ballot,
    },
    /// The answer to a Prepare: a promise, and what the acceptor stores (K1).
    Promise {
        /// The change answered.
        ballot: Ballot,
        /// The tenure of the live ordinary lease, if there is one.
        lease: Option<Tenure>,
        /// The register, if there is one.
        register: Option<SentRegister<'a>>,
    },
    /// The answer to a Store whose value is durable (K2).
    Stored {
        /// The change answered.
        ballot: Ballot,
    },
    /// The answer to a Prepare or Store that is below a promise. Nothing changed.
    Reject {
        /// The change answered.
        ballot: Ballot,
        /// `max(promised, floor)` at the acceptor.
        promised: Ballot,
    },
    /// The answer to a Store that the disk has no room for. Nothing changed.
    Refused {
        /// The change answered.
        ballot: Ballot,
        /// Why.
        why: StoreRefusal,
    },
    /// The answer to an Inspect of a name that the register holds.
    Inspected {
        /// The sender's number for the inspection.
        query: u64,
        /// The change that stored the value. Of several ends, that of the highest ballot counts.
        ballot: Ballot,
        /// The fence of the tenure.
        fence: Tenure,
        /// What is left.
        lasts: Lasts,
        /// The holder's text.
        holder: Holder<'a>,
    },
    /// The answer to a Renew or a Release of a tenure that the register holds: only a change may
    /// prolong or end it. Nothing changed. It names the ballot of the Renew, or the tenure of the
    /// Release.
    IsDurable {
        /// The round or the tenure answered.
        ballot: Ballot,
    },
}

/// Why a member does not store a held value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StoreRefusal {
    /// The node keeps nothing on disk, or was told not to keep leases there (K14).
    NoDisk,
    /// The disk is full, or as many registers exist as the limits allow.
    NoRoom,
}

/// The value of a register as messages carry it: with the time left in place of an instant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SentValue {
    /// A tenure holds the name.
    Held {
        /// The tenure that was granted.
        tenure: Tenure,
        /// Its fence now.
        fence: Tenure,
        /// What is left; `None` once the end has passed, which only a Promise says.
        lasts: Option<Lasts>,
    },
    /// The tenure that held the name is over.
    Free {
        /// The tenure that is over.
        tenure: Tenure,
        /// Its last fence.
        fence: Tenure,
        /// The ballot of the release that said *held*; [`Ballot::ZERO`] if none did.
        by: Ballot,
    },
}

/// A register as a Promise reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SentRegister<'a> {
    /// The change that stored the value.
    pub ballot: Ballot,
    /// The value.
    pub value: SentValue,
    /// The holder's text, for a held value.
    pub holder: Holder<'a>,
}

impl<'a> DurableMessage<'a> {
    /// The name, in a request.
    #[must_use]
    pub const fn name(&self) -> Option<Name<'a>> {
        match self {
            Self::Prepare { name, .. } | Self::Store { name, .. } | Self::All { name, .. } => {
                Some(*name)
            }
            Self::Promise { .. }
            | Self::Stored { .. }
            | Self::Reject { .. }
            | Self::Refused { .. }
            | Self::Inspected { .. }
            | Self::IsDurable { .. } => None,
        }
    }

    /// The change that the message belongs to, or that stored the value.
    #[must_use]
    pub const fn ballot(&self) -> Ballot {
        match self {
            Self::Prepare { ballot, .. }
            | Self::Store { ballot, .. }
            | Self::All { ballot, .. }
            | Self::Promise { ballot, .. }
            | Self::Stored { ballot }
            | Self::Reject { ballot, .. }
            | Self::Refused { ballot, .. }
            | Self::Inspected { ballot, .. }
            | Self::IsDurable { ballot } => *ballot,
        }
    }

    /// The highest ballot in the message. An acceptor that stores it may promise the next one.
    pub(crate) fn highest(&self) -> Ballot {
        match self {
            Self::Store { ballot, value, .. } => value.highest().max(*ballot),
            Self::Promise { ballot, lease, register } => {
                let lease = lease.map_or(Ballot::ZERO, Tenure::ballot);
                let stored = register.map_or(Ballot::ZERO, |it| it.value.highest().max(it.ballot));
                lease.max(stored).max(*ballot)
            }
            Self::Reject { ballot, promised } => (*ballot).max(*promised),
            Self::Inspected { ballot, fence, .. } => fence.ballot().max(*ballot),
            Self::Prepare { .. }
            | Self::All { .. }
            | Self::Stored { .. }
            | Self::Refused { .. }
            | Self::IsDurable { .. } => self.ballot(),
        }
    }
}

impl SentValue {
    fn highest(&self) -> Ballot {
        match *self {
            Self::Held { tenure, fence, .. } => tenure.max(fence).ballot(),
            Self::Free { tenure, fence, by } => tenure.max(fence).ballot().max(by),
        }
    }

    /// The number that holders and readers see.
    #[must_use]
    pub const fn fence(&self) -> Tenure {
        match self {
            Self::Held { fence, .. } | Self::Free { fence, .. } => *fence,
        }
    }

    /// The tenure that holds the name, or held it.
    #[must_use]
    pub const fn tenure(&self) -> Tenure {
        match self {
            Self::Held { tenure, .. } | Self::Free { tenure, .. } => *tenure,
        }
    }

    /// Whether a client means this value by the number: the tenure as it was granted, or its fence
    /// now. No other tenure has either number.
    pub(crate) fn is(&self, number: Tenure) -> bool {
        self.tenure() == number || self.fence() == number
    }

    /// What is left of the lease, if the value is held and its end has not passed.
    #[must_use]
    pub const fn left(&self) -> Option<Lasts> {
        match self {
            Self::Held { lasts, .. } => *lasts,
            Self::Free { .. } => None,
        }
    }
}

/// A [`DurableMessage`] that owns its texts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DurableBody {
    Prepare { label: Label, ballot: Ballot },
    Store { label: Label, ballot: Ballot, value: SentValue },
    All { label: Label, ballot: Ballot },
    Promise { ballot: Ballot, lease: Option<Tenure>, register: Option<OwnedRegister> },
    Stored { ballot: Ballot },
    Reject { ballot: Ballot, promised: Ballot },
    Refused { ballot: Ballot, why: StoreRefusal },
    Inspected { query: u64, ballot: Ballot, fence: Tenure, lasts: Lasts, label: Label },
    IsDurable { ballot: Ballot },
}

/// A [`SentRegister`] that owns its text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OwnedRegister {
    pub(crate) ballot: Ballot,
    pub(crate) value: SentValue,
    /// The name, and the holder of a held value.
    pub(crate) label: Label,
}

impl From<DurableBody> for Body {
    fn from(body: DurableBody) -> Self {
        Self::Durable(Box::new(body))
    }
}

impl DurableBody {
    /// Copies a request, so that it can be answered later; `None` for an answer.
    pub(crate) fn copied(message: &DurableMessage<'_>) -> Option<Self> {
        let named = |name| Label::new(name, Holder::NONE);
        match *message {
            DurableMessage::Prepare { name, ballot } => {
                Some(Self::Prepare { label: named(name), ballot })
            }
            DurableMessage::Store { name, holder, ballot, value } => {
                Some(Self::Store { label: Label::new(name, holder), ballot, value })
            }
            DurableMessage::All { name, ballot } => Some(Self::All { label: named(name), ballot }),
            DurableMessage::Promise { .. }
            | DurableMessage::Stored { .. }
            | DurableMessage::Reject { .. }
            | DurableMessage::Refused { .. }
            | DurableMessage::Inspected { .. }
            | DurableMessage::IsDurable { .. } => None,
        }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        Message::Durable(match *self {
            Self::Prepare { ref label, ballot } => {
                DurableMessage::Prepare { name: label.name(), ballot }
            }
            Self::Store { ref label, ballot, value } => {
                let (name, holder) = (label.name(), label.holder());
                DurableMessage::Store { name, holder, ballot, value }
            }
            Self::All { ref label, ballot } => DurableMessage::All { name: label.name(), ballot },
            Self::Promise { ballot, lease, ref register } => {
                let register = register.as_ref().map(|register| SentRegister {
                    ballot: register.ballot,
                    value: register.value,
                    holder: register.label.holder(),
                });
                DurableMessage::Promise { ballot, lease, register }
            }
            Self::Stored { ballot } => DurableMessage::Stored { ballot },
            Self::Reject { ballot, promised } => DurableMessage::Reject { ballot, promised },
            Self::Refused { ballot, why } => DurableMessage::Refused { ballot, why },
            Self::Inspected { query, ballot, fence, lasts, ref label } => {
                let holder = label.holder();
                DurableMessage::Inspected { query, ballot, fence, lasts, holder }
            }
            Self::IsDurable { ballot } => DurableMessage::IsDurable { ballot },
        })
    }
}
