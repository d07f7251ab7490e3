//! The status that a node shows without asking its shards.

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
