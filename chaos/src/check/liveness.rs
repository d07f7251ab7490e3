//! Liveness. After healing, the cell grants every requested name in time, every node grants and
//! releases, and every client logs something. Without a fault, there is no long time without a
//! grant. While only a minority is away, there is none through any of the other nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Coverage, Request, Rule, Run, Tenure, Violation, format_nanos, nanos};
use crate::log::{Event, EventKind, Nanos, NodeState};

/// A healing that was not followed by a fault too soon.
#[derive(Clone, Copy)]
struct Healing<'a> {
    event: &'a Event,
    from: Nanos,
    to: Nanos,
}

impl Healing<'_> {
    fn violation(self, rule: Rule, name: &str, text: String, more: &[Event]) -> Violation {
        let evidence = std::iter::once(self.event).chain(more).cloned().collect();
        Violation { rule, name: name.to_owned(), at: self.to, text, evidence }
    }
}

impl<'a> Run<'a> {
    pub(super) fn liveness(self, judged: &mut Coverage) -> Vec<Violation> {
        let mut found = Vec::new();
        let silence = nanos(self.bounds.silence);
        for (event, bound) in self.healings() {
            judged.healings += 1;
            if let Some(healing) = self.lasting(event, bound) {
                self.names(healing, judged, &mut found);
                self.nodes(healing, judged, &mut found);
            }
            if let Some(healing) = self.lasting(event, silence) {
                self.clients(healing, judged, &mut found);
            }
        }
        self.idle(judged, &mut found);
        self.minority(judged, &mut found);
        found
    }

