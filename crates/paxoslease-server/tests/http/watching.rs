//! Whoever looks on sees what happens, or hears how much was missed.

use std::net::TcpStream;
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::front::{Answer, Holder, Name, Request};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::asking::Raw;
use crate::cell::{self, Member};

/// Watches; once this returns, nothing is missed.
fn watch(raw: &mut Raw, query: &str) {
    raw.send(&format!("GET /v1/watch{query} HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    assert_eq!(raw.line().expect("a status"), "HTTP/1.1 200 OK");
    let mut headers = Vec::new();
    while let Some(line) = raw.line().filter(|line| !line.is_empty()) {
        headers.push(line);
    }
    assert!(headers.iter().any(|line| line == "content-type: text/event-stream"), "{headers:?}");
    while raw.line().expect("a comment") != ": watching" {}
}

/// The next event and its data; `None` at the end.
fn event(raw: &mut Raw) -> Option<(String, Value)> {
    let event = loop {
        let line = raw.line()?;
        if let Some(event) = line.strip_prefix("event: ") {
            break event.to_owned();
        }
    };
    let data = raw.line().expect("data");
    let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("no data: {data}"));
    Some((event, serde_json::from_str(data).expect("JSON")))
}

#[test]
fn a_watcher_that_never_reads_gives_up_its_seat() {
    let mut bounds = paxoslease_server::http::Bounds::default();
    bounds.write_timeout = Duration::from_millis(20);
    let cell = cell::one_with(|config| config, bounds);
    let member = &cell.members[0];
    let mut raw = Raw::connect(member.address);
    watch(&mut raw, "");
    let remote = member.node.remote();
    let (name, holder) = ("n".repeat(Name::LEN_MAX), "h".repeat(Holder::LEN_MAX));
    let name = Name::new(&name).expect("a name");
    let holder = Holder::new(&holder).expect("a holder");
    // Until the sockets hold no more.
    cell::until(|| {
        for _ in 0..500 {
            let (lease, ttl, wait) =
                ((name, holder).into(), Duration::from_secs(50), Duration::ZERO);
            let taken = block_on(remote.ask(Request::Acquire { lease, ttl, wait }));
            let Answer::Granted { tenure, .. } = taken else { panic!("{taken:?}") };
            let (lease, fence) = (name.into(), tenure.fence());
            block_on(remote.ask(Request::Release { lease, fence }));
        }
        member.get("/metrics").text.contains("paxoslease_limited_total{limit=\"slow_reader\"} 1")
    });
    cell::until(|| member.get("/metrics").text.contains("paxoslease_http_connections 1\n"));
}

#[test]
fn a_watcher_sees_leases_come_and_go() {
    let cell = cell::three();
    let [one, two, _] = &cell.members[..] else { panic!("three members") };
    let mut raw = Raw::connect(two.address);
    watch(&mut raw, "?prefix=jobs%2F");
    one.take("other");
    let fence = one.take("jobs%2Fa");
    one.post("/v1/leases/jobs%2Fa/release", &json!({ "fence": fence }));
    let (kind, seen) = event(&mut raw).expect("open");
    assert_eq!(
        (kind.as_str(), &seen["name"], &seen["holder"]),
        ("held", &json!("jobs/a"), &json!("taker"))
    );
    assert_eq!(seen["fence"], json!(fence));
    assert!((1..=60_000).contains(&seen["ttl_ms"].as_u64().expect("a number")));
    assert_eq!(event(&mut raw), Some(("freed".to_owned(), json!({"name": "jobs/a"}))));
}

#[test]
fn a_watcher_hears_of_leases_that_run_out() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    let mut raw = Raw::connect(member.address);
    watch(&mut raw, "");
    let granted = member.post("/v1/leases/x/acquire", &json!({"ttl": "50ms"}));
    let fence = granted.field("fence");
    assert_eq!(event(&mut raw).expect("open").0, "held");
    let expired = json!({"name": "x", "fence": fence});
    assert_eq!(event(&mut raw), Some(("expired".to_owned(), expired)));
}

