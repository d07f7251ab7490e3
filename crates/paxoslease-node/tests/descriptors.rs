//! Nodes without file descriptors. In a file of its own, because the limit is that of the process.

mod cell;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use cell::{PATIENCE, config, status, take, until};
use paxoslease_node::{AcquireError, Node, block_on};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

/// Accepting and dialling fail for a while; open connections stay in use.
#[test]
fn nodes_out_of_file_descriptors_keep_working_and_recover() {
    let cell = cell::start(3, |config| config.shards(1));
    let [first, second, third] = &cell.nodes[..] else { panic!("three nodes") };
    // The third must store the lease too: without the first, a lease of two cannot be renewed.
    for node in &cell.nodes {
        until("all are connected", || status(node).peers.iter().all(|peer| peer.up));
    }
    let lease = second.acquire("x", Duration::from_secs(4)).blocking().expect("granted");
    until("the third stores the lease", || status(third).leases == 1);
    let stranger = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");

    let plenty = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(3), ..plenty };
    setrlimit(Resource::Nofile, none).expect("lower is allowed");
    let address: SocketAddr = cell.addresses[1].parse().expect("an address");
    stranger.connect(&address.into()).expect("it listens");
    // The other two dial the first.
    first.shutdown_blocking();
    until("a node is out of descriptors", || {
        let problem = status(third).peers.into_iter().find_map(|peer| peer.problem);
        problem.is_some_and(|problem| problem.contains("open files"))
    });
    // The wait is longer than the ttl: the lease is renewed.
    let refused = third.acquire("x", Duration::from_secs(1)).wait(Duration::from_secs(5));
    assert!(matches!(refused.blocking(), Err(AcquireError::Held { .. })));

    setrlimit(Resource::Nofile, plenty).expect("as before");
    let mut stranger = TcpStream::from(stranger);
    stranger.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("there is room");
    let end = stranger.read(&mut [0]).map_err(|error| error.kind());
    assert_ne!(end, Err(ErrorKind::WouldBlock), "it was not accepted");
    let listener = TcpListener::bind(&cell.addresses[0]).expect("its port");
    let config = config(&cell.addresses, 1).shards(1);
    let first = block_on(Node::start_on(config, listener)).expect("starts");
    for node in [&first, second, third] {
        until("all are connected", || status(node).peers.iter().all(|peer| peer.up));
    }
    assert!(lease.is_held());
    assert!(take(third, "y").is_held());
}
