//! At most one belief at a time, and fences that rise from each to the next.

use std::collections::BTreeMap;

use super::{Rule, Tenure, Violation, by_name, format_nanos};
use crate::log::Belief;

/// The tenures are ordered by their begin.
pub(super) fn violations(tenures: &[Tenure]) -> Vec<Violation> {
    let mut found = Vec::new();
    for tenures in by_name(tenures).values() {
        let believed: Vec<&Tenure> =
            tenures.iter().copied().filter(|tenure| tenure.is_believed()).collect();
        overlaps(&believed, &mut found);
        falls(&believed, &mut found);
        shared(tenures, &mut found);
    }
    found
}

/// Compares each belief with the earlier one that ends last: if any overlaps, that one does.
fn overlaps(believed: &[&Tenure], found: &mut Vec<Violation>) {
    let mut longest: Option<&Tenure> = None;
    for second in believed {
        if let Some(first) = longest
            && second.from < first.to
        {
            let both = first.to.min(second.to) - second.from;
            let belief = |tenure: &Tenure| {
                let Belief { from, fence, .. } = tenure.belief;
                format!("in [{from}, {}) with fence {fence}", tenure.to)
            };
            let text = format!(
                "{} held {:?} {}, {} {}: both for {both} ns ({})",
                first.client,
                first.name,
                belief(first),
                second.client,
                belief(second),
                format_nanos(both),
            );
            found.push(proven(Rule::OneHolder, first, second, text));
        }
        if longest.is_none_or(|first| first.to < second.to) {
            longest = Some(second);
        }
    }
}

/// Compares each fence with the greatest one before.
fn falls(believed: &[&Tenure], found: &mut Vec<Violation>) {
    let mut greatest: Option<&Tenure> = None;
    for later in believed {
        if let Some(earlier) = greatest
            && later.fence < earlier.fence
        {
            let text = format!(
                "{} held {:?} from {} with fence {}, {} from {} with the lower fence {}",
                earlier.client,
                earlier.name,
                earlier.from,
                earlier.fence,
                later.client,
                later.from,
                later.fence,
            );
            found.push(proven(Rule::FencesRise, earlier, later, text));
        }
        if greatest.is_none_or(|earlier| earlier.fence <= later.fence) {
            greatest = Some(later);
        }
    }
}

/// A fence belongs to one grant, even if the grant came too late to be believed.
fn shared(tenures: &[&Tenure], found: &mut Vec<Violation>) {
    let mut owners: BTreeMap<u64, &Tenure> = BTreeMap::new();
    for tenure in tenures {
        if let Some(owner) = owners.insert(tenure.fence, tenure) {
            let text = format!(
                "both {} and {} were granted {:?} with fence {}",
                owner.client, tenure.client, tenure.name, tenure.fence,
            );
            found.push(proven(Rule::FencesAreUnique, owner, tenure, text));
        }
    }
}

fn proven(rule: Rule, first: &Tenure, second: &Tenure, text: String) -> Violation {
    Violation::of(rule, first, second.from, text, &second.evidence)
}
