//! What a node tells of itself without asking its shards.

use super::*;

#[test]
fn what_was_shown_is_told_without_a_word_to_any_shard() {
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
fn what_was_shown_follows_the_cell_and_a_stuck_shard_is_not_ready() {
    let mut simulation = cell(&Setup::new(1, 3));
    let node = simulation.node(0);
    assert!(node.status_shown().expect("it runs").ready);
    simulation.isolate(0);
    simulation.run_for(3 * SECOND);
    assert!(!node.status_shown().expect("it runs").ready, "no majority");
    simulation.heal();
    simulation.run_for(3 * SECOND);
    assert!(node.status_shown().expect("it runs").ready);
    simulation.pause(0);
    simulation.run_for(6 * SECOND);
    assert!(!node.status_shown().expect("it runs").ready, "its shard shows nothing any more");
}
