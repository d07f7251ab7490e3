//! A run in which little happened proves little: "no violation" has to rest on something.

use super::{Counts, Coverage, Health, Rule, Violation};
use crate::log::{Kind, Nanos};

pub(super) fn violations(
    counts: &Counts,
    judged: &Coverage,
    health: &Health,
    last: Nanos,
) -> Vec<Violation> {
    let looked_at = [
        ("healing", judged.healings),
        ("name that had to be granted after healing", judged.names),
        ("node that had to serve after healing", judged.nodes),
        ("client that had to be heard of after healing", judged.clients),
        ("release with a waiter", judged.releases),
        ("time in which nothing was broken", judged.healthy),
    ];
    let mut lacks: Vec<String> = looked_at
        .into_iter()
        .filter(|(_, count)| *count == 0)
        .map(|(what, _)| format!("no {what} could be judged"))
        .collect();
    for (kind, tally) in &counts.by_kind {
        let mut deeds = vec![("granted", tally.granted)];
        // `lock` renews and releases by itself, without a log.
        if *kind != Kind::Lock {
            deeds.extend([("renewed", tally.renewed), ("released", tally.released)]);
        }
        let idle = deeds.into_iter().filter(|(_, count)| *count == 0);
        lacks.extend(idle.map(|(operation, _)| format!("nothing was {operation} by {kind}")));
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
