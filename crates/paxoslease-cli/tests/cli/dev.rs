//! A cell in one process.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use paxoslease_node::{Config, Node, Role};
use rustix::process::Signal;

use crate::support::{Cell, LineClient, free_port, outcome, paxoslease};

#[test]
fn a_cell_prints_its_addresses_and_stops_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let port = free_port(3);
        let cell = Cell::with(port, &[]);
        let nodes = cell.described["nodes"].as_array().expect("a list");
        assert_eq!(nodes.len(), 3, "{nodes:?}");
        for (node, index) in nodes.iter().zip(0..) {
            assert_eq!(node["node"], index + 1);
            for (what, offset) in [("clients", 0), ("peers", 1), ("http", 2)] {
                let address = format!("127.0.0.1:{}", port + 10 * index + offset);
                assert_eq!(node["listen"][what], address);
                assert!(TcpStream::connect(address).is_ok());
            }
            assert_eq!(node["pid"], cell.process.id());
        }
        let name = cell.described["cell"].as_str().expect("a name");
        assert!(name.starts_with("dev-"), "{name}");
        let told = cell.process.stderr.until(|line| line.contains("Ctrl-C stops")).join("\n");
        assert!(told.contains(name) && told.contains("lock demo -- sleep 30"), "{told}");
        assert!(told.contains(&format!("redis-cli -p {port} LEASE.ACQUIRE")), "{told}");
        cell.process.signal(signal);
        assert_eq!(cell.process.stdout.rest(), [""; 0], "one line of data");
        assert_eq!(cell.process.end(), Some(0));
    }
}

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
fn two_cells_have_different_names() {
    let [one, other] = [(); 2].map(|()| Cell::with(free_port(1), &["--nodes", "1"]));
    assert_ne!(one.described["cell"], other.described["cell"]);
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

#[test]
fn the_cell_continues_after_a_node_process_is_killed() {
    let cell = Cell::with(free_port(3), &["--processes"]);
    let node = |id: usize| LineClient::connect(&cell.endpoints[id - 1]);
    let fence = node(1).acquire("x");
    let reported = |id: usize, outlook: &str| {
        let begin = format!("node {id} ended");
        cell.process.stderr.until(|line| line.contains(&begin) && line.contains(outlook));
    };
    cell.kill(1);
    reported(1, "a majority is left");
    assert_eq!(node(2).ask(&format!("LEASE.RENEW x {fence} 30000")), ":30000");
    assert_eq!(node(3).ask("LEASE.ACQUIRE x 30000"), "*-1", "it is held still");
    cell.kill(2);
    reported(2, "no majority");
    assert_eq!(cell.process.end_by(Signal::TERM), Some(0));
    assert!(TcpStream::connect(&cell.endpoints[2]).is_err(), "none outlives the cell");
}
