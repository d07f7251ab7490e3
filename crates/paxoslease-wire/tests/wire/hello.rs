//! Greetings decode to what was sent, and a farewell says why a peer is refused.

use std::time::Duration;

use crate::samples::{cell, encoded, hello, node, ours};
use paxoslease_core::{Birth, Drift, Durability};
use paxoslease_wire::{
    CellName, ClientAddress, Farewell, FrameKind, Hello, ListUse, Refused, ShardId,
};
use proptest::prelude::*;
use proptest::sample::select;

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

const USES: [ListUse; 4] = [ListUse::Fixed, ListUse::Founding, ListUse::Contact, ListUse::Follows];

#[test]
fn lists_are_compared_where_two_nodes_act_on_them() {
    let other_list = cell(&[1, 2], 60_000, 1000, Duration::from_millis(1));
    let mut compared = Vec::new();
    for ours_use in USES {
        for list in USES {
            let ours = Hello { list: ours_use, ..ours() };
            let differs = Hello { list, cell: other_list, ..hello() }.check(&ours);
            match differs {
                Ok(()) => {}
                Err(Refused::Members(lists)) => {
                    assert_eq!((lists.ours, lists.theirs), (ours.cell, other_list));
                    compared.push((ours_use, list));
                }
                Err(Refused::NoFolder { .. }) => continue,
                Err(other) => panic!("{ours_use:?} and {list:?}: {other}"),
            }
            assert_eq!(Hello { list, ..hello() }.check(&ours), Ok(()), "{ours_use:?}, {list:?}");
        }
    }
    use ListUse::{Fixed, Follows, Founding};
    let expected = [(Fixed, Fixed), (Fixed, Follows), (Founding, Founding), (Follows, Fixed)];
    assert_eq!(compared, expected);
}

#[test]
fn members_with_and_without_a_data_dir_never_mix() {
    let refused = |ours_use, list| {
        let ours = Hello { list: ours_use, ..ours() };
        Hello { list, ..hello() }.check(&ours).expect_err("one has no data_dir")
    };
    for managed in [ListUse::Founding, ListUse::Contact] {
        assert_eq!(refused(managed, ListUse::Fixed), Refused::NoFolder { without: node(2) });
        let refused = refused(ListUse::Fixed, managed);
        assert_eq!(refused, Refused::NoFolder { without: node(1) });
        assert_eq!(
            refused.to_string(),
            "node 1 is a member without a data_dir; give one to all members, or to none"
        );
    }
}

#[test]
fn epochs_births_and_addresses_of_clients_may_differ() {
    let clients = ClientAddress::new("10.0.0.2:7400").expect("in bounds");
    let theirs = Hello { list: ListUse::Contact, birth: Birth(7), epoch: 9, clients, ..hello() };
    let ours = Hello { list: ListUse::Contact, birth: Birth(8), epoch: 2, ..ours() };
    assert_eq!(theirs.check(&ours), Ok(()));
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
        list in prop::sample::select(USES.to_vec()),
        birth in any::<u64>(),
        epoch in any::<u32>(),
        clients in "[a-z.:0-9]{0,255}",
        durable_leases in select(vec![Durability::Disk, Durability::Volatile, Durability::Refused]),
    ) {
        let members: Vec<u16> = members.into_iter().collect();
        let hello = Hello {
            version,
            cell_name: CellName::new(&name).expect("in bounds"),
            cell: cell(&members, max_lease, ppm, Duration::from_nanos(granularity)),
            node: node(id),
            boot,
            shard: ShardId::new(index, count).expect("in bounds"),
            list,
            birth: Birth(birth),
            epoch,
            clients: ClientAddress::new(&clients).expect("in bounds"),
            durable_leases,
        };
        let frame = encoded(&hello);
        prop_assert_eq!(FrameKind::of(&frame), Ok(FrameKind::Hello));
        prop_assert_eq!(Hello::decode(&frame), Ok(hello));
    }
}
