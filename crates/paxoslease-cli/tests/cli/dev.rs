//! A cell of `dev` with another node, and with taken ports.

use std::net::TcpListener;
use std::time::Duration;

use paxoslease_node::{Config, Node, Role};

use crate::support::{Cell, free_port, outcome, paxoslease};

#[test]
fn a_proposer_only_node_acquires_leases_of_the_cell() {
    let cell = Cell::with(free_port(5), &["--nodes", "5", "--max-lease", "1m30s"]);
    assert_eq!(cell.described["max_lease_ms"], 90_000);
    let ttl = Duration::from_secs(90);
    let name = cell.described["cell"].as_str().expect("a name");
    let config = Config::new(name, 10).role(Role::Proposer).max_lease(ttl).shards(1);
    let config =
        (1..=5).fold(config, |config, id| config.peer(id, cell.port(usize::from(id), "peers")));
    paxoslease_client::block_on(async {
        let node = Node::start(config).await.expect("starts");
        node.ready().await.expect("reaches the cell");
        assert!(node.acquire("master", ttl).await.expect("granted").is_held());
        node.shutdown().await;
    });
}

#[test]
fn a_taken_port_is_one_clear_line() {
    let port = free_port(3);
    for (what, offset) in [("clients", 10), ("peers", 11), ("http", 12)] {
        let taken = port + offset;
        let _other = TcpListener::bind(("127.0.0.1", taken)).expect("free");
        let (code, stdout, stderr) = outcome(paxoslease(&["dev", "--port", &port.to_string()]));
        assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
        let reason = format!("error: cannot listen for {what} on 127.0.0.1:{taken}: ");
        assert!(stderr.starts_with(&reason), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
