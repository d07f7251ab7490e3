//! Which nodes may join a cell, and what a refused node is told.

use paxoslease_core::{Ballot, NodeId, Record};

use super::*;
use crate::clock::HostClock;
use paxoslease_node::Config;
use paxoslease_node::simulation::write_record;

impl Simulation {
    /// Adds a node, perhaps with a record on its disk, and starts it.
    fn join(&mut self, config: Config, record: Option<Record>) -> usize {
        let node = NodeId::new(config.node).expect("a node id");
        let host = self.world.add_node(config, HostClock::new(0, 0), true);
        if let Some(record) = record {
            let files = self.world.files(host).expect("it has a disk");
            write_record(files, node, record).expect("the disk works");
        }
        self.world.start(host).expect("a disk in memory works");
        host
    }

    /// The status of a host that joined; the judge does not know the host.
    fn status_of_stranger(&mut self, host: usize) -> Status {
        let node = self.world.node(host).expect("it runs");
        self.run(0, async move { node.status().await }).expect("it runs")
    }
}

/// The problem with node 1 in the status of a stranger that comes to a cell of three.
fn problem_of(stranger: Config, record: Option<Record>) -> String {
    let mut cell = cell(&Setup::new(21, 3));
    let host = cell.join(stranger, record);
    cell.run_for(SECOND);
    let status = cell.status_of_stranger(host);
    let first = status.peers.into_iter().find(|peer| peer.node == 1).expect("a member");
    assert!(!first.up);
    let (_, guard) = cell.hold(0);
    cell.run_for(TTL * 2);
    assert!(guard.is_held(), "the cell is not affected");
    cell.assert_sound();
    first.problem.expect("it says why")
}

fn proposer() -> Config {
    Setup { proposers: 1, ..Setup::new(21, 3) }.config(4)
}

#[test]
fn a_node_with_other_settings_is_refused_and_told_why() {
    let mut elsewhere = proposer();
    elsewhere.cell = "elsewhere".to_owned();
    for (stranger, words) in [
        (elsewhere, ["elsewhere", "world"]),
        (proposer().max_lease(Duration::from_secs(7)), ["max_lease", "7"]),
        (proposer().shards(3), ["shard", "3"]),
    ] {
        let problem = problem_of(stranger, None);
        assert!(words.iter().all(|word| problem.contains(word)), "{words:?}: {problem}");
    }
}

#[test]
fn a_node_without_ballots_uses_up_no_ballots_of_others() {
    for counter in [Ballot::COUNTER_LIMIT / 2, Ballot::COUNTER_LIMIT] {
        let record = Record { ballot_ceiling: counter, lease_ceiling: None };
        let problem = problem_of(proposer(), Some(record));
        assert!(problem.contains("decades ahead"), "{problem}");
    }
}

#[test]
fn a_node_without_ballots_is_not_ready_and_says_why() {
    let mut cell = cell(&Setup::new(23, 1));
    let record = Record { ballot_ceiling: Ballot::COUNTER_LIMIT, lease_ceiling: None };
    cell.world.kill(0, Presence::Refusing);
    let files = cell.world.files(0).expect("it has a disk");
    write_record(files, NodeId::new(1).expect("a node id"), record).expect("the disk works");
    cell.world.start(0).expect("a disk in memory works");
    cell.run_for(SECOND);
    let status = cell.status(0);
    assert!(!status.ready);
    assert!(status.ballot_problem.expect("a problem").contains("used up"));
    assert!(status.ballots_remaining_ratio.abs() < f64::EPSILON);
    assert!(matches!(cell.take(0, Duration::ZERO), Err(AcquireError::Ask(AskError::NoQuorum(_)))));
}

#[test]
fn the_older_of_two_processes_with_one_id_is_told_why() {
    let mut cell = cell(&Setup { proposers: 1, ..Setup::new(22, 3) });
    let (_, guard) = cell.hold(0);
    let twin = cell.join(proposer(), None);
    cell.run_for(SECOND * 3);
    let older = cell.status(3);
    let refused = |peer: &paxoslease_holder::PeerStatus| {
        peer.problem.as_deref().is_some_and(|problem| problem.contains("two processes"))
    };
    assert!(older.peers.iter().all(|peer| !peer.up && refused(peer)), "{older:?}");
    let newer = cell.status_of_stranger(twin);
    assert!(newer.ready, "{newer:?}");
    assert!(guard.is_held());
    // The older one keeps dialling, two to four times a second each.
    let before = cell.world.network.dials();
    cell.run_for(SECOND * 10);
    assert!(cell.world.network.dials() - before <= 3 * 10 * 4);
    cell.assert_sound();
}
