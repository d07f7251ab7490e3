//! A server that stops leaves nobody hanging.

use std::net::TcpStream;

use crate::asking::Raw;
use crate::cell::{self, until};

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
