//! The effect of each kind of fault: times without a grant, failed requests, dead nodes. These are
//! figures, not checks.

use std::collections::BTreeMap;

use super::Run;
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

#[derive(Clone, PartialEq, Eq, Debug)]
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
    let grants: Vec<Nanos> = tenures.iter().map(|tenure| tenure.from).collect();
    let mut kinds: BTreeMap<Option<&str>, FaultGaps> = BTreeMap::new();
    // The time until the next grant belongs to the fault.
    let well = health.well(span).into_iter().filter_map(|(from, to)| {
        let from = *grants.get(grants.partition_point(|at| *at < from))?;
        (from < to).then_some((None, from, to, true))
    });
    let faults = health
        .faults
        .iter()
        .map(|fault| (Some(fault.what.as_str()), fault.from, fault.to, fault.is_alone));
    for (what, from, to, is_alone) in well.chain(faults) {
        let kind = kinds.entry(what).or_insert_with(|| FaultGaps {
            what: what.map(str::to_owned),
            lasted: 0,
            failed: 0,
            died: 0,
            gaps: Vec::new(),
        });
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
        let mut gap = longest(&grants, from, to, end);
        let is_broken_again = |at: Nanos| at > to && at <= gap.to;
        gap.is_alone = is_alone && !health.faults.iter().any(|fault| is_broken_again(fault.from));
        kind.gaps.push(gap);
    }
    let mut kinds: Vec<FaultGaps> = kinds.into_values().collect();
    kinds.iter_mut().for_each(|kind| kind.gaps.sort_unstable());
    kinds
}

/// The longest gap that begins between `from` and `to`, and ends by `last`.
fn longest(grants: &[Nanos], from: Nanos, to: Nanos, last: Nanos) -> Gap {
    let first = grants.partition_point(|at| *at < from);
    let mut begin = from;
    let mut longest = Gap { span: 0, from, to: from, is_alone: true };
    for at in grants[first..].iter().map(|at| *at.min(&last)).chain([last.max(from)]) {
        let gap = Gap { span: at.saturating_sub(begin), from: begin, to: at, is_alone: true };
        if gap.span > longest.span {
            longest = gap;
        }
        if at > to || at == last {
            break;
        }
        begin = at;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(grants: &[Nanos], from: Nanos, to: Nanos) -> (Nanos, Nanos) {
        let gap = longest(grants, from, to, 100);
        (gap.from, gap.to)
    }

    #[test]
    fn a_gap_lasts_until_the_next_grant_even_after_the_fault() {
        assert_eq!(gap(&[5, 12, 30], 10, 20), (12, 30));
        assert_eq!(gap(&[5, 19, 21], 10, 20), (10, 19));
        assert_eq!(gap(&[5], 10, 20), (10, 100));
        assert_eq!(gap(&[], 10, 20), (10, 100));
    }

    #[test]
    fn a_gap_counts_from_the_fault_not_from_before() {
        assert_eq!(gap(&[1, 11, 13, 15, 17, 19, 21], 10, 20), (11, 13));
        assert_eq!(gap(&[1, 18, 21], 10, 20), (10, 18));
    }
}
