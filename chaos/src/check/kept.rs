//! What the cell granted it keeps: nobody who still believes is told that the tenure is over.
//!
//! A belief ends before the records of the majority that gave it (T1), and an acceptor that lost
//! its record in a restart is silent for longer than that (R3). So whoever wants to renew before
//! the belief is over meets, in every majority, somebody who has the record or says nothing. That
//! is so whatever is broken, as long as clocks are within the drift. To be told so by a release is
//! proof only where nothing was broken: the first confirmation of a node may have been lost.

use super::{Rule, Run, Violation, nanos, spoken};
use crate::log::Deed;

pub(super) fn violations(run: Run<'_>) -> Vec<Violation> {
    let settle = nanos(run.bounds.settle);
    let mut found = Vec::new();
    for tenure in run.tenures {
        let Some(over) = tenure.over.filter(|over| over.at < tenure.until) else { continue };
        let is_excused = over.deed == Deed::Release
            && !run.health.is_well(over.asked_at.saturating_sub(settle), over.at);
        if is_excused {
            continue;
        }
        let text = format!(
            "{} held {:?} with fence {} until {}, and was told {} before, in answer to {:?}, that \
             it was over",
            tenure.client,
            tenure.name,
            tenure.fence,
            tenure.until,
            spoken(tenure.until - over.at),
            over.deed,
        );
        found.push(Violation {
            rule: Rule::LeasesAreKept,
            name: tenure.name.clone(),
            at: over.at,
            text,
            evidence: tenure.evidence.clone(),
        });
    }
    found
}
