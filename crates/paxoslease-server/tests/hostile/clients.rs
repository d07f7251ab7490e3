//! Clients that take what there is: connections, buffers, patience.

use std::time::Duration;

use crate::support::{Cell, Raw};

const COUNT: u32 = 64;

#[test]
fn a_flood_of_connections_is_counted_and_the_first_are_still_served() {
    let cell = Cell::start_with(|config| config.limits.connections = 8);
    let mut inside: Vec<Raw> = (0..8).map(|_| Raw::connect(cell.address(0))).collect();
    for client in &mut inside {
        client.say(b"PING\r\n");
        assert_eq!(client.hear(64), b"+PONG\r\n");
    }
    for _ in 0..COUNT {
        let mut client = Raw::connect(cell.address(0));
        let heard = client.hear_out();
        assert!(heard.is_empty() || heard.starts_with("-BUSY this node has 8 connections"));
    }
    cell.wait_for_limit(0, "connections", COUNT);
    for client in &mut inside {
        client.say(b"PING\r\n");
        assert_eq!(client.hear(64), b"+PONG\r\n");
    }
    cell.serves();
}

#[test]
fn pipelines_whose_answers_nobody_reads_stop_being_read() {
    let cell = Cell::start();
    let echo = [b"*2\r\n$4\r\nECHO\r\n$8192\r\n".to_vec(), vec![b'x'; 8192], b"\r\n".to_vec()];
    let echo = echo.concat();
    let mut greedy: Vec<Raw> = (0..4).map(|_| Raw::connect(cell.address(0))).collect();
    // 64 MiB, more than sockets hold on their way there and back, and than is kept of answers.
    let all_taken = std::thread::scope(|scope| {
        let stuffing = greedy.iter_mut().map(|client| scope.spawn(|| client.stuff(&echo, 8192)));
        let stuffing: Vec<_> = stuffing.collect();
        stuffing.into_iter().any(|one| one.join().expect("no panic"))
    });
    assert!(!all_taken, "64 MiB were answered to somebody who reads nothing");
    cell.serves();
}

#[test]
fn requests_that_are_begun_and_not_finished_cost_others_nothing() {
    let cell = Cell::start();
    let halves: Vec<Raw> = (0..COUNT)
        .map(|_| {
            let mut client = Raw::connect(cell.address(0));
            // As much as may be said without being whole.
            client.say(&[b"*2\r\n$4\r\nECHO\r\n$60000\r\n".to_vec(), vec![b'x'; 59_000]].concat());
            client
        })
        .collect();
    cell.serves();
    drop(halves);
    cell.serves();
}

#[test]
fn a_crowd_that_waits_and_vanishes_gets_nothing_and_leaves_nothing() {
    let cell = Cell::start();
    let node = cell.servers[1].node();
    let lease = node.acquire("a", Duration::from_secs(60)).blocking().expect("granted");
    let crowd: Vec<Raw> = (0..COUNT)
        .map(|_| {
            let mut client = Raw::connect(cell.address(0));
            client.say(b"LEASE.ACQUIRE a 60000 WAIT 60000\r\n");
            client
        })
        .collect();
    cell.wait_for_waiters(0, "a", COUNT.into());
    drop(crowd);
    let abandoned = "paxoslease_acquires_total{result=\"abandoned\"}";
    cell.wait_for_metric(0, abandoned, f64::from(COUNT));
    lease.release_blocking().expect("released");
    drop(node.acquire("a", Duration::from_secs(5)).blocking().expect("nobody has it"));
}

#[test]
fn half_a_head_on_many_seats_costs_others_nothing() {
    let cell = Cell::start();
    let mut halves: Vec<Raw> = (0..COUNT).map(|_| Raw::connect(cell.http(0))).collect();
    for half in &mut halves {
        half.say(b"GET /healthz HTTP/1.1\r\nhost: x\r\nslow: ");
    }
    cell.wait_for_metric(0, "paxoslease_http_connections", f64::from(COUNT));
    cell.serves();
}

#[test]
fn what_is_no_http_is_counted() {
    let cell = Cell::start();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"*1\r\n$4\r\nPING\r\n"] {
        let mut client = Raw::connect(cell.http(0));
        client.say(bytes);
        client.end();
        client.hear_out();
    }
    cell.wait_for_limit(0, "framing", 2);
    cell.serves();
}
