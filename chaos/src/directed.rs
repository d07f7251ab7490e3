//! Schedules that are no matter of luck: each makes the harm of one missing rule all but certain
//! (docs/protocol.md, section 8), and does none to a cell that keeps it.
//!
//! A rule without a schedule of its own is tried with a drawn one.

use std::time::Duration;

use crate::nemesis::{Fault, Shape};
use crate::network::Place;
use crate::schedule::{Entry, Plan, Round, Schedule};

/// What a directed run needs besides its schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directed {
    /// What is broken when.
    pub schedule: Schedule,
    /// How far the cell allows clocks to be off, if not as usual.
    pub drift_ppm: Option<u32>,
    /// How far the nodes' clocks are off, the same for all.
    pub clocks_ppm: i64,
}

/// The clocks that the schedule against drift lets the nodes have: as fast as is allowed.
const DRIFT_PPM: u32 = 100_000;

/// The schedule that finds a rule missing, if there is one.
#[must_use]
pub fn schedule(rule: &str, plan: &Plan) -> Option<Directed> {
    let lease = plan.max_lease;
    let everyone: Vec<u16> = (1..=plan.nodes).collect();
    let plain = |rounds| {
        let schedule = Schedule { rounds, bound: plan.bound() };
        Directed { schedule, drift_ppm: None, clocks_ppm: 0 }
    };
    let directed = match rule {
        // Whoever holds goes on believing, while acceptors that forgot it are asked by others.
        "QuarantineCoversLongestTtl" => {
            let kill = entry(Fault::Kill(everyone), lease / 4, lease / 40);
            plain(vec![round(vec![kill], lease); 4])
        }
        // A clean stop while they wait would let them forget the wait, too.
        "NoSnapshotFromQuarantine" => {
            let kill = entry(Fault::Kill(everyone.clone()), lease / 4, lease / 40);
            let stop = entry(Fault::Stop(everyone), lease / 2, lease / 40);
            plain(vec![round(vec![kill, stop], lease); 4])
        }
        // Contention is enough: somebody proposes, or undoes what was proposed, all the time.
        "ProposeRefusesForeign" | "ReleaseMatchesTenure" => {
            plain(vec![round(Vec::new(), 5 * lease)])
        }
        // Every node is alone, and each would be enough.
        "QuorumIsMajority" => {
            let cut = |id: &u16| entry(Fault::Cut(Shape::Isolate(*id)), lease / 4, 2 * lease);
            plain(vec![round(everyone.iter().map(cut).collect(), lease)])
        }
        // A holder that cannot renew believes up to the very end.
        "BeliefKeepsDriftMargin" => Directed {
            drift_ppm: Some(DRIFT_PPM),
            clocks_ppm: i64::from(DRIFT_PPM) - 1,
            ..plain(silenced(plan))
        },
        _ => return None,
    };
    Some(directed)
}

/// Clocks that are further off than the cell allows: by a fifth.
#[must_use]
pub fn outside_the_drift(plan: &Plan) -> Directed {
    let schedule = Schedule { rounds: silenced(plan), bound: plan.bound() };
    Directed { schedule, drift_ppm: None, clocks_ppm: 200_000 }
}

/// One group of clients after another reaches no node, while the others want what it holds.
fn silenced(plan: &Plan) -> Vec<Round> {
    let lease = plan.max_lease;
    let groups = (1..=plan.groups).cycle().take(2 * usize::from(plan.groups));
    let silence = groups.map(|group| {
        let cut = |node| {
            let shape = Shape::Both(Place::Clients(group), Place::Node(node));
            entry(Fault::Cut(shape), lease / 2, 2 * lease)
        };
        round((1..=plan.nodes).map(cut).collect(), lease)
    });
    silence.collect()
}

fn entry(fault: Fault, begin_at: Duration, len: Duration) -> Entry {
    Entry { fault, episode: 0, begin_at, end_at: begin_at + len }
}

/// Faults of one kind are steps of one.
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

    #[test]
    fn schedules_belong_to_rules_as_the_core_spells_them() {
        let plan = Plan {
            seed: 1,
            nodes: 3,
            groups: 2,
            clients: 8,
            max_lease: Duration::from_secs(2),
            drift_ppm: 1000,
            has_disks: true,
            has_upgrade: false,
        };
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
            ]
        );
    }
}
