//! Everything has a bound, and a client that exceeds it is told.

use std::net::TcpListener;
use std::time::Duration;

use paxoslease_server::Gate;
use paxoslease_server::http::{Bounds, Http};
use paxoslease_server::metrics::Metrics;

use crate::harness::{Cell, Raw, until};

const BRIEF: Duration = Duration::from_millis(50);

#[test]
fn connections_are_limited_and_room_is_made_when_one_ends() {
    let cell = Cell::one_with(|config| config.limits.connections = 2);
    let connect = |_| {
        let mut raw = Raw::connect(cell[0].http());
        raw.ask("GET", "/healthz", "");
        assert_eq!(raw.reply().status, 200);
        raw
    };
    let connected = [0, 1].map(connect);
    let refused = cell[0].get("/healthz");
    assert_eq!(refused.error(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("limits.connections"), "{refused:?}");
    assert_eq!(refused.header("connection"), "close");
    drop(connected);
    until("there is room", || cell[0].get("/healthz").status == 200);
    cell[0].wait_for_limit("http_connections", 1);
}

#[test]
fn clients_that_do_not_finish_a_head_in_time_are_closed() {
    let cell = Cell::one();
    let (http, address, metrics) = cell[0].serve_http(|bounds| bounds.head_timeout = BRIEF);
    let (mut silent, mut half) = (Raw::connect(address), Raw::connect(address));
    half.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\nslow: ");
    assert!(silent.is_closed() && half.is_closed());
    let counted = "paxoslease_limited_total{limit=\"http_idle\"} 2";
    until("both are counted", || metrics.render().contains(counted));
    http.shutdown();
}

#[test]
fn a_client_that_does_not_finish_a_body_in_time_is_told() {
    let cell = Cell::one();
    let (_http, address, _) = cell[0].serve_http(|bounds| bounds.body_timeout = BRIEF);
    let mut half = Raw::connect(address);
    let headers = "content-type: application/json\r\ncontent-length: 20\r\n";
    half.send_head("POST /v1/leases/x/acquire", headers);
    half.send("{");
    assert_eq!(half.reply().error(), (408, "timeout".to_owned()));
}

#[test]
fn an_acquire_may_wait_longer_than_its_request_may_take() {
    let cell = Cell::one();
    cell[0].take("x");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut waiter = Raw::connect(socket.local_addr().expect("bound"));
    // The whole request is there when the time to send it begins.
    waiter.ask("POST", "/v1/leases/x/acquire", r#"{"ttl": "5s", "wait": "200ms"}"#);
    let mut bounds = Bounds::default();
    (bounds.head_timeout, bounds.body_timeout) = (BRIEF, BRIEF);
    let (node, metrics) = (cell[0].node().clone(), Metrics::new());
    let http = Http::start(node, socket, metrics, Gate::default(), bounds).expect("starts");
    assert_eq!(waiter.reply().error(), (409, "held".to_owned()));
    http.shutdown();
}

#[test]
fn acquires_are_limited_by_connection_and_second() {
    let cell = Cell::one_with(|config| config.limits.acquires_per_second = Some(1));
    let mut raw = Raw::connect(cell[0].http());
    // Two of them come within a second, however slow this machine is.
    let mut replies = (0..100).map(|number| {
        raw.ask("POST", &format!("/v1/leases/{number}/acquire"), r#"{"ttl": "5s"}"#);
        raw.reply()
    });
    let refused = replies.find(|reply| reply.status != 200).expect("one is too fast");
    assert_eq!(refused.error(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("more than 1 acquires a second"));
    cell[0].wait_for_limit("acquires_per_second", 1);
    // Other connections are not affected.
    cell[0].take("other");
}

#[test]
fn bytes_that_are_not_http_are_answered_and_counted() {
    let cell = Cell::one();
    let long_path = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(20_000));
    let long_head =
        format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nlong: {}", "a".repeat(40_000));
    for (bytes, status) in [
        ("*1\r\n$4\r\nPING\r\n", 400),
        ("GET / HTTP/9.9\r\n\r\n", 400),
        ("\u{1}\u{2}\u{3}\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\r\n", 400),
        (&long_path, 404),
        (&long_head, 431),
    ] {
        let mut raw = Raw::connect(cell[0].http());
        raw.send(bytes);
        assert_eq!(raw.reply().status, status, "{bytes:?}");
    }
    cell[0].wait_for_limit("framing", 4);
}
