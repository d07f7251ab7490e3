//! Greetings decode to what was sent, and a farewell says why a peer is refused.

use std::time::Duration;

use crate::samples::{cell, encoded, hello, node, ours};
use paxoslease_core::Drift;
use paxoslease_wire::{CellName, Farewell, FrameKind, Hello, ShardId};
use proptest::prelude::*;

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
