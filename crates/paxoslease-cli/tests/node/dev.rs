//! A cell in one process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use paxoslease_node::{Config, Node, Role};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Process, free_port, outcome, paxoslease};

fn begin(args: &[&str], port: u16) -> (Process, Value) {
    let port = port.to_string();
    let process = Process::start(&[&["dev", "--json", "--port", &port], args].concat());
    let line = process.stdout.until(|_| true).remove(0);
    (process, serde_json::from_str(&line).expect("JSON"))
}

#[test]
fn a_cell_prints_its_addresses_and_stops_on_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let port = free_port(3);
        let (process, cell) = begin(&[], port);
        let nodes = cell["nodes"].as_array().expect("a list");
        assert_eq!(nodes.len(), 3, "{cell}");
        for (node, index) in nodes.iter().zip(0..) {
            assert_eq!(node["node"], index + 1);
            for (what, offset) in [("clients", 0), ("peers", 1), ("http", 2)] {
                let address = format!("127.0.0.1:{}", port + 10 * index + offset);
                assert_eq!(node["listen"][what], address);
                assert!(TcpStream::connect(address).is_ok());
            }
            assert_eq!(node["pid"], process.id());
        }
        let name = cell["cell"].as_str().expect("a name").to_owned();
        assert!(name.starts_with("dev-"), "{name}");
        let told = process.stderr.until(|line| line.contains("Ctrl-C stops")).join("\n");
        assert!(told.contains(&name) && told.contains("lock demo -- sleep 30"), "{told}");
        assert!(told.contains(&format!("redis-cli -p {port} LEASE.ACQUIRE")), "{told}");
        process.signal(signal);
        assert_eq!(process.stdout.rest(), [""; 0], "one line of data");
        assert_eq!(process.end(), Some(0));
    }
}

#[test]
fn a_proposer_only_node_acquires_leases_of_the_cell() {
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
    paxoslease_client::block_on(async {
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
    let port = free_port(3);
    let (process, cell) = begin(&["--processes"], port);
    let pid = |index: usize| cell["nodes"][index]["pid"].as_i64().expect("a number") as i32;
    let kill = |index| kill_process(Pid::from_raw(pid(index)).expect("a process"), Signal::KILL);
    let ask = |index: u16, command: &[&str]| ask(port + 10 * index, command);
    let granted = ask(0, &["LEASE.ACQUIRE", "x", "30000", "HOLDER", "me"]);
    let fence = granted.lines().nth(1).and_then(|line| line.strip_prefix(':')).expect("a fence");
    kill(0).expect("it runs");
    process
        .stderr
        .until(|line| line.contains("node 1 ended") && line.contains("a majority is left"));
    assert_eq!(ask(1, &["LEASE.RENEW", "x", fence, "30000"]), ":30000");
    assert_eq!(ask(2, &["LEASE.ACQUIRE", "x", "30000"]), "*-1", "it is held still");
    kill(1).expect("it runs");
    process.stderr.until(|line| line.contains("node 2 ended") && line.contains("no majority"));
    process.signal(Signal::TERM);
    assert_eq!(process.end(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", port + 20)).is_err(), "none outlives the cell");
}

/// Sends one command and returns the first line of the reply.
fn ask(port: u16, command: &[&str]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(format!("{}\r\nQUIT\r\n", command.join(" ")).as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("UTF-8");
    reply.trim_end().trim_end_matches("+OK").trim_end().replace('\r', "")
}
