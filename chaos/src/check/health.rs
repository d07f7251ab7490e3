//! When something was broken, and when nothing was.

use std::collections::BTreeMap;

use crate::log::{Event, Nanos, Phase, What};

/// What a time is called in which the machine itself stood still.
const STALL: &str = "stall of this machine";

/// A fault, from its begin to the end of its last step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultSpan {
    /// Which; none if nobody drew it.
    pub id: Option<u64>,
    /// The kind.
    pub what: String,
    /// To whom.
    pub whom: String,
    /// When it began.
    pub from: Nanos,
    /// When it ended; the end of the run if it never did.
    pub to: Nanos,
    /// Whether nothing else was broken meanwhile, nor shortly before.
    pub is_alone: bool,
}

/// All faults of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// By their begin.
    pub faults: Vec<FaultSpan>,
}

impl Health {
    /// What is broken within `settle` after something else may suffer from both.
    pub(super) fn of(events: &[Event], last: Nanos, settle: Nanos) -> Self {
        let mut drawn: BTreeMap<u64, FaultSpan> = BTreeMap::new();
        let mut faults: Vec<FaultSpan> = Vec::new();
        for event in events {
            match &event.what {
                What::Fault { id, what, whom, phase } => {
                    let fault = drawn.entry(*id).or_insert_with(|| FaultSpan {
                        id: Some(*id),
                        what: what.clone(),
                        whom: whom.clone(),
                        from: event.at,
                        to: last,
                        is_alone: true,
                    });
                    fault.to = if *phase == Phase::End { event.at } else { last };
                }
                What::Stalled { from } => faults.push(FaultSpan {
                    id: None,
                    what: STALL.to_owned(),
                    whom: "everybody".to_owned(),
                    from: *from,
                    to: event.at,
                    is_alone: true,
                }),
                _ => {}
            }
        }
        faults.extend(drawn.into_values());
        faults.sort_by_key(|fault| (fault.from, fault.id));
        let spans: Vec<(Nanos, Nanos)> = faults.iter().map(|f| (f.from, f.to)).collect();
        for (place, fault) in faults.iter_mut().enumerate() {
            let meets = |(from, to): (Nanos, Nanos)| from <= fault.to && fault.from <= to + settle;
            let others = spans.iter().enumerate().filter(|(other, _)| *other != place);
            fault.is_alone = !others.into_iter().any(|(_, span)| meets(*span));
        }
        Self { faults }
    }

    /// How many faults were drawn, and how many times the machine itself stood still.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let stalls = self.faults.iter().filter(|fault| fault.id.is_none()).count();
        ((self.faults.len() - stalls) as u64, stalls as u64)
    }

    /// Whether nothing was broken at any time from `from` to `to`, both included.
    #[must_use]
    pub fn is_well(&self, from: Nanos, to: Nanos) -> bool {
        !self.faults.iter().any(|fault| fault.from <= to && from <= fault.to)
    }

    /// The stretches within `span` in which nothing was broken.
    #[must_use]
    pub fn well(&self, span: (Nanos, Nanos)) -> Vec<(Nanos, Nanos)> {
        let mut stretches = Vec::new();
        let mut from = span.0;
        for fault in &self.faults {
            if from < fault.from {
                stretches.push((from, fault.from));
            }
            from = from.max(fault.to);
        }
        if from < span.1 {
            stretches.push((from, span.1));
        }
        stretches
    }
}
