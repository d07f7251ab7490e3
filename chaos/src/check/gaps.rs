//! What each kind of fault did: how long nothing was granted, how many requests failed, how many
//! nodes died. Figures, no judgement.

use std::collections::BTreeMap;

use super::Run;
use crate::log::{Nanos, NodeState, What};

/// A time without a grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Gap {
    /// How long.
    pub span: Nanos,
    /// From when: the last grant before it, or the begin of the fault.
    pub from: Nanos,
    /// Until the next grant, which may be after the end of the fault, or the end of the run.
    pub to: Nanos,
    /// Whether nothing else was broken.
    pub is_alone: bool,
}

/// The longest gap in each fault of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// The kind; `None` for the stretches in which nothing was broken, from their first grant on.
    pub what: Option<String>,
    /// How long it was so in all.
    pub lasted: Nanos,
    /// How many requests failed meanwhile, whatever for.
    pub failed: u64,
    /// How many nodes ended by themselves meanwhile.
    pub died: u64,
    /// One for each, the shortest first.
    pub gaps: Vec<Gap>,
}

impl Gaps {
    /// The gap in the middle.
    #[must_use]
    pub fn median(&self) -> Option<Gap> {
        self.gaps.get(self.gaps.len() / 2).copied()
    }

    /// The longest.
    #[must_use]
    pub fn longest(&self) -> Option<Gap> {
        self.gaps.last().copied()
    }

    /// The longest when nothing else was broken.
    #[must_use]
    pub fn longest_alone(&self) -> Option<Gap> {
        self.gaps.iter().rev().find(|gap| gap.is_alone).copied()
    }
}

/// By kind of fault, the stretches without any first.
pub(super) fn by_fault(run: Run<'_>, span: (Nanos, Nanos)) -> Vec<Gaps> {
    let Run { events, tenures, health, .. } = run;
    let grants: Vec<Nanos> = tenures.iter().map(|tenure| tenure.from).collect();
    let mut kinds: BTreeMap<Option<&str>, Gaps> = BTreeMap::new();
    // What a fault leaves behind is the fault's: all is well from the next grant on.
    let well = health.well(span).into_iter().filter_map(|(from, to)| {
        let from = *grants.get(grants.partition_point(|at| *at < from))?;
        (from < to).then_some((None, from, to, true))
    });
    let faults = health
        .faults
        .iter()
        .map(|fault| (Some(fault.what.as_str()), fault.from, fault.to, fault.is_alone));
    for (what, from, to, is_alone) in well.chain(faults) {
        let kind = kinds.entry(what).or_insert_with(|| Gaps {
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
                What::Failed { .. } => kind.failed += 1,
                What::Node { state: NodeState::Died, .. } => kind.died += 1,
                _ => {}
            }
        }
        // What follows a fault is its own; where all is well, what follows is not.
        let end = if what.is_some() { span.1 } else { to };
        let mut gap = longest(&grants, from, to, end);
        let is_broken_again = |at: Nanos| at > to && at <= gap.to;
        gap.is_alone = is_alone && !health.faults.iter().any(|fault| is_broken_again(fault.from));
        kind.gaps.push(gap);
    }
    let mut kinds: Vec<Gaps> = kinds.into_values().collect();
    kinds.iter_mut().for_each(|kind| kind.gaps.sort_unstable());
    kinds
}

/// The longest time without a grant that began between `from` and `to`, and ended by `last`.
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
