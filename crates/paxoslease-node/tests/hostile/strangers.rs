//! Connections of nodes that do not belong to the cell.

use std::net::TcpStream;
use std::time::Duration;

use paxoslease_wire::{Farewell, FrameKind};

use crate::cell::{config, hello, status, take};
use crate::support::{Drops, PROPOSER, Peer, frame, start};

#[test]
fn bytes_other_than_a_valid_greeting_are_refused_and_counted() {
    let cell = start();
    let lease = take(&cell.nodes[0], "held");
    // A frame of a length that is allowed among peers, and a good part of it.
    let mut long = vec![0, 0, 3, 0, b'P', b'L', 1, 2];
    long.resize(100_000, b'x');
    let greeting_and_junk = [cell.hello(PROPOSER, 1), b"not a frame".to_vec()].concat();
    for (what, bytes, reason) in [
        ("nothing", &b""[..], "refused"),
        ("a part of a length", b"\x40", "refused"),
        ("a length that is too long", b"\xff\xff\xff\xff", "malformed"),
        ("more than a greeting", &long, "malformed"),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        ("RESP", b"*1\r\n$4\r\nPING\r\n", "malformed"),
        ("ones", &[0xff; 64], "malformed"),
        ("zeros", &[0; 64], "malformed"),
        ("many zeros", &[0; 65536], "malformed"),
        ("a frame of no kind", b"\x08\x00\x00\x00PL\x01\x63abcd", "refused"),
        ("a frame that is not a greeting", &frame(2, []), "refused"),
        ("a greeting, then junk", &greeting_and_junk, "malformed"),
    ] {
        println!("{what}");
        let drops = Drops::of(reason);
        cell.stranger().is_refused(bytes);
        drops.wait_for(1);
    }
    cell.serves();
    assert!(lease.is_held());
    let is_connected =
        |node| status(node).peers.iter().all(|peer| peer.up || peer.node == PROPOSER);
    assert!(cell.nodes.iter().all(is_connected), "all members are connected to each other");
}

#[test]
fn a_node_with_other_settings_of_the_cell_is_told_what_differs() {
    let cell = start();
    let mut other_cell = config(&cell.addresses, 2);
    other_cell.cell = "Test".to_owned();
    let other_lease = config(&cell.addresses, 2).max_lease(Duration::from_secs(61));
    for (config, words) in [(other_cell, "cell"), (other_lease, "max_lease")] {
        let (refused, mut stranger) = (Drops::of("refused"), cell.stranger());
        stranger.send(&hello(&config, 7, 1));
        assert_eq!(FrameKind::of(&stranger.receive()), Ok(FrameKind::Hello));
        let farewell = stranger.receive();
        let why = Farewell::decode(&farewell).expect("a farewell").to_string();
        assert!(why.contains(words), "{why}");
        stranger.is_closed();
        refused.wait_for(1);
    }
    cell.serves();
}

#[test]
fn connections_without_a_greeting_are_bounded_and_counted() {
    let cell = start();
    let refused = Drops::of("refused");
    // More than may wait for a greeting.
    let crowd: Vec<Peer<TcpStream>> = (0..300).map(|_| cell.stranger()).collect();
    refused.wait_for(300 - 256);
    cell.serves();
    drop(crowd);
    refused.wait_for(300);
    cell.serves();
}
