//! A client that leaves takes its wish with it, and a server that stops leaves nobody hanging.

use std::net::TcpStream;

use crate::asking::Raw;
use crate::cell::{self, until};

const WAIT: &str = r#"{"ttl": "60s", "wait": "10m"}"#;

#[test]
fn who_says_more_and_goes_away_leaves_the_queue_and_the_seat() {
    let cell = cell::three();
    cell.members[0].take("x");
    let two = &cell.members[1];
    for more in ["x", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        // With the request, and after it.
        let mut waiters = [Raw::connect(two.address), Raw::connect(two.address)];
        waiters[0].send(&format!(
            "POST /v1/leases/x/acquire HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{WAIT}{more}",
            WAIT.len()
        ));
        waiters[1].ask("POST", "/v1/leases/x/acquire", WAIT);
        until(|| two.status().waiters == 2);
        waiters[1].send(more);
        drop(waiters);
        until(|| two.status().waiters == 0);
    }
    until(|| two.get("/metrics").text.contains("paxoslease_http_connections 1\n"));
}

#[test]
fn who_says_too_much_to_be_seen_leaving_does_not_go_on_waiting() {
    let cell = cell::three();
    cell.members[0].take("x");
    let two = &cell.members[1];
    let mut waiter = Raw::connect(two.address);
    waiter.ask("POST", "/v1/leases/x/acquire", WAIT);
    until(|| two.status().waiters == 1);
    waiter.send(&"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(4_000));
    let refused = waiter.reply();
    assert_eq!(refused.refusal(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("a connection of its own"), "{refused:?}");
    assert_eq!(waiter.reply().status, 200, "what follows is answered");
    assert!(
        two.get("/metrics").text.contains("paxoslease_limited_total{limit=\"out_of_sight\"} 1")
    );
    until(|| two.status().waiters == 0);
}

#[test]
fn who_waits_when_the_server_stops_is_turned_away_and_leaves_the_queue() {
    let mut cell = cell::three();
    cell.members[0].take("x");
    let two = &mut cell.members[1];
    let mut waiter = Raw::connect(two.address);
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "60s", "wait": "10m"}"#);
    until(|| two.status().waiters == 1);
    let mut idle = Raw::connect(two.address);
    idle.ask("GET", "/healthz", "");
    assert_eq!(idle.reply().status, 200);
    two.http.take().expect("runs").shutdown();
    assert_eq!(waiter.reply().refusal(), (503, "stopping".to_owned()));
    assert!(waiter.is_closed() && idle.is_closed());
    assert!(TcpStream::connect(two.address).is_err());
    until(|| two.status().waiters == 0);
}

#[test]
fn who_asks_a_node_that_is_gone_is_sent_to_another() {
    let cell = cell::three();
    cell.members[0].take("x");
    let two = &cell.members[1];
    let mut waiter = Raw::connect(two.address);
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "60s", "wait": "10m"}"#);
    until(|| two.status().waiters == 1);
    two.node.shutdown_blocking();
    assert_eq!(waiter.reply().refusal(), (503, "stopping".to_owned()));
    for path in ["/readyz", "/v1/cell", "/v1/leases/x", "/v1/watch", "/"] {
        let refused = two.get(path);
        assert_eq!(refused.refusal(), (503, "stopping".to_owned()), "{path}");
        assert!(refused.field("message").contains("ask another"));
    }
    assert_eq!(two.get("/healthz").status, 200);
}
