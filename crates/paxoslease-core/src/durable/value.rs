//! What the register of a durable name holds, as a shard hands it to the disk.

use crate::{Ballot, Holder, Instant, Label, Name, Tenure};

/// The register of a durable name at one acceptor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DurableRegister {
    /// The name; the holder's text too if the register is held.
    pub label: Label,
    /// The ballot of the change that stored the value.
    pub ballot: Ballot,
    /// What is stored.
    pub value: DurableValue,
}

/// The value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DurableValue {
    /// A tenure holds the name, until its end has passed.
    Held {
        /// The tenure that was granted.
        tenure: Tenure,
        /// The fence of the tenure now: its own number, unless a change had to raise it (K7).
        fence: Tenure,
        /// When the lease ends, on this node's clock; [`Instant::MAX`] for never.
        ends_at: Instant,
    },
    /// The tenure that held the name is over.
    Free {
        /// The tenure that is over.
        tenure: Tenure,
        /// Its last fence.
        fence: Tenure,
        /// The ballot of the release that said *held* (K8); [`Ballot::ZERO`] if none did.
        by: Ballot,
    },
}

/// What a shard wants on disk. The order of the writes of one shard matters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DurableWrite {
    /// The register of this name, in place of an earlier one.
    Register(DurableRegister),
    /// The name has no register any more (K5).
    Forget(Label),
    /// No name has a register any more (K13).
    Clear,
    /// Nothing but the time of the file (K3, K11).
    Tick,
}

impl DurableRegister {
    /// The name.
    #[must_use]
    pub fn name(&self) -> Name<'_> {
        self.label.name()
    }

    /// The holder's text.
    #[must_use]
    pub fn holder(&self) -> Holder<'_> {
        self.label.holder()
    }
}
