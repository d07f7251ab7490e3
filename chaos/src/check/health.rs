//! When something was broken, and when nothing was.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::{Event, EventKind, Nanos, NodeState, Phase};

const STALL: &str = "stall of this machine";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultSpan {
    /// `None` for a stall of the machine.
    pub id: Option<u64>,
    pub what: String,
    pub whom: String,
    pub from: Nanos,
    /// The end of the run if the fault never ended.
    pub to: Nanos,
    /// Whether no other fault was active meanwhile or shortly before.
    pub is_alone: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// By their begin.
    pub faults: Vec<FaultSpan>,
    /// When a fault may have kept each node from serving.
    away: BTreeMap<u16, Vec<(Nanos, Nanos)>>,
}

impl Health {
    /// A fault that begins within `settle` after another one is not alone.
    pub(super) fn of(events: &[Event], last: Nanos, settle: Nanos) -> Self {
        let mut drawn: BTreeMap<u64, FaultSpan> = BTreeMap::new();
        let mut faults: Vec<FaultSpan> = Vec::new();
        let mut away = Away::default();
        let span = |id, what: &str, whom: &str, from, to| {
            let (what, whom) = (what.to_owned(), whom.to_owned());
            FaultSpan { id, what, whom, from, to, is_alone: true }
        };
        for event in events {
            away.see(event);
            match &event.what {
                EventKind::Fault { id, what, whom, phase, .. } => {
                    let new = || span(Some(*id), what, whom, event.at, last);
                    let fault = drawn.entry(*id).or_insert_with(new);
                    fault.to = if *phase == Phase::End { event.at } else { last };
                }
                EventKind::Stalled { from } => {
                    faults.push(span(None, STALL, "all processes", *from, event.at));
                }
                _ => {}
            }
        }
        faults.extend(drawn.into_values());
        faults.sort_by_key(|fault| (fault.from, fault.id));
        let spans: Vec<(Nanos, Nanos)> = faults.iter().map(|f| (f.from, f.to)).collect();
        for (place, fault) in faults.iter_mut().enumerate() {
            let meets = |(from, to): (Nanos, Nanos)| from <= fault.to && fault.from <= to + settle;
            let others = spans.iter().enumerate().filter(|(other, _)| *other != place);
            fault.is_alone = !others.into_iter().any(|(_, span)| meets(*span));
        }
        Self { faults, away: away.until(last) }
    }

    /// The number of faults, and of stalls of the machine.
    pub fn counts(&self) -> (u64, u64) {
        let stalls = self.faults.iter().filter(|fault| fault.id.is_none()).count();
        ((self.faults.len() - stalls) as u64, stalls as u64)
    }

    /// Whether no fault was active from `from` to `to`, both included.
    pub fn is_well(&self, from: Nanos, to: Nanos) -> bool {
        !self.faults.iter().any(|fault| fault.from <= to && from <= fault.to)
    }

    /// The times within `span` in which `node` had a majority, itself included. A node counts again
    /// `after` it is back. Empty if the node was never started.
    pub(super) fn served_by(
        &self,
        node: u16,
        span: (Nanos, Nanos),
        after: Nanos,
    ) -> Vec<(Nanos, Nanos)> {
        let Some(own) = self.away.get(&node) else { return Vec::new() };
        let quorum = self.away.len() / 2 + 1;
        let reaches = |at: Nanos| move |(from, to): &(Nanos, Nanos)| *from <= at && at < to + after;
        let serves = |at: Nanos| {
            let here = self.away.values().filter(|spans| !spans.iter().any(reaches(at))).count();
            here >= quorum && !own.iter().any(reaches(at))
        };
        let mut edges: BTreeSet<Nanos> = [span.0, span.1].into();
        edges.extend(self.away.values().flatten().flat_map(|(from, to)| [*from, to + after]));
        let edges: Vec<Nanos> = edges.range(span.0..=span.1).copied().collect();
        let mut stretches: Vec<(Nanos, Nanos)> = Vec::new();
        for pair in edges.windows(2).filter(|pair| serves(pair[0])) {
            match stretches.last_mut().filter(|(_, to)| *to == pair[0]) {
                Some((_, to)) => *to = pair[1],
                None => stretches.push((pair[0], pair[1])),
            }
        }
        stretches
    }

    /// Whether all nodes that were away between `from` and `to`, both included, are less than half.
    pub(super) fn has_majority(&self, from: Nanos, to: Nanos) -> bool {
        let meets = |(begin, end): &(Nanos, Nanos)| *begin <= to && from <= *end;
        let away = self.away.values().filter(|spans| spans.iter().any(meets)).count();
        away == 0 || 2 * away < self.away.len()
    }

    /// The times within `span` without a fault.
    pub fn well(&self, span: (Nanos, Nanos)) -> Vec<(Nanos, Nanos)> {
        let mut stretches = Vec::new();
        let mut from = span.0;
        for fault in &self.faults {
            if from < fault.from {
                stretches.push((from, fault.from));
            }
            from = from.max(fault.to);
        }
        if from < span.1 {
            stretches.push((from, span.1));
        }
        stretches
    }
}

/// Collects when nodes were away, from the steps of every fault.
#[derive(Default)]
struct Away {
    over: BTreeMap<u16, Vec<(Nanos, Nanos)>>,
    /// By fault and node.
    open: BTreeMap<(u64, u16), Nanos>,
}

impl Away {
    fn see(&mut self, event: &Event) {
        match &event.what {
            EventKind::Node { id, state: NodeState::Started } => {
                self.over.entry(*id).or_default();
            }
            EventKind::Fault { id, nodes, phase, .. } => {
                for node in nodes {
                    if *phase == Phase::Begin {
                        self.open.entry((*id, *node)).or_insert(event.at);
                    } else if let Some(from) = self.open.remove(&(*id, *node)) {
                        self.over.entry(*node).or_default().push((from, event.at));
                    }
                }
            }
            EventKind::Stalled { from } => {
                self.over.values_mut().for_each(|spans| spans.push((*from, event.at)));
            }
            _ => {}
        }
    }

    /// A fault without an end lasts to the end of the run.
    fn until(mut self, last: Nanos) -> BTreeMap<u16, Vec<(Nanos, Nanos)>> {
        for ((_, node), from) in self.open {
            self.over.entry(node).or_default().push((from, last));
        }
        self.over
    }
}
