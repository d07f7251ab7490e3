//! Cuts a history that is not linearizable down to a part that people can read.
//!
//! Every cut keeps the verdict honest: whatever the smaller history forbids, the larger one forbids
//! too. So operations are left out only if they change nothing, or if they come before a moment
//! from which no state of the key explains the rest.

use std::collections::BTreeSet;

use super::history::{Doubt, Operation, Outcome, Reply, Value};
use super::judge::{Verdict, judge, judge_from};
use super::model::{Class, Service, State};
use crate::log::Nanos;

/// A part of a history that no state at its begin explains, and with the wrong replies that do.
pub fn shrink(operations: &[Operation], service: Service, classes: &[Class]) -> Vec<Operation> {
    let part = until_first(operations, service);
    let (from, part) = since_last(&part, service);
    let states = states(operations, from);
    let is_evidence = |part: &[Operation]| {
        let strictly = explanation(part, service, from, &states, &[]);
        let tolerantly = explanation(part, service, from, &states, classes);
        strictly == Explanation::None && tolerantly == Explanation::Some
    };
    without_bystanders(part, &is_evidence)
}

/// The key as it may have been at an instant: free, or held with a value that was set before.
fn states(operations: &[Operation], at: Nanos) -> Vec<State> {
    let mut held = BTreeSet::new();
    let may_be_set = operations.iter().filter(|one| one.called_at < at && !one.changes_nothing());
    let values: BTreeSet<Value> = may_be_set.filter_map(|one| one.command.sets()).collect();
    held.extend(values.iter().map(|value| (*value, None)));
    for operation in operations {
        let told = match operation.outcome {
            Outcome::Reply(Reply::Held { value, fence, .. }) => Some((value, Some(fence))),
            Outcome::Reply(Reply::Granted { fence }) => {
                operation.command.sets().map(|value| (value, Some(fence)))
            }
            _ => None,
        };
        held.extend(told.filter(|(value, _)| values.contains(value)));
    }
    let held = held.into_iter().map(|(value, fence)| State::held_before(value, fence));
    [State::default()].into_iter().chain(held).collect()
}

/// Up to the first reply by which the history is not linearizable. What is not over by then may
/// still do anything.
fn until_first(operations: &[Operation], service: Service) -> Vec<Operation> {
    let until = |to: Nanos| -> Vec<Operation> {
        let begun = operations.iter().filter(|one| one.called_at <= to);
        begun
            .map(|one| match one.returned_at > to {
                true => Operation { outcome: Outcome::Unknown(Doubt::Later), ..one.clone() },
                false => one.clone(),
            })
            .collect()
    };
    let mut ends: Vec<Nanos> = operations.iter().map(|one| one.returned_at).collect();
    ends.sort_unstable();
    let place =
        ends.partition_point(|to| judge(&until(*to), service, &[]) != Verdict::NotLinearizable);
    until(ends.get(place).copied().unwrap_or(Nanos::MAX))
}

/// Since the last moment from which no state explains the rest.
fn since_last(operations: &[Operation], service: Service) -> (Nanos, Vec<Operation>) {
    let mut begins: Vec<Nanos> = operations.iter().map(|one| one.called_at).collect();
    begins.sort_unstable();
    let place = begins.partition_point(|from| {
        let states = states(operations, *from);
        explanation(operations, service, *from, &states, &[]) == Explanation::None
    });
    let from = place.checked_sub(1).map_or(0, |place| begins[place]);
    let part = operations.iter().filter(|one| one.over_at() >= from);
    (from, part.cloned().collect())
}

/// Whether the key could be in a state at an instant from which the rest is linearizable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Explanation {
    Some,
    None,
    Undecided,
}

fn explanation(
    operations: &[Operation],
    service: Service,
    from: Nanos,
    states: &[State],
    tolerated: &[Class],
) -> Explanation {
    let mut explanation = Explanation::None;
    for state in states {
        match judge_from(operations, service, tolerated, (from, state.clone())) {
            Verdict::Linearizable => return Explanation::Some,
            Verdict::NotLinearizable => {}
            Verdict::Undecided => explanation = Explanation::Undecided,
        }
    }
    explanation
}

/// Without operations that change nothing, as long as the rest is evidence.
fn without_bystanders(
    operations: Vec<Operation>,
    is_evidence: &dyn Fn(&[Operation]) -> bool,
) -> Vec<Operation> {
    let mut part = operations;
    for place in (0..part.len()).rev() {
        if !part[place].changes_nothing() {
            continue;
        }
        let mut smaller = part.clone();
        smaller.remove(place);
        if is_evidence(&smaller) {
            part = smaller;
        }
    }
    part
}
