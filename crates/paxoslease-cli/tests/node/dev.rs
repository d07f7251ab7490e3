//! A cell in one process.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use paxoslease::{Config, Node, Role};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Process, free_port, outcome, paxoslease};

fn begin(args: &[&str], port: u16) -> (Process, Value) {
    let port = port.to_string();
    let process = Process::start(&[&["dev", "--json", "--port", &port], args].concat());
    let line = process.stdout.until(|_| true).remove(0);
    (process, serde_json::from_str(&line).expect("JSON"))
}

#[test]
fn a_cell_comes_up_says_where_and_ends_well_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let port = free_port(3);
        let (process, cell) = begin(&[], port);
        let nodes = cell["nodes"].as_array().expect("a list");
        assert_eq!(nodes.len(), 3, "{cell}");
        for (node, index) in nodes.iter().zip(0..) {
            assert_eq!(node["node"], index + 1);
            let address = format!("127.0.0.1:{}", port + 10 * index);
            assert_eq!(node["listen"]["peers"], address);
            assert!(TcpStream::connect(address).is_ok());
        }
        let name = cell["cell"].as_str().expect("a name").to_owned();
        assert!(name.starts_with("dev-"), "{name}");
        let told = process.stderr.until(|line| line.contains("Ctrl-C stops")).join("\n");
        assert!(told.contains(&name) && told.contains("Role::Proposer"), "{told}");
        process.signal(signal);
        assert_eq!(process.stdout.rest(), [""; 0], "one line of data");
        assert_eq!(process.end(), Some(0));
    }
}

#[test]
fn a_proposer_that_is_told_the_same_takes_leases_from_it() {
    let port = free_port(5);
    let (process, cell) = begin(&["--nodes", "5", "--max-lease", "1m30s"], port);
    assert_eq!(cell["max_lease_ms"], 90_000);
    let mut config = Config::new(cell["cell"].as_str().expect("a name"), 10)
        .role(Role::Proposer)
        .max_lease(Duration::from_secs(90))
        .shards(1);
    for node in cell["nodes"].as_array().expect("a list") {
        let id = node["node"].as_u64().expect("a number") as u16;
        config = config.peer(id, node["listen"]["peers"].as_str().expect("an address"));
    }
    pollster::block_on(async {
        let node = Node::start(config).await.expect("starts");
        node.ready().await.expect("reaches the cell");
        let ttl = Duration::from_secs(90);
        let lease = node.acquire("master", ttl).await.expect("granted");
        assert!(lease.is_held());
        node.shutdown().await;
    });
    process.signal(Signal::TERM);
    assert_eq!(process.end(), Some(0));
}

#[test]
fn two_cells_have_different_names() {
    let (first, one) = begin(&["--nodes", "1"], free_port(1));
    let (second, other) = begin(&["--nodes", "1"], free_port(1));
    assert_ne!(one["cell"], other["cell"]);
    drop((first, second));
}

#[test]
fn a_taken_port_is_one_clear_line() {
    let port = free_port(3);
    let taken = port + 10;
    let _other = TcpListener::bind(("127.0.0.1", taken)).expect("free");
    let (code, stdout, stderr) = outcome(paxoslease(&["dev", "--port", &port.to_string()]));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    let reason = format!("error: cannot listen for peers on 127.0.0.1:{taken}: ");
    assert!(stderr.starts_with(&reason), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
