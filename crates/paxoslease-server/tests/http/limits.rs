//! Everything has a bound, and who meets it is told.

use std::time::Duration;

use paxoslease_server::http::Bounds;
use serde_json::json;

use crate::asking::Raw;
use crate::cell::{self, until};

/// A connection that has its seat.
fn seated(address: std::net::SocketAddr) -> Raw {
    let mut raw = Raw::connect(address);
    raw.ask("GET", "/healthz", "");
    assert_eq!(raw.reply().status, 200);
    raw
}

#[test]
fn one_connection_serves_many_requests() {
    let cell = cell::one_with(|config| config, Default::default());
    let mut raw = Raw::connect(cell.members[0].address);
    for number in 0..3 {
        raw.ask("POST", &format!("/v1/leases/{number}/acquire"), r#"{"ttl": "5s"}"#);
        assert_eq!(raw.reply().status, 200);
    }
}

#[test]
fn who_comes_when_there_is_no_seat_is_told_and_sent_away() {
    let mut bounds = Bounds::default();
    bounds.connections = 2;
    let cell = cell::one_with(|config| config, bounds);
    let member = &cell.members[0];
    let guests = [seated(member.address), seated(member.address)];
    let refused = member.get("/healthz");
    assert_eq!(refused.refusal(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("limits.connections"), "{refused:?}");
    assert_eq!(refused.header("connection"), "close");
    drop(guests);
    until(|| member.get("/healthz").status == 200);
    until(|| {
        let metrics = member.get("/metrics");
        metrics.text.contains("paxoslease_limited_total{limit=\"http_connections\"} ")
    });
}

#[test]
fn who_does_not_finish_a_request_in_time_is_given_up() {
    let mut bounds = Bounds::default();
    bounds.patience = Duration::from_millis(50);
    let cell = cell::one_with(|config| config, bounds);
    let address = cell.members[0].address;
    let mut silent = Raw::connect(address);
    assert!(silent.is_closed());
    let mut slow = Raw::connect(address);
    slow.send("GET /healthz HTTP/1.1\r\nhost:");
    assert!(slow.is_closed());
    let mut half = Raw::connect(address);
    half.send(
        "POST /v1/leases/x/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: 20\r\n\r\n{",
    );
    assert_eq!(half.reply().refusal(), (408, "timeout".to_owned()));
}

#[test]
fn who_waits_for_a_lease_may_take_longer_than_to_ask_for_it() {
    let mut bounds = Bounds::default();
    bounds.patience = Duration::from_millis(50);
    let cell = cell::one_with(|config| config, bounds);
    let member = &cell.members[0];
    member.take("x");
    let wish = json!({"ttl": "5s", "wait": "200ms"});
    assert_eq!(member.post("/v1/leases/x/acquire", &wish).refusal(), (409, "held".to_owned()));
}

#[test]
fn a_node_at_its_limit_says_so() {
    let with = |mut config: paxoslease::Config| {
        config.limits.waiters = 1;
        config.shards(1)
    };
    let cell = cell::one_with(with, Default::default());
    let member = &cell.members[0];
    member.take("x");
    let mut waiter = Raw::connect(member.address);
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "5s", "wait": "10m"}"#);
    until(|| member.status().waiters == 1);
    let refused = member.post("/v1/leases/x/acquire", &json!({"ttl": "5s", "wait": "10m"}));
    assert_eq!(refused.refusal(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("1 requests wait already"), "{refused:?}");
}

#[test]
fn what_is_no_http_is_answered_and_closed() {
    let cell = cell::one_with(|config| config, Default::default());
    for bytes in ["*1\r\n$4\r\nPING\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{1}\u{2}\u{3}\r\n\r\n"] {
        let mut raw = Raw::connect(cell.members[0].address);
        raw.send(bytes);
        let status = raw.line().expect("an answer");
        assert!(status.starts_with("HTTP/1.1 400 "), "{bytes:?}: {status}");
    }
    let mut raw = Raw::connect(cell.members[0].address);
    raw.send(&format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(20_000)));
    assert_eq!(raw.reply().status, 404);
    let mut raw = Raw::connect(cell.members[0].address);
    raw.send(&format!("GET /healthz HTTP/1.1\r\nhost: x\r\nlong: {}", "a".repeat(40_000)));
    assert!(raw.line().expect("an answer").starts_with("HTTP/1.1 431 "));
}
