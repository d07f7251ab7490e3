//! A confirmed release is a release: nobody is denied by that tenure any more, and whoever waits
//! has the name soon.
//!
//! Three ways to prove the opposite. A refusal that names the tenure is proof by itself. One that
//! names nobody is proof if nobody else can have stood in the way. And a name that is free while
//! somebody waits for it has to be granted. The last two are judged only where nothing is broken,
//! and only where every request about the name is accounted for: what a client left behind that
//! died in the middle of a request may well exclude others until its time is over.

use std::collections::BTreeMap;

use super::requests::{Answer, Request};
use super::{Bounds, Health, Rule, Tenure, Violation, nanos, spoken};
use crate::log::Nanos;

pub(super) fn violations(
    tenures: &[Tenure],
    requests: &[Request],
    health: &Health,
    bounds: Bounds,
    last: Nanos,
) -> Vec<Violation> {
    let mut names: BTreeMap<&str, Name<'_>> = BTreeMap::new();
    for tenure in tenures {
        names.entry(&tenure.name).or_default().tenures.push(tenure);
    }
    for request in requests {
        names.entry(&request.ask.name).or_default().requests.push(request);
    }
    let mut found = Vec::new();
    for name in names.values() {
        name.denied_by_name(&mut found);
        let occupied = name.occupied(health, bounds);
        name.denied_by_nobody(&occupied, health, bounds, &mut found);
        name.unavailable(&occupied, health, bounds, last, &mut found);
    }
    found
}

/// Everything about one name.
#[derive(Default)]
struct Name<'a> {
    tenures: Vec<&'a Tenure>,
    requests: Vec<&'a Request>,
}

/// When somebody may have stood in the way.
struct Occupied {
    from: Nanos,
    to: Nanos,
    /// Whether that was a tenure whose holder knew of it.
    is_known: bool,
}

