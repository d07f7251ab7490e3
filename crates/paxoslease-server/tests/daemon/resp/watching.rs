//! Watchers are told of leases that begin and end, from whatever node and shard.

use std::collections::BTreeSet;

use crate::harness::{Cell, Client, fence};

/// The next message that contains `text`. There may be others before: an attempt that found no
/// majority is seen to begin and end.
fn told(watcher: &mut Client, text: &str) -> String {
    loop {
        let message = watcher.next();
        if message.contains(text) {
            return message;
        }
    }
}

#[test]
fn a_watcher_is_told_of_leases_that_expire() {
    let cell = Cell::three();
    let mut watcher = cell[1].client3();
    watcher.ask("LEASE.WATCH *");
    let fence = fence(&cell[0].client().ask("LEASE.ACQUIRE short 50"));
    let expired = format!(">[lease.expired short {fence}]");
    assert_eq!(told(&mut watcher, "lease.expired"), expired);
}

#[test]
fn a_slow_watcher_is_told_how_much_it_missed_and_no_other_is() {
    let cell = Cell::three();
    let (mut watcher, mut attentive) = (cell[0].client3(), cell[0].client3());
    watcher.ask("LEASE.WATCH *");
    attentive.ask("LEASE.WATCH *");
    let mut holder = cell[0].client();
    let (name, owner) = ("n".repeat(500), "h".repeat(256));
    // Each hint is most of a kilobyte; the sockets hold a few megabytes before some are missed.
    for round in 0..400 {
        for n in 0..50 {
            holder.send(&format!("LEASE.ACQUIRE {name}{round}/{n} 60000 HOLDER {owner}"));
        }
        let mut fences: BTreeSet<u64> = (0..50).map(|_| fence(&holder.next())).collect();
        // So few that a watcher that reads exceeds no bound.
        while !fences.is_empty() {
            let message = attentive.next();
            assert!(!message.starts_with(">[lease.missed "), "{message}");
            if message.starts_with(">[lease.held ") {
                fences.remove(&fence(&message));
            }
        }
    }
    cell[0].wait_for_limit("watch", 1);
    told(&mut watcher, ">[lease.held ");
    // It may fall behind more than once, and miss what comes after that as well.
    let mut rounds = 0;
    loop {
        let message = watcher.next();
        if let Some(missed) = message.strip_prefix(">[lease.missed ") {
            assert!(fence(missed) > 0);
            rounds += 1;
            holder.acquire(&format!("after/{rounds}"));
        } else if message.contains(&format!(" after/{rounds} ")) {
            break;
        }
    }
}

#[test]
fn a_slow_subscriber_is_told_how_much_it_missed_and_served_on() {
    let cell = Cell::three();
    let mut subscriber = cell[0].client3();
    subscriber.ask("PSUBSCRIBE lease:*");
    let mut holder = cell[0].client();
    let (name, owner) = ("n".repeat(490), "h".repeat(256));
    for round in 0..200 {
        for n in 0..50 {
            holder.send(&format!("LEASE.ACQUIRE {name}{round}/{n} 60000 HOLDER {owner}"));
        }
        for _ in 0..50 {
            holder.next();
        }
    }
    cell[0].wait_for_limit("watch", 1);
    told(&mut subscriber, "missed");
    subscriber.send("PING after");
    told(&mut subscriber, "after");
}