/// Takes and gives back a lease, with texts as long as they may be.
fn stir(member: &Member, name: &str, holder: &str) {
    let remote = member.node.remote();
    let (name, holder) = (Name::new(name).expect("a name"), Holder::new(holder).expect("short"));
    let (lease, ttl) = ((name, holder).into(), Duration::from_secs(60));
    match block_on(remote.ask(Request::Acquire { lease, ttl, wait: ttl })) {
        Answer::Granted { tenure, .. } => {
            let (lease, fence) = (name.into(), tenure.fence());
            drop(block_on(remote.ask(Request::Release { lease, fence })));
        }
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn a_watcher_that_does_not_keep_up_is_told_how_much_it_missed() {
    let cell = cell::one_with(|config| config.shards(1), Default::default());
    let member = &cell.members[0];
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small one");
    socket.connect(&member.address.into()).expect("it listens");
    let mut raw = Raw::on(TcpStream::from(socket));
    watch(&mut raw, "");
    let (name, holder) = ("n".repeat(512), "h".repeat(256));
    // Sooner or later that is more than all buffers on the way take, however large they are.
    let missed = (1..)
        .find_map(|round: u64| {
            (0..5_000 * round).for_each(|_| stir(member, &name, &holder));
            let end = format!("end of round {round}");
            stir(member, &end, "me");
            loop {
                let (kind, data) = event(&mut raw).expect("open");
                match data["count"].as_u64() {
                    Some(count) if kind == "missed" => return Some(count),
                    _ if data["name"] == json!(end) => return None,
                    _ => {}
                }
            }
        })
        .expect("a round that is too much");
    assert!(missed > 0);
    let counted = "paxoslease_limited_total{limit=\"watch\"} ";
    cell::until(|| member.get("/metrics").text.contains(counted));
    // And it goes on from there, once it has caught up: until then it may miss this, too.
    let mut sees_on = || {
        stir(member, "after", "me");
        loop {
            let (kind, data) = event(&mut raw).expect("open");
            if kind == "missed" || data["name"] == "after" {
                return kind != "missed";
            }
        }
    };
    while !sees_on() {}
}

#[test]
fn watchers_are_limited_and_room_is_made_when_one_leaves() {
    let mut bounds = paxoslease_server::http::Bounds::default();
    bounds.watchers = 1;
    let cell = cell::one_with(|config| config, bounds);
    let member = &cell.members[0];
    let mut raw = Raw::connect(member.address);
    watch(&mut raw, "");
    let mut second = Raw::connect(member.address);
    second.ask("GET", "/v1/watch", "");
    assert_eq!(second.line().expect("a status"), "HTTP/1.1 429 Too Many Requests");
    let refused = member.get("/v1/watch");
    assert_eq!(refused.refusal(), (429, "busy".to_owned()));
    assert!(refused.field("message").contains("as many watch"), "{refused:?}");
    let metrics = member.get("/metrics").text;
    assert!(metrics.contains("paxoslease_limited_total{limit=\"watchers\"} 2"));
    drop(raw);
    cell::until(|| {
        let mut next = Raw::connect(member.address);
        next.ask("GET", "/v1/watch", "");
        next.line().expect("a status") == "HTTP/1.1 200 OK"
    });
}

#[test]
fn a_watch_ends_with_its_server() {
    let mut cell = cell::one_with(|config| config, Default::default());
    let member = &mut cell.members[0];
    let mut raw = Raw::connect(member.address);
    watch(&mut raw, "");
    member.http.take().expect("runs").shutdown();
    assert_eq!(event(&mut raw), None);
}

#[test]
fn a_watch_ends_with_its_node() {
    let cell = cell::one_with(|config| config, Default::default());
    let member = &cell.members[0];
    let mut raw = Raw::connect(member.address);
    watch(&mut raw, "");
    member.node.shutdown_blocking();
    // To the last chunk, as it should be: the stream is over, not cut off.
    let mut last = Vec::new();
    while let Some(line) = raw.line() {
        last.push(line);
        if last.ends_with(&["0".to_owned(), String::new()]) {
            return;
        }
    }
    panic!("cut off after {last:?}");
}

#[test]
fn a_prefix_longer_than_any_name_is_refused() {
    let cell = cell::one_with(|config| config, Default::default());
    let refused = cell.members[0].get(&format!("/v1/watch?prefix={}", "p".repeat(513)));
    assert_eq!(refused.refusal(), (400, "bad_request".to_owned()));
    assert!(refused.field("message").contains("513 bytes long"), "{refused:?}");
}
