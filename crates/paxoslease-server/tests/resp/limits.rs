//! Each limit has its error and its metric, and none of them ends a connection.

use crate::support::{Cell, Client, Reply};

#[test]
fn connections_are_limited_and_room_is_made_when_one_ends() {
    let cell = Cell::start_with(|config| config.limits.connections = 2);
    let (mut first, mut second) = (cell.client(0), cell.client(0));
    first.ask(&["PING"]);
    second.ask(&["PING"]);
    let mut third = cell.client(0);
    assert_eq!(
        third.expect().error(),
        "BUSY this node has 2 connections, its limit; ask another, or raise limits.connections"
    );
    assert!(third.is_closed());
    cell.wait_for_metric(0, "paxoslease_limited_total{limit=\"connections\"}", 1.0);
    drop(first);
    loop {
        let mut client = cell.client(0);
        client.send(&["PING"]);
        match client.next() {
            Some(Reply::Simple(_)) => break,
            // Sent away, with or without a word: the room is not made yet.
            Some(Reply::Error(_)) | None => {}
            Some(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn commands_under_way_are_limited_by_connection() {
    let cell = Cell::start_with(|config| config.limits.inflight_per_connection = 3);
    let (mut holder, mut client) = (cell.client(0), cell.client3(1));
    holder.acquire("a", 60_000);
    for id in ["1", "2", "3"] {
        let queued = client.ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000", "NOTIFY", id]);
        assert_eq!(queued, Reply::Simple("QUEUED".to_owned()));
    }
    let refused = client.ask(&["LEASE.GET", "a"]);
    assert!(refused.error().starts_with("BUSY 3 commands of this connection are under way"));
    assert_eq!(client.ask(&["PING"]), Reply::Simple("PONG".to_owned()), "which needs no shard");
    cell.wait_for_metric(1, "paxoslease_limited_total{limit=\"inflight_per_connection\"}", 1.0);
    let mut other = cell.client(1);
    assert!(matches!(other.ask(&["LEASE.GET", "a"]), Reply::Array(_)), "others are not affected");
}

#[test]
fn acquires_are_limited_by_connection_and_second() {
    let cell = Cell::start_with(|config| config.limits.acquires_per_second = Some(1));
    let mut client = cell.client(0);
    let busy =
        (0..1000).find_map(|n| match client.ask(&["LEASE.ACQUIRE", &format!("n/{n}"), "50"]) {
            Reply::Error(text) => Some(text),
            _ => None,
        });
    let expected = "BUSY more than 1 acquires a second on this connection; slow down, or raise \
                    limits.acquires_per_second";
    assert_eq!(busy.as_deref(), Some(expected));
    cell.wait_for_metric(0, "paxoslease_limited_total{limit=\"acquires_per_second\"}", 1.0);
}

#[test]
fn waiters_are_limited_by_node() {
    let cell = Cell::start_with(|config| {
        config.node.limits.waiters = 2;
        config.node.shards = Some(1);
    });
    let mut holder = cell.client(0);
    holder.acquire("a", 60_000);
    let mut waiters: Vec<Client> = (0..2).map(|_| cell.client(1)).collect();
    for (waiter, n) in waiters.iter_mut().zip(1..) {
        waiter.send(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
        cell.wait_for_waiters(1, "a", n);
    }
    let refused = cell.client(1).ask(&["LEASE.ACQUIRE", "a", "60000", "WAIT", "60000"]);
    assert!(refused.error().starts_with("BUSY 2 requests wait already"), "{refused:?}");
    cell.wait_for_metric(1, "paxoslease_limited_total{limit=\"waiters\"}", 1.0);
}

#[test]
fn names_are_limited_by_node() {
    let cell = Cell::start_with(|config| {
        config.node.limits.leases = 1;
        config.node.timing.request_timeout = std::time::Duration::from_millis(50);
        config.node.shards = Some(1);
    });
    let mut client = cell.client(0);
    client.acquire("a", 60_000);
    let refused = client.ask(&["LEASE.ACQUIRE", "b", "60000"]);
    assert!(refused.error().starts_with("BUSY this node keeps as many names"), "{refused:?}");
    cell.wait_for_metric(0, "paxoslease_limited_total{limit=\"leases\"}", 1.0);
}

#[test]
fn patterns_are_limited_by_connection() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    for n in 0..16 {
        assert_eq!(client.ask(&["LEASE.WATCH", &format!("{n}/*")]), Reply::ok());
    }
    let refused = client.ask(&["LEASE.WATCH", "one/more/*"]);
    assert!(refused.error().starts_with("ERR 16 patterns are watched already"), "{refused:?}");
    cell.wait_for_metric(0, "paxoslease_limited_total{limit=\"patterns\"}", 1.0);
    assert_eq!(client.ask(&["LEASE.UNWATCH", "0/*"]), Reply::ok());
    assert_eq!(client.ask(&["LEASE.WATCH", "one/more/*"]), Reply::ok(), "there is room again");
}

#[test]
fn answers_kept_behind_an_acquire_that_waits_count_as_unread() {
    let cell = Cell::start_with(|config| config.node.shards = Some(1));
    let (mut holder, mut client, mut other) = (cell.client(0), cell.client(1), cell.client(1));
    let (name, owner) = ("n".repeat(512), "h".repeat(256));
    holder.acquire("taken", 60_000);
    holder.ask(&["LEASE.ACQUIRE", &name, "60000", "HOLDER", &owner]);
    client.send(&["LEASE.ACQUIRE", "taken", "60000", "WAIT", "60000"]);
    cell.wait_for_waiters(1, "taken", 1);
    // Not as much as may be left unread, though most of it.
    let count = 220;
    for _ in 0..count {
        client.send(&["LEASE.GET", &name]);
    }
    let asked = "paxoslease_commands_total{command=\"lease.get\"}";
    cell.wait_for_metric(1, asked, f64::from(count));
    other.ask(&["LEASE.GET", &name]);
    // All of them were answered before this one. With two more replies it is too much, and what
    // follows, of which nearly nothing would be kept, is not listened to.
    let (message, many) = ("x".repeat(50_000), "1".repeat(60_000));
    for _ in 0..2 {
        client.send(&["ECHO", &message]);
    }
    std::thread::scope(|scope| {
        let mut writer = client.another_handle();
        scope.spawn(move || (0..10).for_each(|_| writer.send(&["SELECT", &many])));
        let refused = client.expect();
        assert!(refused.error().starts_with("BUSY the acquire was taken back"), "{refused:?}");
        for _ in 0..count {
            assert_eq!(client.expect().field("holder"), &Reply::bulk(&owner));
        }
        for _ in 0..2 {
            assert_eq!(client.expect(), Reply::bulk(&message));
        }
        for _ in 0..10 {
            assert!(client.expect().error().starts_with("ERR DB index"), "it is listened to again");
        }
    });
}

#[test]
fn a_client_that_does_not_read_is_not_listened_to_until_it_does() {
    let cell = Cell::start();
    let mut client = cell.client(0);
    let message = "x".repeat(8192);
    // Far more than sockets hold on their way there and back, and than is kept of answers.
    let count = 8192;
    let mut echo = Vec::new();
    paxoslease_wire::resp::put_command(&mut echo, &[b"ECHO", message.as_bytes()]);
    let echoes = echo.repeat(count);
    let mut writer = client.another_handle();
    let said = writer.send_until_stuck(&echoes);
    assert!(said < echoes.len(), "all of it was read, though none of the answers was");
    std::thread::scope(|scope| {
        scope.spawn(|| writer.send_bytes(&echoes[said..]));
        for _ in 0..count {
            assert_eq!(client.expect(), Reply::bulk(&message));
        }
    });
}
