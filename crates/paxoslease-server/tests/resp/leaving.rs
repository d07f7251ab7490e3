//! Who leaves takes nothing along and leaves nothing behind but what it was told (P8).

use crate::support::{Cell, Reply};

#[test]
fn a_waiter_that_leaves_does_not_get_the_lease() {
    let cell = Cell::start();
    let (mut holder, mut leaver) = (cell.client(0), cell.client(1));
    let fence = holder.acquire("a", 60_000).to_string();
    leaver.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    cell.wait_for_waiters(1, "a", 1);
    drop(leaver);
    let abandoned = "paxoslease_acquires_total{result=\"abandoned\"}";
    cell.wait_for_metric(1, abandoned, 1.0);
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    holder.acquire("a", 60_000);
}

#[test]
fn a_waiter_for_a_push_that_leaves_does_not_get_the_lease() {
    let cell = Cell::start();
    let (mut holder, mut leaver) = (cell.client(0), cell.client3(1));
    let fence = holder.acquire("a", 60_000).to_string();
    leaver.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "1"]);
    drop(leaver);
    cell.wait_for_metric(1, "paxoslease_acquires_total{result=\"abandoned\"}", 1.0);
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    holder.acquire("a", 60_000);
}

#[test]
fn a_waiter_that_leaves_while_nobody_listens_to_it_does_not_get_the_lease() {
    let cell = Cell::start_with(|config| config.limits.inflight_per_connection = 2);
    let mut holder = cell.client(0);
    holder.acquire("a", 60_000);
    let abandoned = "paxoslease_acquires_total{result=\"abandoned\"}";
    // As many replies as may pile up behind the waiter, and with more to read behind them.
    for (leaver_no, pings) in [(1, 3), (2, 1000)] {
        let mut leaver = cell.client(1);
        leaver.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
        cell.wait_for_waiters(1, "a", 1);
        leaver.send_bytes(&b"PING\r\n".repeat(pings));
        let heard = f64::from(leaver_no * 3);
        cell.wait_for_metric(1, "paxoslease_commands_total{command=\"ping\"}", heard);
        drop(leaver);
        cell.wait_for_metric(1, abandoned, f64::from(leaver_no));
    }
}

/// More than is kept of what a client says while it is not listened to, and than sockets hold.
const TOO_MANY_PINGS: usize = 100_000;

#[test]
fn a_waiter_that_leaves_behind_too_much_to_see_it_does_not_get_the_lease() {
    let cell = Cell::start_with(|config| config.limits.inflight_per_connection = 2);
    let (mut holder, mut leaver) = (cell.client(0), cell.client(1));
    let fence = holder.acquire("a", 60_000).to_string();
    leaver.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    cell.wait_for_waiters(1, "a", 1);
    leaver.send_bytes(&b"PING\r\n".repeat(TOO_MANY_PINGS));
    drop(leaver);
    cell.wait_for_metric(1, "paxoslease_acquires_total{result=\"abandoned\"}", 1.0);
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    holder.acquire("a", 60_000);
}

#[test]
fn a_waiter_that_could_not_be_seen_leaving_hears_so_and_then_everything_else() {
    let cell = Cell::start_with(|config| config.limits.inflight_per_connection = 2);
    let (mut holder, mut waiter) = (cell.client(0), cell.client(1));
    holder.acquire("a", 60_000);
    waiter.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    cell.wait_for_waiters(1, "a", 1);
    std::thread::scope(|scope| {
        let mut writer = waiter.another_handle();
        scope.spawn(move || {
            writer.send_bytes(&b"PING\r\n".repeat(TOO_MANY_PINGS));
            writer.close_own_side();
        });
        let refused = waiter.expect();
        assert!(refused.error().starts_with("BUSY the acquire was taken back"), "{refused:?}");
        for _ in 0..TOO_MANY_PINGS {
            assert_eq!(waiter.expect(), Reply::Simple("PONG".to_owned()));
        }
        assert!(waiter.is_closed());
    });
    cell.wait_for_metric(1, "paxoslease_limited_total{limit=\"out_of_sight\"}", 1.0);
}

