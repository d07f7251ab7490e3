//! What clients of RESP are promised.

mod clients;
mod hand_over;
mod leaving;
mod listing;
mod pipelines;
mod watching;

use crate::harness::{Cell, Client, play, until};
pub(crate) use listing::pages;

#[test]
fn commands_do_what_they_say() {
    play("commands.txt");
}

#[test]
fn mistakes_are_named_and_keep_the_connection_open() {
    play("errors.txt");
}

#[test]
fn acquires_wait_by_reply_or_push_and_end_with_their_client() {
    play("waiting.txt");
}

#[test]
fn limits_have_errors_and_metrics() {
    play("limits.txt");
}

#[test]
fn the_lists_of_commands_have_all_commands() {
    let cell = Cell::one();
    let mut client = cell[0].client();
    let count: usize = client.ask("COMMAND COUNT")[1..].parse().expect("a number");
    for (command, part_of_each) in [("COMMAND", "[+fast]"), ("COMMAND DOCS", "[summary ")] {
        assert_eq!(client.ask(command).matches(part_of_each).count(), count, "{command}");
    }
}

#[test]
fn the_uptime_counts_from_the_start_of_the_node() {
    let cell = Cell::one();
    let is_over_a_second = |info: String| !info.contains("uptime_in_seconds:0\r\n");
    let mut first = cell[0].client();
    until("the node has run for a second", || is_over_a_second(first.ask("INFO")));
    // Each shard's thread gets every other client, and one of them had none so far.
    for mut other in [cell[0].client(), cell[0].client()] {
        assert!(is_over_a_second(other.ask("INFO")));
    }
}

#[test]
fn a_browser_is_disconnected_before_its_request_is_read() {
    let cell = Cell::three();
    let methods =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "get"];
    let forged = methods.map(|method| format!("{method} /"));
    for line in forged.iter().map(String::as_str).chain(["x-a: b\r\nHost: localhost"]) {
        let mut client = cell[0].client();
        // A server that does not check a path for line ends can be made to send this.
        client.send_bytes(format!("{line}\r\nLEASE.ACQUIRE a 5000\r\n").as_bytes());
        let first = client.next();
        let last = if line.starts_with('x') { client.next() } else { first };
        assert!(last.starts_with('-') && last.contains("not HTTP"), "{line}: {last}");
        client.expect_close();
        assert_eq!(cell[0].client().ask("LEASE.GET a"), "nil", "{line}");
    }
}

#[test]
fn connections_are_limited_and_room_is_made_when_one_ends() {
    let cell = Cell::three_with(|config| config.limits.connections = 8);
    let mut connected: Vec<_> = (0..8).map(|_| cell[0].client()).collect();
    let ping = |client: &mut Client| assert_eq!(client.ask("PING"), "+PONG");
    connected.iter_mut().for_each(ping);
    let refused =
        "-BUSY this node has 8 connections, its limit; ask another, or raise limits.connections";
    for _ in 0..64 {
        // The connection may be reset before the error is read.
        let reply = cell[0].client().try_next();
        assert!(reply.as_ref().map_or(true, |reply| reply == refused), "{reply:?}");
    }
    cell[0].wait_for_limit("connections", 64);
    connected.iter_mut().for_each(ping);
    connected.pop();
    until("there is room", || match cell[0].client().try_ask("PING") {
        Ok(reply) => {
            assert!(["+PONG", refused].contains(&reply.as_str()), "{reply}");
            reply == "+PONG"
        }
        Err(_) => false,
    });
}

#[test]
fn acquires_are_limited_by_connection_and_second() {
    let cell = Cell::three_with(|config| config.limits.acquires_per_second = Some(1));
    let mut client = cell[0].client();
    let mut replies = (0..1000).map(|n| client.ask(&format!("LEASE.ACQUIRE n/{n} 50")));
    let busy = replies.find(|reply| reply.starts_with('-')).expect("one is too fast");
    let expected = "-BUSY more than 1 acquires a second on this connection; slow down, or raise \
                    limits.acquires_per_second";
    assert_eq!(busy, expected);
    cell[0].wait_for_limit("acquires_per_second", 1);
}
