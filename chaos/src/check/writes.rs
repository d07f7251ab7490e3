//! The fenced store refuses late writes, and accepts those of the holder.

use std::collections::BTreeMap;

use super::{Rule, Tenure, Violation};
use crate::log::{Event, EventKind};

/// Judges the store's verdicts in their order.
pub(super) fn violations(events: &[Event], tenures: &[Tenure]) -> Vec<Violation> {
    let beliefs: BTreeMap<(&str, &str, u64), &Tenure> = tenures
        .iter()
        .map(|tenure| ((tenure.name.as_str(), tenure.client.as_str(), tenure.fence), tenure))
        .collect();
    let mut taken: BTreeMap<&str, (u64, &Event)> = BTreeMap::new();
    let mut found = Vec::new();
    for event in events {
        let EventKind::Write { client, name, fence, accepted, .. } = &event.what else { continue };
        let mut find = |rule, text, evidence| {
            found.push(Violation { rule, name: name.clone(), at: event.at, text, evidence });
        };
        let before = taken.get(name.as_str()).copied();
        let is_stale = before.is_some_and(|(highest, _)| *fence < highest);
        if *accepted {
            if let Some((highest, first)) = before
                && is_stale
            {
                let text = format!(
                    "the store took a write to {name:?} by {client} with fence {fence}, after one \
                     with fence {highest}"
                );
                find(Rule::StaleWritesAreRefused, text, vec![first.clone(), event.clone()]);
            } else {
                taken.insert(name, (*fence, event));
            }
            continue;
        }
        let belief = beliefs.get(&(name.as_str(), client.as_str(), *fence));
        let holder = belief.filter(|tenure| (tenure.from..tenure.to).contains(&event.at));
        if !is_stale || holder.is_some() {
            let why = if is_stale {
                "another client had a higher one"
            } else {
                "no client had a higher one"
            };
            let text = format!(
                "the store refused a write to {name:?} by {client} with fence {fence}, {}; {why}",
                if holder.is_some() { "which held it" } else { "which did not hold it" },
            );
            let mut evidence: Vec<Event> =
                holder.map_or_else(Vec::new, |tenure| tenure.evidence.clone());
            evidence.extend(before.map(|(_, first)| first.clone()));
            evidence.push(event.clone());
            find(Rule::HoldersMayWrite, text, evidence);
        }
    }
    found
}