    fn healings(self) -> impl Iterator<Item = (&'a Event, Nanos)> + use<'a> {
        self.events.iter().filter_map(|event| match event.what {
            EventKind::Healed { bound } => Some((event, bound)),
            _ => None,
        })
    }

    /// `None` if a fault began within `span`, or the run ended.
    fn lasting(self, event: &'a Event, span: Nanos) -> Option<Healing<'a>> {
        let (from, to) = (event.at, event.at + span);
        let is_broken_again = self.health.faults.iter().any(|f| f.to > from && f.from <= to);
        (to <= self.last && !is_broken_again).then_some(Healing { event, from, to })
    }

    fn names(self, healing: Healing<'_>, judged: &mut Coverage, found: &mut Vec<Violation>) {
        let Healing { from, to, .. } = healing;
        // The request came early enough, and its client was there for the answer.
        let is_open = |request: &&Request| {
            request.answered_at().is_none_or(|at| at >= from)
                && request.asked_at <= from + (to - from) / 2
                && request.heard_at > to
        };
        let mut asked: BTreeMap<&str, &Request> = BTreeMap::new();
        for request in self.requests.iter().filter(is_open) {
            asked.entry(&request.ask.name).or_insert(request);
        }
        for (name, request) in asked {
            judged.names += 1;
            let granted = self.tenures.iter().filter(|tenure| tenure.name == name).any(|tenure| {
                (from..=to).contains(&tenure.from) || (tenure.from < from && tenure.to > to)
            });
            if !granted {
                let text = format!(
                    "{name:?} was not granted within {} after everything was mended, \
                     although {} asked",
                    format_nanos(to - from),
                    request.ask.client,
                );
                let rule = Rule::HealedIsGranted;
                found.push(healing.violation(rule, name, text, &request.evidence));
            }
        }
    }

    /// Nodes that were started until then, with the clients that use that node only.
    fn clients_by_node(self, to: Nanos) -> BTreeMap<u16, BTreeSet<&'a str>> {
        let mut nodes: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
        for event in self.events.iter().take_while(|event| event.at <= to) {
            match &event.what {
                EventKind::Node { id, state: NodeState::Started } => {
                    nodes.entry(*id).or_default();
                }
                EventKind::Began { client, through: Some(id), .. } => {
                    nodes.entry(*id).or_default().insert(client);
                }
                _ => {}
            }
        }
        nodes
    }

    /// A node with a majority grants uncontended names, whatever happens to the minority.
    fn minority(self, judged: &mut Coverage, found: &mut Vec<Violation>) {
        let (settle, most) = (nanos(self.bounds.settle), nanos(self.bounds.served));
        for (id, clients) in self.clients_by_node(self.last) {
            let of_node = |tenure: &&Tenure| clients.contains(tenure.client.as_str());
            let grants: Vec<&Tenure> = self.tenures.iter().filter(of_node).collect();
            let Some(first) = grants.first() else { continue };
            for (from, to) in self.health.served_by(id, (first.from, self.last), settle) {
                let broken = self.health.faults.iter().map(|f| (f.from.max(from), f.to.min(to)));
                let broken = broken.filter(|(from, to)| from < to).map(|(from, to)| to - from);
                judged.minority += broken.max().unwrap_or(0);
                let gaps = gaps(&grants, from, to);
                let longest = gaps.iter().map(Gap::span).max().unwrap_or(0);
                judged.longest_unserved = judged.longest_unserved.max(longest);
                for gap in gaps.into_iter().filter(|gap| gap.span() > most) {
                    let span = format_nanos(gap.span());
                    let text = format!(
                        "through node {id} nothing was granted for {span}, though it had a majority"
                    );
                    found.push(gap.violation(Rule::MajorityServes, format!("node {id}"), text));
                }
            }
        }
    }

    /// Each node has a client that uses this node only. The node has to serve it.
    fn nodes(self, healing: Healing<'_>, judged: &mut Coverage, found: &mut Vec<Violation>) {
        let Healing { from, to, .. } = healing;
        for (id, clients) in self.clients_by_node(to) {
            judged.nodes += 1;
            let is_served = self.tenures.iter().any(|tenure| {
                clients.contains(tenure.client.as_str())
                    && tenure.from >= from
                    && tenure.released_at.is_some_and(|at| at <= to)
            });
            if !is_served {
                let text = format!(
                    "through node {id} nothing was granted and given back within {} after \
                     everything was mended",
                    format_nanos(to - from),
                );
                let name = format!("node {id}");
                found.push(healing.violation(Rule::EveryNodeServes, &name, text, &[]));
            }
        }
    }

    /// A client that hangs logs nothing, so its silence is a violation.
    fn clients(self, healing: Healing<'_>, judged: &mut Coverage, found: &mut Vec<Violation>) {
        let Healing { from, to, .. } = healing;
        let mut silent: BTreeMap<&str, &Event> = BTreeMap::new();
        for event in self.events.iter().take_while(|event| event.at <= to) {
            match event.what.client().map(process) {
                Some(client) if event.at >= from => {
                    silent.remove(client);
                }
                Some(client) => {
                    silent.insert(client, event);
                }
                None => {}
            }
        }
        judged.clients += 1;
        for (client, event) in silent {
            let text = format!(
                "{client} was not heard of for {} after everything was mended",
                format_nanos(to - from)
            );
            found.push(healing.violation(
                Rule::ClientsAreHeard,
                client,
                text,
                std::slice::from_ref(event),
            ));
        }
    }

    /// A healthy cell grants something all the time.
    fn idle(self, judged: &mut Coverage, found: &mut Vec<Violation>) {
        let (settle, most) = (nanos(self.bounds.settle), nanos(self.bounds.idle));
        let grants: Vec<&Tenure> = self.tenures.iter().collect();
        let Some(first) = grants.first() else { return };
        for (from, to) in self.health.well((first.from, self.last)) {
            // The first time span begins with a grant, so there is nothing to recover from.
            let from = if from == first.from { from } else { from + settle };
            if from >= to {
                continue;
            }
            judged.healthy += to - from;
            for gap in gaps(&grants, from, to).into_iter().filter(|gap| gap.span() > most) {
                let span = format_nanos(gap.span());
                let text = format!("nothing was granted for {span}, though nothing was broken");
                found.push(gap.violation(Rule::HealthyIsGranted, "any name".to_owned(), text));
            }
        }
    }
}

/// A time without a grant.
pub(super) struct Gap<'a> {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    /// The last grant before it.
    before: Option<&'a Tenure>,
}

impl Gap<'_> {
    fn span(&self) -> Nanos {
        self.to - self.from
    }

    fn violation(&self, rule: Rule, name: String, text: String) -> Violation {
        let evidence = self.before.map_or_else(Vec::new, |grant| grant.evidence.clone());
        Violation { rule, name, at: self.to, text, evidence }
    }
}

/// The times between `from`, the grants within, and `to`. The grants are ordered by time.
pub(super) fn gaps<'a>(grants: &[&'a Tenure], from: Nanos, to: Nanos) -> Vec<Gap<'a>> {
    let begun = grants.partition_point(|grant| grant.from < from);
    let within = grants[begun..].iter().map(|grant| grant.from).take_while(|at| *at <= to);
    let edges: Vec<Nanos> = std::iter::once(from).chain(within).chain([to]).collect();
    let gap = |(place, pair): (usize, &[Nanos])| {
        let before = grants[..begun + place].last().copied();
        Gap { from: pair[0], to: pair[1], before }
    };
    edges.windows(2).enumerate().map(gap).collect()
}

/// The client process of a worker's id.
pub(super) fn process(client: &str) -> &str {
    client.split('.').next().unwrap_or(client)
}
