//! Watchers see leases begin and end, or are told how much they missed.

use std::net::TcpStream;
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::front::{Answer, Holder, Name, Request};
use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::harness::{Cell, Daemon, Raw, Wire, until};

/// A name and a holder of any length.
#[derive(Clone, Copy)]
pub(super) struct Texts<'a> {
    pub(super) name: &'a str,
    pub(super) holder: &'a str,
}

impl Texts<'_> {
    /// Acquires the name for a minute without HTTP, and returns its fence.
    pub(super) fn acquire(self, daemon: &Daemon) -> u64 {
        let name = Name::new(self.name).expect("a name");
        let lease = (name, Holder::new(self.holder).expect("a holder")).into();
        let (ttl, wait) = (Duration::from_secs(60), Duration::from_secs(60));
        match block_on(daemon.node().remote().ask(Request::acquire(lease, ttl, wait))) {
            Answer::Granted { tenure, .. } => tenure.fence(),
            answer => panic!("{answer:?}"),
        }
    }

    fn acquire_and_release(self, daemon: &Daemon) {
        let fence = self.acquire(daemon);
        let lease = Name::new(self.name).expect("a name").into();
        drop(block_on(daemon.node().remote().ask(Request::Release {
            lease,
            fence,
            is_durable: false,
        })));
    }
}

#[test]
fn a_watcher_that_never_reads_is_disconnected() {
    let cell = Cell::one();
    let (_http, address, metrics) =
        cell[0].serve_http(|bounds| bounds.write_timeout = Duration::from_millis(20));
    let mut raw = Raw::connect(address);
    raw.watch("", "");
    let (name, holder) = ("n".repeat(Name::LEN_MAX), "h".repeat(Holder::LEN_MAX));
    let longest = Texts { name: &name, holder: &holder };
    // Until the sockets hold no more.
    until("the watcher is disconnected", || {
        (0..500).for_each(|_| longest.acquire_and_release(&cell[0]));
        metrics.render().contains("paxoslease_limited_total{limit=\"slow_reader\"} 1")
    });
    let none = "paxoslease_http_connections 0\n";
    until("the connection is closed", || metrics.render().contains(none));
}

#[test]
fn a_slow_watcher_is_told_how_much_it_missed() {
    let cell = Cell::one_with(|config| config.node.shards = 1);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small one");
    socket.connect(&cell[0].http().into()).expect("it listens");
    let mut raw = Raw::on(Wire::on(TcpStream::from(socket)));
    raw.watch("", "");
    let (name, holder) = ("n".repeat(Name::LEN_MAX), "h".repeat(Holder::LEN_MAX));
    let longest = Texts { name: &name, holder: &holder };
    // Sooner or later this is more than all buffers on the way hold, however large they are.
    let (mut round, mut missed) = (0, 0);
    until("the watcher missed events", || {
        round += 1;
        (0..5_000 * round).for_each(|_| longest.acquire_and_release(&cell[0]));
        let end = format!("end of round {round}");
        Texts { name: &end, holder: "me" }.acquire_and_release(&cell[0]);
        loop {
            let (kind, data) = raw.event().expect("open");
            if kind == "missed" {
                missed = data["count"].as_u64().expect("a number");
                return true;
            }
            if data["name"] == json!(end) {
                return false;
            }
        }
    });
    assert!(missed > 0);
    cell[0].wait_for_limit("watch", 1);
    // It goes on from there, once it has caught up: until then it may miss this, too.
    until("the watcher sees events again", || {
        Texts { name: "after", holder: "me" }.acquire_and_release(&cell[0]);
        loop {
            let (kind, data) = raw.event().expect("open");
            if kind == "missed" || data["name"] == "after" {
                return kind != "missed";
            }
        }
    });
}

#[test]
fn watchers_are_limited_and_room_is_made_when_one_leaves() {
    let cell = Cell::one();
    let (_http, address, metrics) = cell[0].serve_http(|bounds| bounds.watchers = 1);
    let mut first = Raw::connect(address);
    first.watch("", "");
    let mut second = Raw::connect(address);
    second.ask("GET", "/v1/watch", "");
    let refused = second.reply();
    assert_eq!(refused.error(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("all watches"), "{refused:?}");
    assert!(metrics.render().contains("paxoslease_limited_total{limit=\"watchers\"} 1"));
    drop(first);
    until("there is room", || {
        let mut next = Raw::connect(address);
        next.ask("GET", "/v1/watch", "");
        next.line().expect("a status") == "HTTP/1.1 200 OK"
    });
}
