//! Who may join, and what those who may not are told.

use paxoslease_core::{Ballot, NodeId, Record};

use super::*;
use crate::clock::HostClock;
use paxoslease_node::Config;
use paxoslease_node::simulation::write_record;

/// A stranger comes to a cell of three; what its status says of node 1.
fn problem_of(stranger: Config) -> String {
    problem_of_one_that_ran_before(stranger, None)
}

/// The same for a stranger with a stable record.
fn problem_of_one_that_ran_before(stranger: Config, record: Option<Record>) -> String {
    let mut cell = cell(&Setup::new(21, 3));
    let host = cell.world.add_node(stranger, HostClock::new(0, 0), true);
    if let Some(record) = record {
        let files = cell.world.files(host).expect("it has a disk");
        write_record(files, NodeId::new(4).expect("a node id"), record).expect("the disk works");
    }
    cell.world.start(host).expect("a disk in memory works");
    cell.run_for(SECOND);
    let node = cell.world.node(host).expect("it runs");
    let status = cell.run(0, async move { node.status().await }).expect("it runs");
    let first = status.peers.into_iter().find(|peer| peer.node == 1).expect("a member");
    assert!(!first.up);
    let (_, guard) = cell.hold(0);
    cell.run_for(TTL * 2);
    assert!(guard.is_held(), "the cell does not mind");
    cell.assert_sound();
    first.problem.expect("it says why")
}

fn proposer() -> Config {
    Setup { proposers: 1, ..Setup::new(21, 3) }.config(4)
}

#[test]
fn a_node_of_another_cell_is_told_so() {
    let mut stranger = proposer();
    stranger.cell = "elsewhere".to_owned();
    let problem = problem_of(stranger);
    assert!(problem.contains("elsewhere") && problem.contains("world"), "{problem}");
}

#[test]
fn a_node_with_another_longest_lease_is_told_so() {
    let problem = problem_of(proposer().max_lease(Duration::from_secs(7)));
    assert!(problem.contains("7s") || problem.contains("7000"), "{problem}");
}

#[test]
fn a_node_with_another_number_of_shards_is_told_so() {
    let problem = problem_of(proposer().shards(3));
    assert!(problem.contains("shard"), "{problem}");
}

#[test]
fn a_node_whose_ballots_are_used_up_is_told_so_and_uses_up_nobody_elses() {
    for counter in [Ballot::COUNTER_LIMIT / 2, Ballot::COUNTER_LIMIT] {
        let record = Record { ballot_ceiling: counter, lease_ceiling: None };
        let problem = problem_of_one_that_ran_before(proposer(), Some(record));
        assert!(problem.contains("decades ahead"), "{problem}");
    }
}

#[test]
fn a_node_whose_ballots_are_used_up_is_not_ready_and_says_why() {
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
fn of_two_processes_with_one_id_the_older_is_refused_and_told_why() {
    let mut cell = cell(&Setup { proposers: 1, ..Setup::new(22, 3) });
    let (_, guard) = cell.hold(0);
    let twin = cell.world.add_node(proposer(), HostClock::new(0, 0), true);
    cell.world.start(twin).expect("a disk in memory works");
    cell.run_for(SECOND * 3);
    let older = cell.status(3);
    let refused = |peer: &paxoslease_holder::PeerStatus| {
        peer.problem.as_deref().is_some_and(|problem| problem.contains("two processes"))
    };
    assert!(older.peers.iter().all(|peer| !peer.up && refused(peer)), "{older:?}");
    let node = cell.world.node(twin).expect("it runs");
    let newer = cell.run(0, async move { node.status().await }).expect("it runs");
    assert!(newer.ready, "{newer:?}");
    assert!(guard.is_held());
    // It goes on asking, but not without pause: two to four times a second each.
    let before = cell.world.network.dials();
    cell.run_for(SECOND * 10);
    assert!(cell.world.network.dials() - before <= 3 * 10 * 4);
    cell.assert_sound();
}
