//! A client that leaves gets no lease that it was not told of (P8), and nothing follows its end.

use crate::harness::{Cell, fence};

const ABANDONED: &str = "paxoslease_acquires_total{result=\"abandoned\"}";
const WAIT: &str = "LEASE.ACQUIRE a 60000 WAIT 60000";
/// More than is kept of a held connection's input, and more than the sockets hold.
const TOO_MANY_PINGS: usize = 100_000;

fn few_under_way() -> Cell {
    Cell::three_with(|config| config.limits.inflight_per_connection = 2)
}

#[test]
fn a_waiter_that_leaves_while_it_is_held_gets_no_lease() {
    let cell = few_under_way();
    cell[0].client().acquire("a");
    // As many replies as may wait behind the acquire; then with more requests behind them.
    for (leavers, pings) in [(1, 3), (2, 1000)] {
        let mut leaver = cell[1].client();
        leaver.send(WAIT);
        cell[1].wait_for_waiters("a", 1);
        leaver.send_bytes(&b"PING\r\n".repeat(pings));
        let read = f64::from(leavers * 3);
        cell[1].wait_for_metric("paxoslease_commands_total{command=\"ping\"}", read);
        drop(leaver);
        cell[1].wait_for_metric(ABANDONED, f64::from(leavers));
    }
}

#[test]
fn a_waiter_whose_end_cannot_be_noticed_is_told_so() {
    let cell = few_under_way();
    let (mut holder, mut waiter) = (cell[0].client(), cell[1].client());
    holder.acquire("a");
    waiter.send(WAIT);
    cell[1].wait_for_waiters("a", 1);
    std::thread::scope(|scope| {
        let mut writer = waiter.another_handle();
        scope.spawn(move || {
            writer.send_bytes(&b"PING\r\n".repeat(TOO_MANY_PINGS));
            writer.wire.end();
        });
        let refused = waiter.next();
        assert!(refused.starts_with("-BUSY out_of_sight: the acquire was cancelled"), "{refused}");
        for _ in 0..TOO_MANY_PINGS {
            assert_eq!(waiter.next(), "+PONG");
        }
        waiter.expect_close();
    });
    cell[1].wait_for_no_waiters();
    cell[1].wait_for_limit("out_of_sight", 1);
}

#[test]
fn a_client_that_closes_its_side_gets_all_its_replies() {
    let cell = Cell::three();
    let (mut holder, mut client) = (cell[0].client(), cell[1].client3());
    holder.acquire("a");
    client.send("LEASE.WATCH *");
    let count = 2000;
    // The requests behind a page of a list are not read before it is sent.
    for _ in 0..count {
        for command in ["LEASE.LIST 0", "LEASE.GET a", "LEASE.RENEW a 1025 60000", "PING"] {
            client.send(command);
        }
    }
    client.wire.end();
    assert_eq!(client.next(), "+OK");
    for _ in 0..count {
        for begin in ["[", "{holder:", "-NOTHELD", "+PONG"] {
            let reply = client.next();
            assert!(reply.starts_with(begin), "{reply}");
        }
    }
    client.expect_close();
}

#[test]
fn a_grant_that_crosses_its_cancel_is_told_before_or_never() {
    let cell = Cell::three();
    let (mut holder, mut waiter) = (cell[0].client(), cell[1].client3());
    let mut other = cell[1].client();
    for round in 0..100 {
        // If the last round had left the lease behind, this would wait longer than the test may.
        let mine = fence(&holder.ask(WAIT));
        waiter.ask(&format!("{WAIT} NOTIFY {round}"));
        cell[1].wait_for_waiters("a", 1);
        holder.send(&format!("LEASE.RELEASE a {mine}"));
        // Sooner and later, so that either the grant or the cancel may win.
        (0..round % 8).for_each(|_| drop(other.ask("PING")));
        waiter.send(&format!("LEASE.CANCEL {round}"));
        let reply = waiter.next();
        if let Some(push) = reply.strip_prefix(&format!(">[lease.granted {round} ")) {
            assert_eq!(waiter.next(), ":0");
            waiter.release("a", fence(push));
        } else {
            assert_eq!(reply, ":1");
        }
        assert_eq!(holder.next(), ":1");
    }
}
