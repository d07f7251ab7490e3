//! The effect of each kind of fault: times without a grant, failed requests, dead nodes. These are
//! figures, not checks.

use std::collections::BTreeMap;

use super::liveness::gaps;
use super::{Run, Tenure};
use crate::log::{EventKind, Nanos, NodeState};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Gap {
    pub span: Nanos,
    /// The last grant before, or the begin of the fault.
    pub from: Nanos,
    /// The next grant, maybe after the fault, or the end of the run.
    pub to: Nanos,
    /// Whether no other fault was active.
    pub is_alone: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultGaps {
    /// The kind of fault; `None` for the times without a fault, from their first grant on.
    pub what: Option<String>,
    /// The total duration.
    pub lasted: Nanos,
    /// Requests that failed meanwhile.
    pub failed: u64,
    /// Nodes that ended by themselves meanwhile.
    pub died: u64,
    /// The longest gap of each fault, shortest first.
    pub gaps: Vec<Gap>,
}

impl FaultGaps {
    pub fn median(&self) -> Option<Gap> {
        self.gaps.get(self.gaps.len() / 2).copied()
    }

    pub fn longest(&self) -> Option<Gap> {
        self.gaps.last().copied()
    }

    pub fn longest_alone(&self) -> Option<Gap> {
        self.gaps.iter().rev().find(|gap| gap.is_alone).copied()
    }
}

/// By kind of fault; first the times without any.
pub(super) fn by_fault(run: Run<'_>, span: (Nanos, Nanos)) -> Vec<FaultGaps> {
    let Run { events, tenures, health, .. } = run;
    let grants: Vec<&Tenure> = tenures.iter().collect();
    let mut kinds: BTreeMap<Option<&str>, FaultGaps> = BTreeMap::new();
    // The time until the next grant belongs to the fault.
    let well = health.well(span).into_iter().filter_map(|(from, to)| {
        let from = grants.get(grants.partition_point(|grant| grant.from < from))?.from;
        (from < to).then_some((None, from, to, true))
    });
    let faults = health
        .faults
        .iter()
        .map(|fault| (Some(fault.what.as_str()), fault.from, fault.to, fault.is_alone));
    for (what, from, to, is_alone) in well.chain(faults) {
        let new = || FaultGaps { what: what.map(str::to_owned), ..FaultGaps::default() };
        let kind = kinds.entry(what).or_insert_with(new);
        kind.lasted += to - from;
        let begun = events.partition_point(|event| event.at < from);
        for event in events[begun..].iter().take_while(|event| event.at <= to) {
            match event.what {
                EventKind::Failed { .. } => kind.failed += 1,
                EventKind::Node { state: NodeState::Died, .. } => kind.died += 1,
                _ => {}
            }
        }
        // A gap of a fault may end after the fault.
        let end = if what.is_some() { span.1 } else { to };
        let gaps = gaps(&grants, from, end.max(from)).into_iter();
        let begun = gaps.filter(|gap| gap.from <= to);
        let longest = begun.rev().max_by_key(|gap| gap.to - gap.from);
        kind.gaps.extend(longest.map(|gap| {
            let is_broken_again = |at: Nanos| at > to && at <= gap.to;
            let is_alone = is_alone && !health.faults.iter().any(|f| is_broken_again(f.from));
            Gap { span: gap.to - gap.from, from: gap.from, to: gap.to, is_alone }
        }));
    }
    let mut kinds: Vec<FaultGaps> = kinds.into_values().collect();
    kinds.iter_mut().for_each(|kind| kind.gaps.sort_unstable());
    kinds
}
