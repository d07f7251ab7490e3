//! Watchers hear of leases that come and go, from whatever node and shard.

use std::collections::BTreeSet;

use crate::support::{Cell, Client, PROTOCOLS, Reply};

/// The next message of this kind that is the one. There may be others before: an attempt that
/// found no majority is seen to begin and end.
fn told(watcher: &mut Client, kind: &str, is_it: impl Fn(&[Reply]) -> bool) -> Reply {
    loop {
        let message = watcher.expect();
        if message.items()[0] == Reply::bulk(kind) && is_it(message.items()) {
            return message;
        }
    }
}

#[test]
fn a_watcher_hears_of_leases_that_begin_and_end() {
    let cell = Cell::start();
    for protocol in PROTOCOLS {
        let mut watcher = cell.client(0);
        watcher.ask(&["HELLO", &protocol.number().to_string()]);
        assert_eq!(watcher.ask(&["LEASE.WATCH", "jobs/*"]), Reply::ok());
        assert_eq!(watcher.ask(&["LEASE.WATCH", "one"]), Reply::ok());
        let mut holder = cell.client(1);
        holder.acquire("else", 60_000);
        for name in ["jobs/1", "one"] {
            let fence = holder.ask(&["LEASE.ACQUIRE", name, "60000", "HOLDER", "me"]).fence();
            let held = told(&mut watcher, "lease.held", |items| items[3].integer() == fence);
            assert_eq!(held.items()[1..3], [Reply::bulk(name), Reply::bulk("me")]);
            assert!(held.items()[4].integer() > 0);
            assert_eq!(matches!(held, Reply::Push(_)), protocol.number() == 3);
            holder.ask(&["LEASE.RELEASE", name, &fence.to_string()]);
            let freed = told(&mut watcher, "lease.freed", |_| true);
            assert_eq!(freed.items()[1..], [Reply::bulk(name)]);
        }
        let seen = holder.ask(&["LEASE.GET", "else"]).field("fence").integer().to_string();
        holder.ask(&["LEASE.RELEASE", "else", &seen]);
    }
}

#[test]
fn a_watcher_hears_of_leases_that_run_out() {
    let cell = Cell::start();
    let mut watcher = cell.client3(1);
    watcher.ask(&["LEASE.WATCH", "*"]);
    let fence = cell.client(0).acquire("short", 50);
    let expired = told(&mut watcher, "lease.expired", |items| items[2].integer() == fence);
    assert_eq!(expired.items()[1], Reply::bulk("short"));
}

#[test]
fn who_stops_watching_hears_nothing_more() {
    let cell = Cell::start();
    let mut watcher = cell.client3(0);
    for pattern in ["a*", "b*"] {
        watcher.ask(&["LEASE.WATCH", pattern]);
    }
    assert_eq!(watcher.ask(&["LEASE.UNWATCH", "a*"]), Reply::ok());
    let mut holder = cell.client(0);
    holder.acquire("a1", 60_000);
    holder.acquire("b1", 60_000);
    assert_eq!(watcher.expect_push()[1], Reply::bulk("b1"));
    watcher.send(&["LEASE.UNWATCH"]);
    while watcher.expect() != Reply::ok() {}
    holder.acquire("b2", 60_000);
    assert_eq!(watcher.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
}

#[test]
fn patterns_of_one_connection_are_bounded() {
    let cell = Cell::start();
    let mut watcher = cell.client(0);
    for n in 0..16 {
        assert_eq!(watcher.ask(&["LEASE.WATCH", &format!("{n}*")]), Reply::ok());
    }
    assert!(watcher.ask(&["LEASE.WATCH", "x*"]).error().starts_with("ERR 16 patterns"));
    assert_eq!(watcher.ask(&["LEASE.WATCH", "3*"]), Reply::ok(), "which it has already");
}

#[test]
fn a_watcher_that_does_not_keep_up_hears_how_much_it_missed_and_others_hear_everything() {
    let cell = Cell::start();
    let (mut watcher, mut attentive) = (cell.client3(0), cell.client3(0));
    watcher.ask(&["LEASE.WATCH", "*"]);
    attentive.ask(&["LEASE.WATCH", "*"]);
    let mut holder = cell.client(0);
    let holder_text = "h".repeat(256);
    let missed = "paxoslease_limited_total{limit=\"watch\"}";
    let name = "n".repeat(500);
    // Each hint is most of a kilobyte; sockets hold a few megabytes before some are missed.
    for round in 0..400 {
        for n in 0..50 {
            let name = format!("{name}{round}/{n}");
            holder.send(&["LEASE.ACQUIRE", &name, "60000", "HOLDER", &holder_text]);
        }
        let mut fences: BTreeSet<i64> = (0..50).map(|_| holder.expect().fence()).collect();
        // So few that no bound is met by one who reads.
        while !fences.is_empty() {
            let message = attentive.expect_push();
            assert_ne!(message[0], Reply::bulk("lease.missed"));
            if message[0] == Reply::bulk("lease.held") {
                fences.remove(&message[3].integer());
            }
        }
    }
    cell.wait_for_metric(0, missed, 1.0);
    told(&mut watcher, "lease.held", |_| true);
    // It may fall behind more than once, and miss what comes after that as well.
    let mut rounds = 0;
    loop {
        let message = watcher.expect_push();
        if message[0] == Reply::bulk("lease.missed") {
            assert!(message[1].integer() > 0);
            rounds += 1;
            holder.acquire(&format!("after/{rounds}"), 60_000);
        } else if message[1] == Reply::bulk(&format!("after/{rounds}")) {
            break;
        }
    }
}
