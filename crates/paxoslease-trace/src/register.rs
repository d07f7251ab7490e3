//! The register of a durable name, as text in a trace.

use paxoslease_core::{
    Ballot, DurableRegister, DurableValue, Holder, Instant, Label, Name, Tenure,
};
use serde::{Deserialize, Serialize};

/// The core's [`DurableRegister`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredRegister {
    pub(crate) name: String,
    holder: String,
    pub(crate) ballot: u64,
    tenure: u64,
    fence: u64,
    pub(crate) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum State {
    /// The end on the clock of the node, in nanoseconds.
    HeldUntil(u64),
    /// The ballot of the release that said *held*; zero if none did.
    FreedBy(u64),
}

impl StoredRegister {
    pub(crate) fn of(register: &DurableRegister) -> Self {
        let (tenure, fence, state) = match register.value {
            DurableValue::Held { tenure, fence, ends_at } => {
                (tenure, fence, State::HeldUntil(ends_at.as_nanos()))
            }
            DurableValue::Free { tenure, fence, by } => {
                (tenure, fence, State::FreedBy(by.as_u64()))
            }
        };
        Self {
            name: register.name().to_string(),
            holder: register.holder().to_string(),
            ballot: register.ballot.as_u64(),
            tenure: tenure.fence(),
            fence: fence.fence(),
            state,
        }
    }

    /// `None` when the trace is damaged.
    pub(crate) fn parsed(&self) -> Option<DurableRegister> {
        let label = Label::new(Name::new(&self.name).ok()?, Holder::new(&self.holder).ok()?);
        let tenure = Tenure::from_fence(self.tenure)?;
        let fence = Tenure::from_fence(self.fence)?;
        let value = match self.state {
            State::HeldUntil(nanos) => {
                DurableValue::Held { tenure, fence, ends_at: Instant::from_nanos(nanos) }
            }
            State::FreedBy(by) => DurableValue::Free { tenure, fence, by: Ballot::from_u64(by)? },
        };
        Some(DurableRegister { label, ballot: Ballot::from_u64(self.ballot)?, value })
    }
}
