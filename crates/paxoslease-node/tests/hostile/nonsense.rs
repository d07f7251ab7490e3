//! Peers that greet properly and send nonsense then.

use std::time::Duration;

use paxoslease_core::{Ballot, Holder, Message, Name, Reply, Request, Ttl};
use paxoslease_wire::{FrameWriter, Heartbeat};

use crate::cell::{node_id, status, take};
use crate::support::{Drops, PROPOSER, frame, start, start_with};

/// A ttl in milliseconds above the max_lease of these cells.
const LONG: u32 = 60_001;
/// A counter above that of nodes without a disk, and below the bound of A1: the year 2074 by R5.
const HIGH: u64 = 3 << 50;

fn ballot(counter: u64, node: u16) -> Ballot {
    Ballot::new(counter, node_id(node))
}

fn propose(name: &str, ballot: Ballot, ttl: u32) -> Message<'_> {
    Message::Request(Request::Propose {
        name: Name::new(name).expect("in bounds"),
        ballot,
        ttl: Ttl::from_millis(ttl).expect("not zero"),
        holder: Holder::NONE,
    })
}

#[test]
fn invalid_frames_end_the_connection_and_are_counted() {
    let cell = start();
    let malformed = Drops::of("malformed");
    let mut garbled = frame(PROPOSER, [propose("x", ballot(1, PROPOSER), 1000)]);
    let last = garbled.len() - 1;
    garbled[last] ^= 0xff;
    garbled[last - 1] ^= 0xff;
    garbled.truncate(last);
    let len = (garbled.len() - 4) as u32;
    garbled[..4].copy_from_slice(&len.to_le_bytes());
    let nonsense = [
        ("garbled", garbled),
        ("twice", cell.hello(PROPOSER, 99)),
        ("as another", frame(2, [propose("x", ballot(1, 2), 1000)])),
        ("too long", u32::MAX.to_le_bytes().to_vec()),
        ("too short", vec![1, 0, 0, 0, 0]),
        ("of no kind", vec![4, 0, 0, 0, b'P', b'L', 1, 99]),
        ("of no magic", vec![4, 0, 0, 0, b'X', b'X', 1, 1]),
    ];
    let count = nonsense.len() as u32;
    for ((what, bytes), boot) in nonsense.into_iter().zip(1..) {
        println!("{what}");
        cell.greeted(boot).is_refused(&bytes);
    }
    malformed.wait_for(count);
    cell.serves();
}

#[test]
fn messages_that_no_honest_node_sends_are_dropped_and_counted() {
    let cell = start();
    let long = Drops::of("ttl_too_long");
    let foreign = Drops::of("ballot_not_senders");
    let no_member = Drops::of("not_member");
    let count = 1000;
    let mut peer = cell.greeted(1);
    let mine = ballot(HIGH, PROPOSER);
    for _ in 0..count {
        peer.send(&frame(
            PROPOSER,
            [
                propose("x", mine, LONG),
                propose("x", ballot(HIGH, 2), 1000),
                Message::Reply(Reply::Accept { ballot: mine }),
            ],
        ));
    }
    for drops in [long, foreign, no_member] {
        drops.wait_for(count);
    }
    cell.serves();
}

/// A heartbeat, the header of a frame, and a message, each with this counter.
fn carriers(counter: u64) -> [Vec<u8>; 3] {
    let mut ping = Vec::new();
    Heartbeat::Ping { number: 1, quarantine_ms: 0, counter }.encode(&mut ping);
    let mut header = FrameWriter::new(node_id(PROPOSER));
    assert!(header.push(&propose("x", ballot(1, PROPOSER), 1000)));
    let message = frame(PROPOSER, [propose("x", ballot(counter, PROPOSER), 1000)]);
    [ping, header.finish(counter).to_vec(), message]
}

#[test]
fn no_number_of_messages_uses_up_the_ballots() {
    let cell = start();
    let exhausting = Drops::of("ballot_exhausting");
    let mut boots = 1..;
    let mut refused = 0;
    // Half of the counters, most of them, all of them: no higher counter would be left to use.
    for counter in [1 << 52, 3 << 51, Ballot::COUNTER_LIMIT, Ballot::COUNTER_MAX] {
        for bytes in carriers(counter) {
            cell.greeted(boots.next().expect("endless")).is_refused(&bytes);
            refused += 1;
        }
    }
    exhausting.wait_for(refused);
    // A counter within the bound is learnt, and leaves room for more than a century.
    for bytes in carriers(HIGH).into_iter().cycle().take(30) {
        cell.greeted(boots.next().expect("endless")).send(&bytes);
    }
    cell.serves();
    for node in &cell.nodes {
        let status = status(node);
        assert!(status.ready, "{status:?}");
        assert_eq!(status.ballot_problem, None);
        assert!(status.ballots_remaining_ratio > 0.5, "{status:?}");
    }
}

#[test]
fn a_peer_that_proposes_without_end_fills_only_the_limit() {
    let cell = start_with(|mut config| {
        config.limits.leases = 100;
        config.limits.names_bytes = 16 << 10;
        config
    });
    let full = Drops::of("table_full");
    let mut peer = cell.greeted(1);
    for number in 0..2000_u64 {
        let name = format!("{number:0>512}");
        peer.send(&frame(PROPOSER, [propose(&name, ballot(HIGH + number, PROPOSER), 60_000)]));
    }
    full.wait_for(1900);
    let leases = status(&cell.nodes[0]).leases;
    assert!(leases <= 100, "{leases} names are kept");
    // The first node has no room left; the other two are a majority.
    for node in &cell.nodes[1..] {
        take(node, "served").release_blocking().expect("released");
    }
}

#[test]
fn answers_to_a_peer_that_does_not_read_are_dropped() {
    let cell = start();
    let full = Drops::of("queue_full");
    let mut peer = cell.greeted(1);
    // Each is answered with the holder, as long as holders may be.
    let asks = |query| {
        Message::Request(Request::Inspect { name: Name::new("x").expect("in bounds"), query })
    };
    let holder = "h".repeat(256);
    let lease = cell.nodes[1].acquire("x", Duration::from_secs(60)).holder(&holder).blocking();
    let _lease = lease.expect("granted");
    let question = frame(PROPOSER, (0..1000).map(asks));
    for _ in 0..2000 {
        // The peer does not read, so the node stops reading from it or closes the connection.
        if !peer.send(&question) {
            break;
        }
    }
    full.wait_for(1);
    cell.serves();
}
