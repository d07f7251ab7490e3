//! Once everything is mended, every name somebody asks for is granted again in time.

use std::collections::BTreeSet;

use super::{Health, Request, Rule, Tenure, Violation, spoken};
use crate::log::{Event, Nanos, What};

/// What was not granted in time, and how often it was looked at: healings, and names in each.
pub(super) fn violations(
    events: &[Event],
    tenures: &[Tenure],
    requests: &[Request],
    health: &Health,
    last: Nanos,
) -> (Vec<Violation>, (u64, u64)) {
    let names: BTreeSet<&str> = requests.iter().map(|r| r.ask.name.as_str()).collect();
    let (mut found, mut healings, mut demanded) = (Vec::new(), 0, 0);
    for event in events {
        let What::Healed { bound } = event.what else { continue };
        let (from, to) = (event.at, event.at + bound);
        healings += 1;
        let is_broken_again = health.faults.iter().any(|f| (from + 1..=to).contains(&f.from));
        if to > last || is_broken_again {
            continue;
        }
        for name in &names {
            // Somebody who asked early enough, and was there to hear the answer.
            let of_name = |request: &&Request| request.ask.name == **name;
            let Some(asked) = requests.iter().filter(of_name).find(|request| {
                let is_open = request.answered_at().is_none_or(|at| at >= from);
                is_open && request.asked_at <= from + bound / 2 && request.heard_at > to
            }) else {
                continue;
            };
            demanded += 1;
            let granted = tenures.iter().filter(|tenure| tenure.name == **name).any(|tenure| {
                (from..=to).contains(&tenure.from) || (tenure.from < from && tenure.to > to)
            });
            if !granted {
                let text = format!(
                    "{name:?} was not granted to anybody within {} after everything was mended, \
                     though {} asked",
                    spoken(bound),
                    asked.ask.client,
                );
                let mut evidence = vec![event.clone()];
                evidence.extend(asked.evidence.iter().cloned());
                let name = (*name).to_owned();
                found.push(Violation { rule: Rule::HealedIsGranted, name, at: to, text, evidence });
            }
        }
    }
    (found, (healings, demanded))
}
