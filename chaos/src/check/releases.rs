//! After a confirmed release, that tenure denies no request, and a waiter gets the name soon.
//!
//! Three proofs of a violation. A refusal that names the tenure is proof by itself. A refusal
//! without a name is proof if no other tenure can have excluded the client. A free name with a
//! waiter has to be granted. The second is judged while only a minority is away. The third is
//! judged without a fault, because the judge does not know through which node a client waits. Both
//! need all requests for the name: a client that died during a request may exclude others until its
//! ttl is over.

use std::collections::BTreeMap;

use super::requests::{Answer, Request};
use super::{Coverage, Rule, Run, Tenure, Violation, format_nanos, nanos};
use crate::log::{Kind, Nanos};

pub(super) fn violations(run: Run<'_>, judged: &mut Coverage) -> Vec<Violation> {
    let mut names: BTreeMap<&str, NameHistory<'_>> = BTreeMap::new();
    for tenure in run.tenures {
        names.entry(&tenure.name).or_default().tenures.push(tenure);
    }
    for request in run.requests {
        names.entry(&request.ask.name).or_default().requests.push(request);
    }
    let mut found = Vec::new();
    for name in names.values() {
        name.denied_by_name(&mut found);
        let occupied = name.occupied(run);
        name.denied_by_unknown(&occupied, run, &mut found);
        found.extend(name.unavailable(&occupied, run, judged));
    }
    found
}

#[derive(Default)]
struct NameHistory<'a> {
    tenures: Vec<&'a Tenure>,
    requests: Vec<&'a Request>,
}

/// When a tenure or a leftover may have excluded others.
struct Occupied {
    from: Nanos,
    to: Nanos,
    /// Whether a client knew of the tenure.
    is_known: bool,
}

impl NameHistory<'_> {
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
                    format_nanos(request.asked_at - released_at),
                    tenure.client,
                );
                let rule = Rule::ReleasesAreKept;
                found.push(Violation::of(rule, tenure, at, text, &request.evidence));
            }
        }
    }

    /// Acceptors exclude others a little longer than the holder believes, and a request without a
    /// grant may exclude others for its ttl.
    fn occupied(&self, run: Run<'_>) -> Vec<Occupied> {
        let beliefs: BTreeMap<(&str, u64), &Tenure> = self
            .tenures
            .iter()
            .map(|tenure| ((tenure.client.as_str(), tenure.attempt), *tenure))
            .collect();
        // A fault meanwhile may have delayed messages, which then arrive later.
        let delayed =
            |at: Nanos, after: Nanos| {
                let broken = run.health.faults.iter().filter(|fault| fault.to >= at);
                broken.fold(at + after, |to, fault| {
                    if fault.from <= to { to.max(fault.to + after) } else { to }
                })
            };
        let mut occupied: Vec<Occupied> = Vec::new();
        for request in &self.requests {
            let after = request.ask.ttl_ms * 1_000_000 + nanos(run.bounds.settle);
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
            // `lock` logs no grant; its command does when it runs.
            if request.ask.kind == Kind::Lock
                && let Answer::Granted { at } = request.answer
            {
                occupied.push(Occupied { from: request.asked_at, to: at, is_known: false });
            }
            occupied.push(Occupied { from: request.asked_at, to, is_known });
        }
        occupied
    }

    fn denied_by_unknown(&self, occupied: &[Occupied], run: Run<'_>, found: &mut Vec<Violation>) {
        let reach = SpanIndex::of(occupied);
        for request in &self.requests {
            let Answer::Denied { at, by: None } = request.answer else { continue };
            let asked_at = request.asked_at;
            if !run.health.has_majority(asked_at.saturating_sub(nanos(run.bounds.settle)), at)
                || reach.meets(asked_at, at)
            {
                continue;
            }
            let last = self.tenures.iter().filter(|tenure| {
                tenure.released_at.is_some_and(|released_at| released_at <= asked_at)
            });
            let Some(tenure) = last.max_by_key(|tenure| tenure.released_at) else { continue };
            let text = format!(
                "{} was denied {:?}, and no client can have held it: the last tenure, fence {}, was \
                 given back {} before it asked",
                request.ask.client,
                request.ask.name,
                tenure.fence,
                format_nanos(asked_at - tenure.released_at.unwrap_or(asked_at)),
            );
            found.push(Violation::of(Rule::ReleasesAreKept, tenure, at, text, &request.evidence));
        }
    }

    /// When the next belief began, maybe before the confirmation of the release arrived.
    fn granted_after(&self, tenure: &Tenure) -> Option<Nanos> {
        let next = self.tenures.partition_point(|other| other.from < tenure.to);
        let others = self.tenures[next..].iter().filter(|other| other.fence != tenure.fence);
        others.map(|other| other.from).next()
    }

    fn unavailable(
        &self,
        occupied: &[Occupied],
        run: Run<'_>,
        judged: &mut Coverage,
    ) -> Vec<Violation> {
        let ghosts = SpanIndex::of(occupied.iter().filter(|span| !span.is_known));
        let mut found = Vec::new();
        for tenure in &self.tenures {
            let Some(from) = tenure.released_at else { continue };
            let to = from + nanos(run.bounds.available);
            if to > run.last
                || !run.health.is_well(from.saturating_sub(nanos(run.bounds.settle)), to)
                || ghosts.meets(from, to)
            {
                continue;
            }
            // Another check covers clients without an answer.
            let waits = |request: &&&Request| {
                let patient_until = request.asked_at + request.ask.wait_ms * 1_000_000;
                request.asked_at <= from
                    && patient_until > to
                    && request.answered_at().is_some_and(|at| at > from)
            };
            let Some(request) = self.requests.iter().find(waits) else { continue };
            judged.releases += 1;
            let granted_at = self.granted_after(tenure).unwrap_or(run.last);
            judged.longest_wait = judged.longest_wait.max(granted_at.saturating_sub(from));
            if granted_at <= to {
                continue;
            }
            let text = format!(
                "{} gave {:?} back (fence {}), and {} after the confirmation {}, which had asked \
                 before, did not have it, and no other client did",
                tenure.client,
                tenure.name,
                tenure.fence,
                format_nanos(to - from),
                request.ask.client,
            );
            let rule = Rule::ReleasedIsAvailable;
            found.push(Violation::of(rule, tenure, to, text, &request.evidence));
        }
        found
    }
}

/// Tells whether any of many spans overlaps another one.
struct SpanIndex {
    spans: Vec<(Nanos, Nanos)>,
}

impl SpanIndex {
    fn of<'a>(occupied: impl IntoIterator<Item = &'a Occupied>) -> Self {
        let mut spans: Vec<(Nanos, Nanos)> =
            occupied.into_iter().map(|span| (span.from, span.to)).collect();
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