impl Name<'_> {
    fn denied_by_name(&self, found: &mut Vec<Violation>) {
        let released: BTreeMap<u64, (Nanos, &Tenure)> = self
            .tenures
            .iter()
            .filter_map(|tenure| Some((tenure.fence, (tenure.released_at?, *tenure))))
            .collect();
        for request in &self.requests {
            let Answer::Denied { at, by: Some(fence) } = request.answer else { continue };
            let Some((released_at, tenure)) = released.get(&fence) else { continue };
            if *released_at <= request.asked_at {
                let text = format!(
                    "{} asked for {:?} {} after the release of fence {fence} had been confirmed to \
                     {}, and was denied because of fence {fence}",
                    request.ask.client,
                    request.ask.name,
                    spoken(request.asked_at - released_at),
                    tenure.client,
                );
                found.push(proven(Rule::ReleasesAreKept, at, text, tenure, request));
            }
        }
    }

    /// Acceptors exclude others a little longer than the holder believes, and a request that was
    /// not granted may have left something behind for its ttl.
    fn occupied(&self, health: &Health, bounds: Bounds) -> Vec<Occupied> {
        let beliefs: BTreeMap<(&str, u64), &Tenure> = self
            .tenures
            .iter()
            .map(|tenure| ((tenure.client.as_str(), tenure.attempt), *tenure))
            .collect();
        // Whatever was broken meanwhile may have held up what was on its way: it may come still.
        let delayed =
            |at: Nanos, after: Nanos| {
                let broken = health.faults.iter().filter(|fault| fault.to >= at);
                broken.fold(at + after, |to, fault| {
                    if fault.from <= to { to.max(fault.to + after) } else { to }
                })
            };
        let mut occupied: Vec<Occupied> = Vec::new();
        for request in &self.requests {
            let after = request.ask.ttl_ms * 2_000_000 + nanos(bounds.settle);
            let belief = beliefs.get(&(request.ask.client.as_str(), request.ask.attempt));
            let (to, is_known) = match (request.answer, belief) {
                (Answer::Denied { .. }, _) => continue,
                (_, Some(Tenure { released_at: Some(at), .. })) => (*at, true),
                (_, Some(tenure)) => (delayed(tenure.to, after), true),
                (Answer::Failed { at } | Answer::Granted { at }, None) => {
                    (delayed(at, after), false)
                }
                (Answer::None, None) => {
                    let waited = request.ask.wait_ms * 1_000_000;
                    (delayed(request.asked_at + waited, after), false)
                }
            };
            occupied.push(Occupied { from: request.asked_at, to, is_known });
        }
        occupied
    }

    fn denied_by_nobody(
        &self,
        occupied: &[Occupied],
        health: &Health,
        bounds: Bounds,
        found: &mut Vec<Violation>,
    ) {
        let reach = Reach::of(occupied);
        for request in &self.requests {
            let Answer::Denied { at, by: None } = request.answer else { continue };
            let asked_at = request.asked_at;
            if !health.is_well(asked_at.saturating_sub(nanos(bounds.settle)), at)
                || reach.meets(asked_at, at)
            {
                continue;
            }
            let last = self.tenures.iter().filter(|tenure| {
                tenure.released_at.is_some_and(|released_at| released_at <= asked_at)
            });
            let Some(tenure) = last.max_by_key(|tenure| tenure.released_at) else { continue };
            let text = format!(
                "{} was denied {:?}, and nobody can have held it: the last tenure, fence {}, was \
                 given back {} before it asked",
                request.ask.client,
                request.ask.name,
                tenure.fence,
                spoken(asked_at - tenure.released_at.unwrap_or(asked_at)),
            );
            found.push(proven(Rule::ReleasesAreKept, at, text, tenure, request));
        }
    }

    /// Whether a belief began between these instants; they are in that order.
    fn is_granted(&self, from: Nanos, to: Nanos) -> bool {
        let next = self.tenures.partition_point(|tenure| tenure.from < from);
        self.tenures.get(next).is_some_and(|tenure| tenure.from <= to)
    }

    fn unavailable(
        &self,
        occupied: &[Occupied],
        health: &Health,
        bounds: Bounds,
        last: Nanos,
        found: &mut Vec<Violation>,
    ) {
        let ghosts: Vec<Occupied> = occupied
            .iter()
            .filter(|span| !span.is_known)
            .map(|span| Occupied { ..*span })
            .collect();
        let ghosts = Reach::of(&ghosts);
        for tenure in &self.tenures {
            let Some(from) = tenure.released_at else { continue };
            let to = from + nanos(bounds.available);
            if to > last
                || !health.is_well(from.saturating_sub(nanos(bounds.settle)), to)
                || ghosts.meets(from, to)
                || self.is_granted(from, to)
            {
                continue;
            }
            let waits = |request: &&&Request| {
                let patient_until = request.asked_at + request.ask.wait_ms * 1_000_000;
                request.asked_at <= from
                    && patient_until > to
                    && request.answered_at().is_some_and(|at| at > to)
            };
            let Some(request) = self.requests.iter().find(waits) else { continue };
            let text = format!(
                "{} gave {:?} back (fence {}), and {} after the confirmation {}, which had asked \
                 before, did not have it, nor anybody else",
                tenure.client,
                tenure.name,
                tenure.fence,
                spoken(to - from),
                request.ask.client,
            );
            found.push(proven(Rule::ReleasedIsAvailable, to, text, tenure, request));
        }
    }
}

/// Whether any of many spans meets another, by their begins and how far those before reach.
struct Reach {
    spans: Vec<(Nanos, Nanos)>,
}

impl Reach {
    fn of(occupied: &[Occupied]) -> Self {
        let mut spans: Vec<(Nanos, Nanos)> =
            occupied.iter().map(|span| (span.from, span.to)).collect();
        spans.sort_unstable();
        let mut furthest = 0;
        for (_, to) in &mut spans {
            furthest = furthest.max(*to);
            *to = furthest;
        }
        Self { spans }
    }

    fn meets(&self, from: Nanos, to: Nanos) -> bool {
        let begun = self.spans.partition_point(|(begin, _)| *begin <= to);
        begun.checked_sub(1).is_some_and(|last| self.spans[last].1 >= from)
    }
}

fn proven(rule: Rule, at: Nanos, text: String, tenure: &Tenure, request: &Request) -> Violation {
    let evidence = tenure.evidence.iter().chain(&request.evidence).cloned().collect();
    Violation { rule, name: tenure.name.clone(), at, text, evidence }
}
