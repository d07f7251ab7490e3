//! A run in which little happened proves little: "no violation" has to rest on something.

use super::{Counts, Health, Judged, Rule, Violation};
use crate::log::{Kind, Nanos};

/// What a run that was played to its end lacks.
pub(super) fn violations(
    counts: &Counts,
    judged: &Judged,
    health: &Health,
    last: Nanos,
) -> Vec<Violation> {
    let looked_at = [
        ("healing", judged.healings),
        ("name that had to be granted after healing", judged.names),
        ("node that had to serve after healing", judged.nodes),
        ("client that had to be heard of after healing", judged.clients),
        ("release that somebody waited for", judged.releases),
        ("time in which nothing was broken", judged.healthy),
    ];
    let mut lacks: Vec<String> = looked_at
        .into_iter()
        .filter(|(_, count)| *count == 0)
        .map(|(what, _)| format!("no {what} could be judged"))
        .collect();
    for (kind, tally) in &counts.by_kind {
        let mut deeds = vec![("granted", tally.granted)];
        // `lock` renews and releases by itself, and does not say so.
        if *kind != Kind::Lock {
            deeds.extend([("renewed", tally.renewed), ("released", tally.released)]);
        }
        let idle = deeds.into_iter().filter(|(_, count)| *count == 0);
        lacks.extend(idle.map(|(deed, _)| format!("nothing was {deed} by {kind}")));
    }
    let (_, stalls) = health.counts();
    let violation = |text| Violation {
        rule: Rule::RunShowsEnough,
        name: "the whole run".to_owned(),
        at: last,
        text: format!("{text}; the machine stood still {stalls} times"),
        evidence: Vec::new(),
    };
    lacks.into_iter().map(violation).collect()
}
