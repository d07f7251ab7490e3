//! Directed schedules: each makes the harm of one missing rule almost certain (docs/protocol.md,
//! section 8), and does no harm to a correct cell. A rule without one gets a drawn schedule.

use std::time::Duration;

use crate::nemesis::{Fault, NetworkFault, NodeFault, Shape};
use crate::network::Place;
use crate::schedule::{Entry, Plan, Round, Schedule};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectedSchedule {
    pub schedule: Schedule,
    /// `None` for the drift of the plan.
    pub drift_ppm: Option<u32>,
    /// The rate error of all nodes.
    pub clocks_ppm: i64,
}

const DRIFT_PPM: u32 = 100_000;

/// The schedule that shows that a rule is missing, if there is one.
pub fn schedule(rule: &str, plan: &Plan) -> Option<DirectedSchedule> {
    let lease = plan.max_lease;
    let everyone: Vec<u16> = (1..=plan.nodes).collect();
    let rounds = match rule {
        // A holder cannot renew and believes on, while other clients ask acceptors that forgot it.
        "QuarantineCoversLongestTtl" => {
            let kill = entry(Fault::Nodes(NodeFault::Kill, everyone), lease / 4, lease / 40);
            silenced(plan, 3, lease, &[kill])
        }
        // A clean stop during the quarantine would make nodes forget the quarantine.
        "NoSnapshotFromQuarantine" => {
            let kill =
                entry(Fault::Nodes(NodeFault::Kill, everyone.clone()), lease / 4, lease / 40);
            let stop = entry(Fault::Nodes(NodeFault::Stop, everyone), lease / 2, lease / 40);
            silenced(plan, 3, lease, &[kill, stop])
        }
        // Contention is enough: clients propose and undo all the time.
        "ProposeRefusesForeign" | "ReleaseMatchesTenure" => vec![round(Vec::new(), 5 * lease)],
        // The new members know nothing of leases that were not renewed between two decisions.
        "EndWaits" if plan.members < plan.nodes => {
            let (old, new): (Vec<u16>, Vec<u16>) =
                ((1..=plan.members).collect(), (plan.members..=plan.nodes).collect());
            let set = |nodes: &Vec<u16>, at| entry(Fault::Members(nodes.clone()), at, lease / 40);
            let turns = (1..=8u32)
                .map(|turn| set(if turn.is_multiple_of(2) { &old } else { &new }, lease * turn));
            vec![round(turns.collect(), 10 * lease)]
        }
        // Every node is isolated, and each one would be a quorum.
        "QuorumIsMajority" => {
            let cut = |id: &u16| cut(Shape::Isolate(*id), lease / 4, 2 * lease);
            vec![round(everyone.iter().map(cut).collect(), lease)]
        }
        // A holder that cannot renew believes until the end.
        "BeliefKeepsDriftMargin" => {
            let (drift_ppm, clocks_ppm) = (Some(DRIFT_PPM), i64::from(DRIFT_PPM) - 1);
            let directed = plain(plan, silenced(plan, 2, 2 * lease, &[]));
            return Some(DirectedSchedule { drift_ppm, clocks_ppm, ..directed });
        }
        _ => return None,
    };
    Some(plain(plan, rounds))
}

/// A schedule for clocks that are off by a fifth, more than the cell allows.
pub fn outside_the_drift(plan: &Plan) -> DirectedSchedule {
    DirectedSchedule {
        clocks_ppm: 200_000,
        ..plain(plan, silenced(plan, 2, 2 * plan.max_lease, &[]))
    }
}

fn plain(plan: &Plan, rounds: Vec<Round>) -> DirectedSchedule {
    let schedule = Schedule { rounds, bound: plan.bound() };
    DirectedSchedule { schedule, drift_ppm: None, clocks_ppm: 0 }
}

/// Cuts one group of clients after another off from all nodes for `len`, each group `times` times,
/// with the faults in `more`. The other groups want its leases.
fn silenced(plan: &Plan, times: u16, len: Duration, more: &[Entry]) -> Vec<Round> {
    let groups = (1..=plan.groups).cycle().take(usize::from(times * plan.groups));
    let silence = groups.map(|group| {
        let cut = |node| {
            let shape = Shape::Both(Place::Clients(group), Place::Node(node));
            cut(shape, plan.max_lease / 4, len)
        };
        let entries = (1..=plan.nodes).map(cut).chain(more.iter().cloned()).collect();
        round(entries, plan.max_lease)
    });
    silence.collect()
}

fn entry(fault: Fault, begin_at: Duration, len: Duration) -> Entry {
    Entry { fault, episode: 0, begin_at, end_at: begin_at + len }
}

fn cut(shape: Shape, begin_at: Duration, len: Duration) -> Entry {
    entry(Fault::Network(NetworkFault::Cut(shape)), begin_at, len)
}

/// Faults of one kind are steps of one fault.
fn round(mut entries: Vec<Entry>, least: Duration) -> Round {
    let mut kinds: Vec<&str> = Vec::new();
    for entry in &mut entries {
        let kind = entry.fault.kind();
        let place = kinds.iter().position(|other| *other == kind).unwrap_or(kinds.len());
        entry.episode = place as u64;
        if place == kinds.len() {
            kinds.push(kind);
        }
    }
    let len = entries.iter().map(|entry| entry.end_at).max().unwrap_or_default();
    Round { entries, len: len.max(least) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::tests::plan;

    #[test]
    fn schedules_belong_to_rules_as_the_core_spells_them() {
        let plan = plan(1, 3).with_spares(2);
        let rules = paxoslease_core::Rule::ALL.map(|rule| format!("{rule:?}"));
        let directed: Vec<&String> =
            rules.iter().filter(|rule| schedule(rule, &plan).is_some()).collect();
        assert_eq!(
            directed,
            [
                "ProposeRefusesForeign",
                "ReleaseMatchesTenure",
                "BeliefKeepsDriftMargin",
                "QuarantineCoversLongestTtl",
                "NoSnapshotFromQuarantine",
                "QuorumIsMajority",
                "EndWaits",
            ]
        );
    }
}
