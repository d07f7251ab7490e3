//! Clients that take all there is: connections, buffers, time.

use std::time::Duration;

use crate::harness::{Cell, Wire};

const COUNT: u32 = 64;

/// Many connections, each of which has sent these bytes.
fn crowd(address: std::net::SocketAddr, bytes: &[u8]) -> Vec<Wire> {
    let connect = |_| {
        let mut wire = Wire::connect(address);
        wire.send(bytes);
        wire
    };
    (0..COUNT).map(connect).collect()
}

#[test]
fn a_flood_of_connections_is_counted_and_the_first_are_still_served() {
    let cell = Cell::three_with(|config| config.limits.connections = 8);
    let mut inside: Vec<_> = (0..8).map(|_| cell[0].client()).collect();
    inside.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "+PONG"));
    for _ in 0..COUNT {
        let told = Wire::connect(cell[0].resp()).read_to_close();
        assert!(told.is_empty() || told.starts_with("-BUSY this node has 8 connections"), "{told}");
    }
    cell[0].wait_for_limit("connections", COUNT);
    inside.iter_mut().for_each(|client| assert_eq!(client.ask("PING"), "+PONG"));
    cell.serves();
}

#[test]
fn pipelines_whose_replies_are_not_read_stop_being_read() {
    let cell = Cell::three();
    let echo = format!("*2\r\n$4\r\nECHO\r\n$8192\r\n{}\r\n", "x".repeat(8192)).into_bytes();
    let mut greedy: Vec<Wire> = (0..4).map(|_| Wire::connect(cell[0].resp())).collect();
    // 64 MiB each, more than the sockets and the daemon's buffers hold.
    let all_taken = std::thread::scope(|scope| {
        let stuff = |wire: &mut Wire| {
            let second = Some(Duration::from_secs(1));
            wire.socket().set_write_timeout(second).expect("not zero");
            (0..8192).all(|_| wire.send(&echo))
        };
        let stuffing = greedy.iter_mut().map(|wire| scope.spawn(move || stuff(wire)));
        let stuffing: Vec<_> = stuffing.collect();
        stuffing.into_iter().any(|one| one.join().expect("no panic"))
    });
    assert!(!all_taken, "64 MiB were answered to a client that reads nothing");
    cell.serves();
}

#[test]
fn unfinished_requests_cost_other_clients_nothing() {
    let cell = Cell::three();
    // As much as can be sent without a whole request.
    let half = [b"*2\r\n$4\r\nECHO\r\n$60000\r\n".to_vec(), vec![b'x'; 59_000]].concat();
    let halves = crowd(cell[0].resp(), &half);
    cell.serves();
    drop(halves);
    cell.serves();
}

#[test]
fn a_crowd_that_waits_and_vanishes_gets_nothing_and_leaves_nothing() {
    let cell = Cell::three();
    let node = cell[1].node();
    let lease = node.acquire("a", Duration::from_secs(60)).blocking().expect("granted");
    let crowd = crowd(cell[0].resp(), b"LEASE.ACQUIRE a 60000 WAIT 60000\r\n");
    cell[0].wait_for_waiters("a", COUNT.into());
    drop(crowd);
    let abandoned = "paxoslease_acquires_total{result=\"abandoned\"}";
    cell[0].wait_for_metric(abandoned, f64::from(COUNT));
    lease.release_blocking().expect("released");
    drop(node.acquire("a", Duration::from_secs(5)).blocking().expect("it is free"));
}

#[test]
fn unfinished_heads_of_http_cost_other_clients_nothing() {
    let cell = Cell::three();
    let halves = crowd(cell[0].http(), b"GET /healthz HTTP/1.1\r\nhost: x\r\nslow: ");
    cell[0].wait_for_metric("paxoslease_http_connections", f64::from(COUNT));
    cell.serves();
    drop(halves);
}

#[test]
fn bytes_that_are_not_http_are_counted() {
    let cell = Cell::three();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"*1\r\n$4\r\nPING\r\n"] {
        let mut client = Wire::connect(cell[0].http());
        client.send(bytes);
        client.end();
        client.read_to_close();
    }
    cell[0].wait_for_limit("framing", 2);
    cell.serves();
}
