//! Everything has a bound, and a client that exceeds it is told.

use std::net::TcpListener;
use std::time::Duration;

use paxoslease_server::Gate;
use paxoslease_server::http::{Bounds, Http};
use paxoslease_server::metrics::Metrics;

use crate::harness::{Cell, Raw, until};

const BRIEF: Duration = Duration::from_millis(50);

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
