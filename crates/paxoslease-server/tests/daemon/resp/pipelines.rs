//! Replies come in the order of their commands, and a client that does not read has to wait.

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use crate::harness::{Cell, Wire, fence};

#[test]
fn a_pipeline_is_answered_in_order() {
    let cell = Cell::three();
    let mut client = cell[0].client();
    let count = 2000;
    for n in 0..count {
        client.send(&format!("LEASE.ACQUIRE order/{n} 60000 HOLDER holder-{n}"));
        client.send(&format!("ECHO {n}"));
        client.send(&format!("LEASE.GET order/{}", n / 2));
    }
    for n in 0..count {
        assert!(fence(&client.next()) > 0);
        assert_eq!(client.next(), n.to_string());
        // A GET that overtook the acquire of its name sees nothing yet.
        let seen = client.next();
        let holder = format!("[holder holder-{} ", n / 2);
        assert!(seen == "nil" || seen.starts_with(&holder), "{seen}");
    }
}

#[test]
fn pages_of_lists_in_a_pipeline_are_answered_one_by_one() {
    let cell = Cell::three();
    let mut client = cell[0].client();
    for n in 0..300 {
        client.send(&format!("LEASE.ACQUIRE n/{n} 60000 HOLDER {}", "h".repeat(200)));
    }
    for _ in 0..300 {
        fence(&client.next());
    }
    // All of them are many times more than a client may leave unread.
    for _ in 0..100 {
        client.send("LEASE.LIST 0 COUNT 1000");
    }
    client.send("PING");
    for _ in 0..100 {
        let page = client.next();
        assert!(page.starts_with('[') && page.contains(" [[n/"), "{page}");
    }
    assert_eq!(client.next(), "+PONG");
}

#[test]
fn replies_kept_behind_a_waiting_acquire_count_as_unread() {
    let cell = Cell::three_with(|config| config.node.shards = 1);
    let (mut holder, mut client) = (cell[0].client(), cell[1].client());
    let (name, owner) = ("n".repeat(512), "h".repeat(256));
    holder.acquire("taken");
    holder.ask(&format!("LEASE.ACQUIRE {name} 60000 HOLDER {owner}"));
    client.send("LEASE.ACQUIRE taken 60000 WAIT 60000");
    cell[1].wait_for_waiters("taken", 1);
    // Most of what may be left unread.
    let count = 175;
    for _ in 0..count {
        client.send(&format!("LEASE.GET {name}"));
    }
    cell[1].wait_for_metric("paxoslease_commands_total{command=\"lease.get\"}", f64::from(count));
    // All of them were answered before this one.
    cell[1].client().ask(&format!("LEASE.GET {name}"));
    // With two more replies it is too much, and the requests behind them are not read, although
    // their replies are short.
    let (message, many) = ("x".repeat(50_000), "1".repeat(60_000));
    for _ in 0..2 {
        client.send(&format!("ECHO {message}"));
    }
    std::thread::scope(|scope| {
        let mut writer = client.another_handle();
        scope.spawn(move || (0..10).for_each(|_| writer.send(&format!("SELECT {many}"))));
        let refused = client.next();
        assert!(refused.starts_with("-BUSY out_of_sight: the acquire was cancelled"), "{refused}");
        for _ in 0..count {
            assert!(client.next().starts_with(&format!("[holder {owner} ")));
        }
        for _ in 0..2 {
            assert_eq!(client.next(), message);
        }
        for _ in 0..10 {
            assert!(client.next().starts_with("-ERR value is not"), "requests are read again");
        }
    });
}

/// Sends until the daemon takes nothing for a second. Returns how much it took.
fn send_until_stuck(wire: &mut Wire, bytes: &[u8]) -> usize {
    let set = |wire: &Wire, timeout| {
        wire.socket().set_write_timeout(timeout).expect("an option of every socket");
    };
    set(wire, Some(Duration::from_secs(1)));
    let mut sent = 0;
    while sent < bytes.len() {
        match wire.write(&bytes[sent..]) {
            Ok(len) => sent += len,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                break;
            }
            Err(error) => panic!("sends: {error}"),
        }
    }
    set(wire, None);
    sent
}

#[test]
fn requests_wait_until_their_client_reads_replies() {
    let cell = Cell::three();
    let mut client = cell[0].client();
    let message = "x".repeat(8192);
    // Far more than the sockets and the daemon's buffers hold.
    let count = 8192;
    let echoes = format!("*2\r\n$4\r\nECHO\r\n$8192\r\n{message}\r\n").repeat(count).into_bytes();
    let mut writer = client.another_handle();
    let sent = send_until_stuck(&mut writer.wire, &echoes);
    assert!(sent < echoes.len(), "all requests were read, though no reply was");
    // Other clients are served.
    cell[0].client().acquire("a");
    std::thread::scope(|scope| {
        scope.spawn(|| writer.send_bytes(&echoes[sent..]));
        for _ in 0..count {
            assert_eq!(client.next(), message);
        }
    });
}
