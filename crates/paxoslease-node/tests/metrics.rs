//! The metrics of a node under the names that dashboards use.

mod cell;

#[test]
fn what_a_node_does_is_counted_under_the_documented_names() {
    cell::metrics();
    let cell = cell::start(3, |config| config.shards(1));
    let held = cell::take(&cell.nodes[0], "held");
    cell.nodes[1].try_acquire("held", cell::TTL).blocking().expect_err("held");
    cell::take(&cell.nodes[2], "x").release_blocking().expect("released");
    drop(held);
    // A node publishes its last counts when it stops.
    cell.nodes.iter().for_each(paxoslease_node::Node::shutdown_blocking);
    let published = cell::metrics();
    for (name, least) in [
        ("paxoslease_acquires_total{result=granted}", 2.0),
        ("paxoslease_acquires_total{result=held}", 1.0),
        ("paxoslease_renewals_total{result=granted}", 0.0),
        ("paxoslease_releases_total{}", 1.0),
        ("paxoslease_round_seconds{}", 1.0),
        ("paxoslease_rounds_total{path=direct}", 2.0),
        ("paxoslease_rounds_total{path=prepared}", 0.0),
        ("paxoslease_leases{}", 0.0),
        ("paxoslease_waiters{}", 0.0),
        ("paxoslease_acceptor_bytes{}", 1.0),
        ("paxoslease_quarantine_remaining_seconds{}", 0.0),
        ("paxoslease_peer_up{peer=3}", 0.0),
        ("paxoslease_peer_rtt_seconds{peer=3}", 0.0),
        ("paxoslease_messages_total{kind=Propose,direction=out}", 4.0),
        ("paxoslease_messages_total{kind=Propose,direction=in}", 2.0),
        ("paxoslease_messages_dropped_total{reason=queue_full}", 0.0),
        ("paxoslease_messages_dropped_total{reason=quarantined}", 0.0),
    ] {
        let found = published.get(name).copied();
        assert!(found.is_some_and(|value| value >= least), "{name}: {found:?} of {published:#?}");
    }
}
