//! Tenures, each put together from the lines of the log about it.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::log::{Belief, EndReason, Event, EventKind, Nanos, Operation, TenureId};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// From its begin to its end if the holder had not ended it.
    pub belief: Belief,
    /// When the belief ended, exclusive. Not after its begin if the grant came too late to be
    /// believed.
    pub to: Nanos,
    pub end: Option<EndReason>,
    pub released_at: Option<Nanos>,
    /// The first answer of the cell that the tenure was over.
    pub over: Option<Over>,
    /// The logged begin, last extension, end and answer.
    pub evidence: Vec<Event>,
}

/// A tenure is a belief and what became of it.
impl Deref for Tenure {
    type Target = Belief;

    fn deref(&self) -> &Belief {
        &self.belief
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    pub operation: Operation,
    pub asked_at: Nanos,
    pub at: Nanos,
}

impl Tenure {
    pub const fn is_believed(&self) -> bool {
        self.belief.from < self.to
    }
}

/// All tenures, by the begin of their belief.
pub(super) fn collect(events: &[Event]) -> Vec<Tenure> {
    let mut tenures: BTreeMap<TenureId, Tenure> = BTreeMap::new();
    for event in events {
        if let EventKind::Held(belief) = &event.what {
            let tenure = tenures.entry(belief.tenure()).or_insert_with(|| Tenure {
                belief: belief.clone(),
                to: belief.until,
                end: None,
                released_at: None,
                over: None,
                evidence: vec![event.clone()],
            });
            if belief.until > tenure.until {
                (tenure.belief.until, tenure.to) = (belief.until, belief.until);
                tenure.evidence.truncate(1);
                tenure.evidence.push(event.clone());
            }
            tenure.belief.from = tenure.from.min(belief.from);
            tenure.belief.renewals = tenure.renewals.max(belief.renewals);
        }
    }
    // A late grant may end before it is logged, so ends are collected second.
    for event in events {
        let (EventKind::Ended { tenure, .. }
        | EventKind::Over { tenure, .. }
        | EventKind::ReleaseAcknowledged(tenure)) = &event.what
        else {
            continue;
        };
        let Some(tenure) = tenures.get_mut(tenure) else { continue };
        tenure.evidence.push(event.clone());
        match &event.what {
            EventKind::Ended { why, .. } => {
                tenure.end = Some(*why);
                // The lease of a crashed holder excludes others for its ttl.
                if *why != EndReason::Crashed {
                    tenure.to = tenure.to.min(event.at);
                }
            }
            EventKind::Over { operation, asked_at, .. } => {
                let over = Over { operation: *operation, asked_at: *asked_at, at: event.at };
                tenure.over.get_or_insert(over);
            }
            _ => {
                tenure.released_at.get_or_insert(event.at);
            }
        }
    }
    let mut tenures: Vec<Tenure> = tenures.into_values().collect();
    tenures.sort_by_key(|tenure| (tenure.from, tenure.fence));
    tenures
}
