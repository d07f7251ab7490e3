//! Connections of nodes that do not belong to the cell.

use std::net::TcpStream;

use crate::support::{Drops, Peer, frame, start};

#[test]
fn bytes_other_than_a_valid_greeting_are_refused_and_counted() {
    let cell = start();
    // A frame of a length that is allowed among peers, and a good part of it.
    let mut long = vec![0, 0, 3, 0, b'P', b'L', 1, 2];
    long.resize(100_000, b'x');
    let mut of_another_cell = cell.hello(2, 7);
    let name = of_another_cell.windows(4).position(|bytes| bytes == b"test");
    of_another_cell[name.expect("the cell's name")] = b'T';
    for (what, bytes, reason) in [
        ("more than a greeting", &*long, "malformed"),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        ("RESP", b"*1\r\n$4\r\nPING\r\n", "malformed"),
        ("ones", &[0xff; 64], "malformed"),
        ("zeros", &[0; 64], "malformed"),
        ("a frame that is not a greeting", &frame(2, []), "refused"),
        ("a greeting of another cell in the name of a member", &of_another_cell, "refused"),
    ] {
        println!("{what}");
        let drops = Drops::of(reason);
        cell.stranger().is_refused(bytes);
        drops.wait_for(1);
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
