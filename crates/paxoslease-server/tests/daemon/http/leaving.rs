//! A client that leaves withdraws its acquire (P8), whatever it has sent meanwhile.

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
