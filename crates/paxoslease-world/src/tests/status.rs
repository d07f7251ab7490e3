//! The status of a node.

use paxoslease_core::{Ballot, NodeId, Record};
use paxoslease_node::simulation::write_record;

use super::*;

#[test]
fn the_shown_status_needs_no_message_to_a_shard() {
    let mut simulation = cell(&Setup::new(1, 3));
    let asked = simulation.status(0);
    let node = simulation.node(0);
    let shown = node.status_shown().expect("it runs");
    assert!(shown.ready && asked.ready);
    assert_eq!(shown.peers, asked.peers);
    for _ in 0..100 {
        assert_eq!(node.status_shown().expect("it runs"), shown);
    }
    assert!(!simulation.world.process(0).expect("it runs").has_post(), "a shard was asked");
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
