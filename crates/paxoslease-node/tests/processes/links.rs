//! Connections that die silently, and connections of strangers.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use paxoslease_node::Config;
use paxoslease_wire::{Farewell, FrameKind, split_frame};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use super::cell::{Cell, MAX_LEASE_SECS, MEMBERS, NAME};
use super::harness::{PATIENCE, hello};
use super::relay::Relay;
use super::shell::peer;

/// A cell whose third node reaches the first through a relay only: of two members, the one with the
/// higher id dials.
fn relayed() -> (Cell, Relay) {
    let mut cell = Cell::new();
    let relay = Relay::to(cell.address(1));
    cell.start(1, &["--new-cell"]);
    cell.start(2, &["--new-cell"]);
    cell.start(3, &["--new-cell", &format!("peers.1 = {:?}", relay.address)]);
    cell.connect();
    (cell, relay)
}

#[test]
fn a_silent_connection_is_closed_and_replaced() {
    let cut: fn(&Relay) = Relay::cut;
    let ways = [("in both directions", cut, true), ("in one direction", Relay::cut_back, false)];
    for (what, cut, is_first_deaf) in ways {
        println!("{what}");
        let (mut cell, relay) = relayed();
        let fence = cell[3].acquire("a", "2s").number("fence");
        cut(&relay);
        cell[3].until("aware of the silence", |status| peer(status, 1)["up"] == false);
        let third = cell[1].until("disconnected", |status| peer(status, 3)["up"] == false);
        let problem = &peer(&third, 3)["problem"];
        assert!(!is_first_deaf || problem == "it fell silent", "{problem}");
        // The first and the third node each still have a majority with the second.
        cell[1].acquire("b", "1s");
        cell[3].acquire("c", "1s");
        relay.mend();
        cell.connect();
        cell[3].still_holds("a", fence);
    }
}

/// Accepting, dialling and writing files fail for a while; open connections stay in use.
#[test]
fn nodes_out_of_file_descriptors_keep_working_and_recover() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    let plenty = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(3), maximum: plenty.maximum };
    for id in [1, 3] {
        prlimit(Some(cell[id].pid()), Resource::Nofile, none).expect("our own child");
    }
    cell.kill(2);
    cell.start(2, &[]);
    // The second dials the first, the third dials the second.
    cell[1].until("without the second", |status| peer(status, 2)["up"] == false);
    let why = |status: &Value| peer(status, 2)["problem"].to_string();
    cell[3].until("out of descriptors", |status| why(status).contains("open files"));
    cell[3].is_refused("a 1s 2500ms", "is held by");
    for id in [1, 3] {
        prlimit(Some(cell[id].pid()), Resource::Nofile, plenty).expect("our own child");
    }
    cell.connect();
    cell[1].still_holds("a", fence);
}

#[test]
fn many_connections_without_a_greeting_keep_no_peer_out() {
    let mut cell = Cell::founded();
    let address = cell.address(1);
    cell.kill(3);
    let crowd: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
    cell.start(3, &[]);
    cell.connect();
    cell[3].acquire("a", "1s");
    drop(crowd);
}

#[test]
fn bytes_of_strangers_are_refused_and_disturb_no_node() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    let address = cell.address(1);
    // The first two are incomplete: the node does not wait for the rest for ever.
    for bytes in [
        &b""[..],
        b"\x40",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x08\x00\x00\x00PL\x01\x63abcd",
        &[0; 65536],
    ] {
        send(&address, bytes);
    }
    let other_cell = greeting("processes-2", MAX_LEASE_SECS);
    assert!(farewell(&send(&address, &other_cell)).contains("cell"));
    let other_lease = greeting(NAME, MAX_LEASE_SECS + 1);
    assert!(farewell(&send(&address, &other_lease)).contains("max_lease"));
    let junk = b"and now for something completely different".to_vec();
    send(&address, &[greeting(NAME, MAX_LEASE_SECS), junk].concat());

    cell[1].still_holds("a", fence);
    for id in MEMBERS {
        let status = cell[id].status();
        for other in MEMBERS.into_iter().filter(|other| *other != id) {
            assert_eq!(peer(&status, other)["up"], true, "{status:#}");
        }
    }
}

/// Sends something to a node, and returns what it answered before it closed the connection.
fn send(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    // The node may close the connection before the end.
    let _closed = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => answer,
    }
}

/// The greeting of a proposer.
fn greeting(cell: &str, max_lease_secs: u64) -> Vec<u8> {
    let config = Config::new(cell, 77).max_lease(Duration::from_secs(max_lease_secs));
    hello(&MEMBERS.into_iter().fold(config, |config, id| config.peer(id, "")), 7, 2)
}

/// The reason in an answer: a greeting, then a farewell.
fn farewell(answer: &[u8]) -> String {
    let (hello, rest) = split_frame(answer).expect("frames").expect("a greeting");
    assert_eq!(FrameKind::of(hello), Ok(FrameKind::Hello));
    let (farewell, rest) = split_frame(rest).expect("frames").expect("a farewell");
    assert!(rest.is_empty());
    Farewell::decode(farewell).expect("a farewell").to_string()
}

/// Starts the third node with another setting. Both sides must say what differs.
fn differs(setting: &str, first_says: &str, third_says: &str) {
    let mut cell = Cell::new();
    cell.start(1, &["--new-cell"]);
    cell.start(2, &["--new-cell"]);
    cell.start(3, &["--new-cell", setting]);
    let says = |node: u16, text: String| {
        move |status: &Value| {
            let problem = peer(status, node)["problem"].clone();
            problem.as_str().is_some_and(|problem| problem.contains(&text))
        }
    };
    cell[1].until("aware of the difference", says(3, first_says.to_owned()));
    cell[3].until("aware of the difference", says(1, third_says.to_owned()));
    cell[1].until_up(&[2]);
    cell[2].acquire("a", "1s");
    assert_eq!(cell[3].status()["ready"], false);
    cell.quit(3);
    cell.start(3, &["--new-cell"]);
    cell.connect();
}

#[test]
fn a_peer_of_another_cell_is_refused_and_both_say_why() {
    differs(
        "cell = 'other'",
        "cell \"processes\" here, \"other\" there",
        "cell \"other\" here, \"processes\" there",
    );
}

#[test]
fn a_peer_with_another_max_lease_is_refused_and_both_say_why() {
    differs("max_lease = '3s'", "max_lease 4s here, 3s there", "max_lease 3s here, 4s there");
}
