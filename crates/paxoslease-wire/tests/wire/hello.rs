//! Greetings decode to what was sent, and a peer that differs learns the difference.

use std::time::Duration;

use crate::samples::{cell, encoded, hello, node};
use paxoslease_core::Drift;
use paxoslease_wire::{CellName, Differ, Farewell, FrameKind, Hello, Refused, ShardId, VERSION};
use proptest::prelude::*;

/// Node 1, which accepts the greeting of node 2 ([`hello`]).
fn ours() -> Hello<'static> {
    Hello { node: node(1), boot: 99, ..hello() }
}

#[test]
fn nodes_of_one_cell_accept_each_other() {
    assert_eq!(hello().check(&ours()), Ok(()));
    assert_eq!(ours().check(&hello()), Ok(()));
    let proposer = Hello { node: node(100), ..hello() };
    assert_eq!(proposer.check(&ours()), Ok(()), "a proposer-only node may connect");
}

#[test]
fn the_order_in_which_members_are_configured_does_not_matter() {
    let reordered = cell(&[3, 1, 2], 60_000, 1000, Duration::from_millis(1));
    let theirs = Hello { cell: reordered, ..hello() };
    assert_eq!(theirs.check(&ours()), Ok(()));
}

#[test]
fn each_difference_is_refused_with_both_values() {
    let tick = Duration::from_millis(1);
    let with = |cell| Hello { cell, ..hello() };
    let shard = |index, count| ShardId::new(index, count).expect("in bounds");
    let south = CellName::new("south").expect("in bounds");
    for (theirs, expected) in [
        (Hello { version: VERSION + 1, ..hello() }, "protocol version 1 here, 2 there"),
        (Hello { cell_name: south, ..hello() }, "cell \"north\" here, \"south\" there"),
        (Hello { node: node(1), ..hello() }, "node id 1 both here and there"),
        (
            with(cell(&[1, 2, 3, 4], 60_000, 1000, tick)),
            "members [n1, n2, n3] here, [n1, n2, n3, n4] there",
        ),
        (with(cell(&[1, 2, 3], 61_000, 1000, tick)), "max_lease 60s here, 61s there"),
        (
            with(cell(&[1, 2, 3], 60_000, 200, tick)),
            "clock drift 1000 ppm and granularity 1ms here, 200 ppm and 1ms there",
        ),
        (
            with(cell(&[1, 2, 3], 60_000, 1000, Duration::from_nanos(1))),
            "clock drift 1000 ppm and granularity 1ms here, 1000 ppm and 1ns there",
        ),
        (
            Hello { shard: shard(1, 8), ..hello() },
            "shard 1 of 4 here, 1 of 8 there; all nodes of a cell need the same number of shards",
        ),
        (
            Hello { shard: shard(0, 4), ..hello() },
            "shard 1 of 4 here, 0 of 4 there; all nodes of a cell need the same number of shards",
        ),
    ] {
        assert_eq!(theirs.check(&ours()).expect_err(expected).to_string(), expected);
    }
}

#[test]
fn a_greeting_of_a_later_version_still_decodes() {
    let later = Hello { version: 7, ..hello() };
    let mut frame = encoded(&later);
    frame.extend_from_slice(b"more");
    frame[0] += 4;
    let decoded = Hello::decode(&frame).expect("sound");
    assert_eq!(decoded, later);
    assert_eq!(decoded.check(&ours()), Err(Refused::Version(Differ { ours: VERSION, theirs: 7 })));
}

#[test]
fn a_farewell_says_why_in_bounded_text() {
    let refused = Hello { node: node(1), ..hello() }.check(&ours()).expect_err("the same node");
    let mut frame = Vec::new();
    Farewell::encode(&refused, &mut frame);
    assert_eq!(FrameKind::of(&frame), Ok(FrameKind::Farewell));
    assert_eq!(Farewell::decode(&frame).expect("sound").as_str(), "node id 1 both here and there");

    let mut frame = Vec::new();
    Farewell::encode(&format_args!("{}{}", "é".repeat(300), "tail"), &mut frame);
    let text = Farewell::decode(&frame).expect("cut between characters").as_str();
    assert_eq!(text, "é".repeat(256));
    let mut frame = Vec::new();
    Farewell::encode(&format_args!("x{}{}", "é".repeat(300), "tail"), &mut frame);
    let text = Farewell::decode(&frame).expect("cut between characters").as_str();
    assert_eq!(text, format!("x{}", "é".repeat(255)), "nothing follows the cut");
}

#[test]
fn a_farewell_cannot_steer_a_terminal() {
    let mut frame = Vec::new();
    Farewell::encode(&"\u{1b}[2J it's \"fine\"\n", &mut frame);
    let shown = Farewell::decode(&frame).expect("sound").to_string();
    assert_eq!(shown, "\\u{1b}[2J it's \"fine\"\\n");
}

/// Version 1, byte by byte. A change here is a new version, and must only append.
#[test]
fn the_bytes_of_greeting_and_farewell_are_these() {
    let expected = [
        b"\x2b\0\0\0PL\x01\x02".as_slice(),
        b"\x02\0\xef\xcd\xab\x89\x67\x45\x23\x01\x01\0\x04\0",
        b"\x60\xea\0\0\xe8\x03\0\0\x40\x42\x0f\0",
        b"\x05north\x03\x01\0\x02\0\x03\0",
    ];
    assert_eq!(encoded(&hello()), expected.concat());
    let mut farewell = Vec::new();
    Farewell::encode(&"no", &mut farewell);
    assert_eq!(farewell, b"\x06\0\0\0PL\x01\x03no");
}

proptest! {
    #[test]
    fn greetings_come_back_as_they_were_sent(
        version in any::<u8>(),
        name in "[a-z]{1,64}",
        members in prop::collection::btree_set(1..=1023u16, 1..=9),
        max_lease in 50..=u32::MAX,
        ppm in 0..=Drift::PPM_MAX,
        granularity in 0..20_000_000u64,
        id in 1..=1023u16,
        boot in any::<u64>(),
        (index, count) in (1..=u16::MAX).prop_flat_map(|count| (0..count, Just(count))),
    ) {
        let members: Vec<u16> = members.into_iter().collect();
        let hello = Hello {
            version,
            cell_name: CellName::new(&name).expect("in bounds"),
            cell: cell(&members, max_lease, ppm, Duration::from_nanos(granularity)),
            node: node(id),
            boot,
            shard: ShardId::new(index, count).expect("in bounds"),
        };
        let frame = encoded(&hello);
        prop_assert_eq!(FrameKind::of(&frame), Ok(FrameKind::Hello));
        prop_assert_eq!(Hello::decode(&frame), Ok(hello));
    }
}