#[test]
fn who_closes_its_side_hears_everything_it_asked() {
    let cell = Cell::start();
    let (mut holder, mut client) = (cell.client(0), cell.client3(1));
    holder.acquire("a", 60_000);
    client.send(&["LEASE.WATCH", "*"]);
    let count = 2000;
    // A page of a list makes what follows wait unread.
    for _ in 0..count {
        client.send(&["LEASE.LIST", "0"]);
        client.send(&["LEASE.GET", "a"]);
        client.send(&["LEASE.RENEW", "a", "1025", "60000"]);
        client.send(&["PING"]);
    }
    client.close_own_side();
    assert_eq!(client.expect(), Reply::ok());
    for _ in 0..count {
        assert_eq!(client.expect().items().len(), 2);
        assert!(client.expect().field("ttl_ms").integer() > 0);
        assert!(client.expect().error().starts_with("NOTHELD"));
        assert_eq!(client.expect(), Reply::Simple("PONG".to_owned()));
    }
    assert!(client.is_closed());
}

#[test]
fn who_closes_its_side_acquires_nothing_more() {
    let cell = Cell::start_with(|config| config.limits.inflight_per_connection = 2);
    let (mut holder, mut client) = (cell.client(0), cell.client(1));
    let fence = holder.acquire("a", 60_000).to_string();
    client.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    client.send(&["LEASE.GET", "a"]);
    client.send_bytes(&b"PING\r\n".repeat(10));
    client.send(&["LEASE.ACQUIRE", "b", "60000"]);
    cell.wait_for_waiters(1, "a", 1);
    client.close_own_side();
    let taken_back = "ERR the acquire was taken back";
    assert!(client.expect().error().starts_with(taken_back));
    assert_eq!(client.expect().field("fence").integer().to_string(), fence);
    for _ in 0..10 {
        assert_eq!(client.expect(), Reply::Simple("PONG".to_owned()));
    }
    assert!(client.expect().error().starts_with(taken_back), "also what was read after that");
    assert!(client.is_closed());
    holder.ask(&["LEASE.RELEASE", "a", &fence]);
    holder.acquire("a", 60_000);
    holder.acquire("b", 60_000);
}

#[test]
fn a_grant_that_nobody_heard_of_is_given_back() {
    let cell = Cell::start();
    let (mut holder, mut leaver) = (cell.client(0), cell.client(1));
    holder.acquire("taken", 60_000);
    // The grant of the second is kept behind the first, which waits.
    leaver.send(&["LEASE.ACQUIRE", "taken", "60000", "WAIT", "60000"]);
    leaver.send(&["LEASE.ACQUIRE", "a", "60000", "HOLDER", "leaver"]);
    while holder.ask(&["LEASE.GET", "a"]) == Reply::Null {}
    drop(leaver);
    // Long before its ttl is over.
    while holder.ask(&["LEASE.ACQUIRE", "a", "60000"]) == Reply::Null {}
}

#[test]
fn a_grant_that_was_heard_of_outlives_its_connection() {
    let cell = Cell::start();
    let mut leaver = cell.client(1);
    let fence = leaver.acquire("a", 60_000);
    drop(leaver);
    let mut client = cell.client(0);
    cell.wait_for_metric(1, "paxoslease_commands_total{command=\"lease.acquire\"}", 1.0);
    assert_eq!(client.ask(&["LEASE.GET", "a"]).field("fence").integer(), fence);
    let renewed = client.ask(&["LEASE.RENEW", "a", &fence.to_string(), "60000"]);
    assert_eq!(renewed, Reply::Integer(60_000), "and any node renews it");
}

#[test]
fn a_node_that_stops_tells_those_who_wait_and_hangs_up() {
    let mut cell = Cell::start();
    let (mut holder, mut waiter, mut idle) = (cell.client(0), cell.client(1), cell.client(1));
    let mut notified = cell.client3(1);
    let fence = holder.acquire("a", 60_000).to_string();
    idle.ask(&["PING"]);
    waiter.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    cell.wait_for_waiters(1, "a", 1);
    notified.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", "1"]);
    cell.servers.remove(1).shutdown();
    assert_eq!(waiter.expect().error(), "STOPPING this node is stopping; ask another");
    assert!(waiter.is_closed());
    assert!(idle.is_closed());
    assert!(notified.is_closed());
    assert_eq!(holder.ask(&["LEASE.RELEASE", "a", &fence]), Reply::Integer(1));
    holder.acquire("a", 60_000);
}
