//! Everything has a bound, and who meets it is told.

use std::net::TcpListener;
use std::time::Duration;

use paxoslease_server::Gate;
use paxoslease_server::http::{Bounds, Http};
use paxoslease_server::metrics::Metrics;
use serde_json::json;

use crate::asking::{Raw, Reply};
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
    bounds.head_timeout = Duration::from_millis(50);
    let cell = cell::one_with(|config| config, bounds);
    let mut silent = Raw::connect(cell.members[0].address);
    assert!(silent.is_closed());
    let mut half = Raw::connect(cell.members[0].address);
    half.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\nslow: ");
    assert!(half.is_closed());

    let mut bounds = Bounds::default();
    bounds.body_timeout = Duration::from_millis(50);
    let cell = cell::one_with(|config| config, bounds);
    let mut half = Raw::connect(cell.members[0].address);
    half.send(
        "POST /v1/leases/x/acquire HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\ncontent-length: 20\r\n\r\n{",
    );
    assert_eq!(half.reply().refusal(), (408, "timeout".to_owned()));
}

#[test]
fn who_asks_for_nothing_or_half_of_something_is_counted() {
    let cell = cell::one_with(|config| config, Default::default());
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound");
    let mut bounds = Bounds::default();
    bounds.head_timeout = Duration::from_millis(50);
    let (metrics, gate) = (Metrics::new(), Gate::default());
    let node = cell.members[0].node.clone();
    let http = Http::start(node, socket, metrics.clone(), gate, bounds).expect("starts");
    let (mut silent, mut half) = (Raw::connect(address), Raw::connect(address));
    half.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\nslow: ");
    assert!(silent.is_closed() && half.is_closed());
    until(|| metrics.render().contains("paxoslease_limited_total{limit=\"http_idle\"} 2"));
    http.shutdown();
}

#[test]
fn who_waits_for_a_lease_may_take_longer_than_to_ask_for_it() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    member.take("x");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut waiter = Raw::connect(socket.local_addr().expect("bound"));
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "5s", "wait": "200ms"}"#);
    // All of it is there when the time to send it begins.
    let mut bounds = Bounds::default();
    bounds.head_timeout = Duration::from_millis(50);
    bounds.body_timeout = Duration::from_millis(50);
    let (metrics, gate) = (Metrics::new(), Gate::default());
    let http = Http::start(member.node.clone(), socket, metrics, gate, bounds).expect("starts");
    assert_eq!(waiter.reply().refusal(), (409, "held".to_owned()));
    http.shutdown();
}

#[test]
fn a_connection_that_acquires_too_fast_is_slowed_down() {
    let mut bounds = Bounds::default();
    bounds.acquires_per_second = Some(1);
    let cell = cell::one_with(|config| config, bounds);
    let member = &cell.members[0];
    let mut raw = Raw::connect(member.address);
    // One of them comes within a second of another, however slow this machine is.
    let replies = (0..100).map(|number| {
        raw.ask("POST", &format!("/v1/leases/{number}/acquire"), r#"{"ttl": "5s"}"#);
        raw.reply()
    });
    let refused: Vec<Reply> = replies.filter(|reply| reply.status != 200).collect();
    assert_eq!(refused[0].refusal(), (429, "busy".to_owned()));
    assert!(refused[0].field("message").contains("more than 1 acquires a second"));
    let limited = "paxoslease_limited_total{limit=\"acquires_per_second\"} ";
    assert!(member.get("/metrics").text.contains(limited));
    // Others are not held up by that.
    member.take("other");
}

#[test]
fn a_node_at_its_limit_says_so() {
    let with = |mut config: paxoslease_node::Config| {
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
    assert!(member.get("/metrics").text.contains("paxoslease_limited_total{limit=\"waiters\"} 1"));
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
    raw.send(&format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(20_000)));
    assert_eq!(raw.reply().status, 404);
    let mut raw = Raw::connect(cell.members[0].address);
    raw.send(&format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nlong: {}", "a".repeat(40_000)));
    assert!(raw.line().expect("an answer").starts_with("HTTP/1.1 431 "));
}
