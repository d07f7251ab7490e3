//! A client that leaves withdraws its acquire (P8), and a daemon that stops answers every client.

use std::net::TcpStream;

use crate::harness::{Cell, Raw, until};

const WAIT: &str = r#"{"ttl": "60s", "wait": "10m"}"#;
const PROBE: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A cell in which `x` is held, and a client that waits for it at the second node.
fn with_waiter() -> (Cell, Raw) {
    let cell = Cell::three();
    cell[0].take("x");
    let mut waiter = Raw::connect(cell[1].http());
    waiter.ask("POST", "/v1/leases/x/acquire", WAIT);
    until("the client waits", || cell[1].status().waiters == 1);
    (cell, waiter)
}

#[test]
fn a_waiter_that_leaves_leaves_the_queue() {
    let (cell, waiter) = with_waiter();
    drop(waiter);
    cell[1].wait_for_no_waiters();
    let fence = serde_json::json!({"fence": cell[0].get("/v1/leases/x").field("fence")});
    assert_eq!(cell[0].post("/v1/leases/x/release", &fence).status, 200);
    cell[1].take("x");
}

#[test]
fn a_waiter_that_sends_more_and_leaves_leaves_the_queue() {
    for more in ["x", PROBE] {
        let (cell, mut after) = with_waiter();
        // With the request, and after it.
        let mut with = Raw::connect(cell[1].http());
        with.ask_and_send("POST", "/v1/leases/x/acquire", WAIT, more);
        until("both wait", || cell[1].status().waiters == 2);
        after.send(more);
        drop((with, after));
        cell[1].wait_for_no_waiters();
        until("both are closed", || cell[1].metric("paxoslease_http_connections") == 0.0);
    }
}

#[test]
fn a_waiter_whose_end_cannot_be_noticed_stops_waiting() {
    let (cell, mut waiter) = with_waiter();
    waiter.send(&PROBE.repeat(4_000));
    let refused = waiter.reply();
    assert_eq!(refused.error(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("a connection of its own"), "{refused:?}");
    assert_eq!(waiter.reply().status, 200, "the requests behind it are answered");
    assert_eq!(cell[1].metric("paxoslease_limited_total{limit=\"out_of_sight\"}"), 1.0);
    cell[1].wait_for_no_waiters();
}

#[test]
fn a_server_that_stops_answers_waiters_and_closes_connections() {
    let cell = Cell::three();
    cell[0].take("x");
    let (http, address, _) = cell[1].serve_http(|_| {});
    let mut waiter = Raw::connect(address);
    waiter.ask("POST", "/v1/leases/x/acquire", WAIT);
    until("the client waits", || cell[1].status().waiters == 1);
    let mut idle = Raw::connect(address);
    idle.ask("GET", "/healthz", "");
    assert_eq!(idle.reply().status, 200);
    http.shutdown();
    assert_eq!(waiter.reply().error(), (503, "stopping".to_owned()));
    assert!(waiter.is_closed() && idle.is_closed());
    assert!(TcpStream::connect(address).is_err());
    cell[1].wait_for_no_waiters();
}

#[test]
fn a_node_that_has_stopped_sends_clients_to_another() {
    let (cell, mut waiter) = with_waiter();
    cell[1].node().shutdown_blocking();
    assert_eq!(waiter.reply().error(), (503, "stopping".to_owned()));
    for path in ["/readyz", "/v1/cell", "/v1/leases/x", "/v1/watch", "/"] {
        let refused = cell[1].get(path);
        assert_eq!(refused.error(), (503, "stopping".to_owned()), "{path}");
        assert!(refused.field("message").contains("ask another"));
    }
    assert_eq!(cell[1].get("/healthz").status, 200);
}
