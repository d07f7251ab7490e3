//! Whoever is not let in.

use crate::support::{Drops, Peer, start};
use std::net::TcpStream;

#[test]
fn whoever_says_more_than_a_greeting_before_it_was_let_in_is_not_listened_to() {
    let cell = start(|config| config);
    let malformed = Drops::of("malformed");
    let mut stranger = cell.stranger();
    // The length of a frame that is allowed among peers, and a good part of it.
    let mut frame = vec![0, 0, 3, 0, b'P', b'L', 1, 2];
    frame.resize(100_000, b'x');
    stranger.say(&frame);
    stranger.is_hung_up_on();
    malformed.wait_for(1);
    cell.serves();
}

#[test]
fn a_crowd_at_the_door_is_bounded_and_counted() {
    let cell = start(|config| config);
    let refused = Drops::of("refused");
    // Some more than may stand there without a word.
    let crowd: Vec<Peer<TcpStream>> = (0..300).map(|_| cell.stranger()).collect();
    refused.wait_for(300 - 256);
    cell.serves();
    drop(crowd);
    refused.wait_for(300);
    cell.serves();
}

#[test]
fn junk_at_the_door_is_counted() {
    let cell = start(|config| config);
    let (malformed, refused) = (Drops::of("malformed"), Drops::of("refused"));
    for junk in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"*1\r\n$4\r\nPING\r\n", &[0xff; 64], &[0; 64]] {
        let mut stranger = cell.stranger();
        stranger.say(junk);
        stranger.is_hung_up_on();
    }
    malformed.wait_for(4);
    // A frame, and no greeting.
    let mut stranger = cell.stranger();
    stranger.say(&crate::support::frame(2, []));
    stranger.is_hung_up_on();
    refused.wait_for(1);
    cell.serves();
}

#[test]
fn somebody_else_in_the_name_of_a_member_is_refused_and_changes_nothing() {
    let cell = start(|config| config);
    let refused = Drops::of("refused");
    let mut liar = cell.stranger();
    // Of another cell: the members it names are not those.
    let mut hello = cell.hello(2, 7);
    let name = hello.windows(4).position(|bytes| bytes == b"test").expect("the cell's name");
    hello[name] = b'T';
    liar.say(&hello);
    liar.is_hung_up_on();
    refused.wait_for(1);
    cell.serves();
}
