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
fn a_crowd_that_waits_and_vanishes_leaves_nothing_behind() {
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
