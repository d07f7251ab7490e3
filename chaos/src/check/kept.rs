//! The cell keeps what it granted: it tells no holder that still believes that its tenure is over.
//!
//! A belief ends before the records of the majority that gave it (T1), and an acceptor that lost
//! its record in a restart is silent for longer than that (R3). So a renewal before the end of the
//! belief meets, in every majority, an acceptor with the record or a silent one. That holds under
//! any fault, as long as clocks are within the drift. The answer to a release is proof only without
//! a fault: the first confirmation may have been lost.

use super::{Rule, Run, Violation, format_nanos, nanos};
use crate::log::Operation;

pub(super) fn violations(run: Run<'_>) -> Vec<Violation> {
    let settle = nanos(run.bounds.settle);
    let mut found = Vec::new();
    for tenure in run.tenures {
        let Some(over) = tenure.over.filter(|over| over.at < tenure.until) else { continue };
        let is_excused = over.operation == Operation::Release
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
            format_nanos(tenure.until - over.at),
            over.operation,
        );
        found.push(Violation::of(Rule::LeasesAreKept, tenure, over.at, text, &[]));
    }
    found
}
