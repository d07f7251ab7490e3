//! Connections that die silently, and guests that nobody invited.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use paxoslease_core::{Drift, NodeId, Ttl};
use paxoslease_wire::{CellName, Farewell, FrameKind, Hello, ShardId, VERSION, split_frame};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use super::cell::{Cell, MAX_LEASE_SECS, MEMBERS, NAME};
use super::relay::Relay;
use super::shell::{PATIENCE, peer};

/// A cell whose third node reaches the first through a relay only: of two members the higher
/// dials.
fn relayed() -> (Cell, Relay) {
    let mut cell = Cell::new();
    let relay = Relay::to(cell.address(1));
    cell.start(1, &["--new-cell"]);
    cell.start(2, &["--new-cell"]);
    cell.start(3, &["--new-cell", "--peer", &format!("1={}", relay.address())]);
    cell.connect();
    (cell, relay)
}

#[test]
fn a_link_that_dies_silently_is_given_up_and_made_anew() {
    let (mut cell, relay) = relayed();
    let fence = cell[3].acquire("a", "2s").number("fence");
    relay.cut();
    cell[1].until("aware of the silence", |status| {
        let third = peer(status, 3);
        third["up"] == false && third["problem"] == "it fell silent"
    });
    cell[3].until("aware of the silence", |status| peer(status, 1)["up"] == false);
    goes_on(&mut cell, fence);
    relay.mend();
    cell.connect();
    assert!(!cell[3].has_said("lost a"));
}

#[test]
fn a_link_that_dies_in_one_direction_is_given_up_and_made_anew() {
    let (mut cell, relay) = relayed();
    let fence = cell[3].acquire("a", "2s").number("fence");
    relay.cut_back();
    cell[3].until("aware of the silence", |status| peer(status, 1)["up"] == false);
    cell[1].until("told so", |status| peer(status, 3)["up"] == false);
    goes_on(&mut cell, fence);
    relay.mend();
    cell.connect();
    assert!(!cell[3].has_said("lost a"));
}

/// The first and the third node each still have a majority with the second.
fn goes_on(cell: &mut Cell, fence: u64) {
    cell[1].acquire("b", "1s");
    cell[3].acquire("c", "1s");
    let held = cell[3].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
}

/// Accepting, dialling and writing all fail for a while; what is open stays in use.
#[test]
fn nodes_out_of_file_descriptors_go_on_with_what_they_have_and_recover() {
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
    let refused = cell[3].ask("acquire a 1s 2500ms", "refused a");
    assert!(refused.contains("is held by"), "{refused:?}");
    for id in [1, 3] {
        prlimit(Some(cell[id].pid()), Resource::Nofile, plenty).expect("our own child");
    }
    cell.connect();
    let held = cell[1].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
}

#[test]
fn a_crowd_at_the_door_keeps_no_peer_out() {
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
fn whatever_strangers_send_is_refused_and_disturbs_nobody() {
    let mut cell = Cell::founded();
    let fence = cell[1].acquire("a", "2s").number("fence");
    let address = cell.address(1);
    // Neither the rest of a long frame nor a stranger's first word is waited for too long.
    send(&address, b"");
    send(&address, b"\x40");
    send(&address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    send(&address, b"\xff\xff\xff\xff");
    send(&address, b"\x08\x00\x00\x00PL\x01\x63abcd");
    send(&address, &[0; 65536]);

    let mut hello = Vec::new();
    greeting("processes-2", MAX_LEASE_SECS).encode(&mut hello);
    assert!(farewell(&send(&address, &hello)).contains("cell"));
    hello.clear();
    greeting(NAME, MAX_LEASE_SECS + 1).encode(&mut hello);
    assert!(farewell(&send(&address, &hello)).contains("max_lease"));
    hello.clear();
    greeting(NAME, MAX_LEASE_SECS).encode(&mut hello);
    hello.extend_from_slice(b"and now for something completely different");
    send(&address, &hello);

    let held = cell[1].held("a");
    assert!(held.is_held() && held.number("fence") == fence, "{held:?}");
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
    // It may have hung up before the end.
    let _hung_up = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => answer,
    }
}

fn greeting(cell: &str, max_lease_secs: u64) -> Hello<'_> {
    let members = MEMBERS.map(|id| NodeId::new(id).expect("an id"));
    let max_lease = Ttl::from_millis(max_lease_secs as u32 * 1000).expect("not zero");
    let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
    Hello {
        version: VERSION,
        cell_name: CellName::new(cell).expect("in bounds"),
        cell: paxoslease_core::Cell::new(&members, max_lease, drift).expect("in bounds"),
        node: NodeId::new(77).expect("an id"),
        boot: 7,
        shard: ShardId::new(0, 2).expect("one of two"),
    }
}

/// The reason in an answer: a greeting, then a farewell.
fn farewell(answer: &[u8]) -> String {
    let (hello, rest) = split_frame(answer).expect("frames").expect("a greeting");
    assert_eq!(FrameKind::of(hello), Ok(FrameKind::Hello));
    let (farewell, rest) = split_frame(rest).expect("frames").expect("a farewell");
    assert!(rest.is_empty());
    Farewell::decode(farewell).expect("a farewell").to_string()
}

/// Starts the third node otherwise than the others; both sides must say what differs.
fn differs(flags: &[&str], first_says: &str, third_says: &str) {
    let mut cell = Cell::new();
    cell.start(1, &["--new-cell"]);
    cell.start(2, &["--new-cell"]);
    cell.start(3, &[&["--new-cell"], flags].concat());
    let says = |node: u16, text: String| {
        move |status: &Value| {
            let problem = peer(status, node)["problem"].clone();
            problem.as_str().is_some_and(|problem| problem.contains(&text))
        }
    };
    cell[1].until("told what differs", says(3, first_says.to_owned()));
    cell[3].until("told what differs", says(1, third_says.to_owned()));
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
        &["--cell", "other"],
        "cell \"processes\" here, \"other\" there",
        "cell \"other\" here, \"processes\" there",
    );
}

#[test]
fn a_peer_with_another_longest_lease_is_refused_and_both_say_why() {
    differs(&["--max-lease", "3s"], "max_lease 4s here, 3s there", "max_lease 3s here, 4s there");
}
