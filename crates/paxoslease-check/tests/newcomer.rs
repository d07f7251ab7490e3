//! A node that becomes a member again forgets the leases that it stored before (E2).

#[path = "../../paxoslease-core/tests/cell/mod.rs"]
mod cell;

use cell::{NAME, NO_WAIT, TTL, TestCell, ballot, name, node, ttl};
use paxoslease_core::*;

/// Node 3 stores what a contender left that died: its tenure is higher than the one that is granted
/// later, by the only member. Then node 3 becomes the member. It was away when it was removed: a
/// removed node keeps no record.
fn renewed_by_newcomer(rules: Rules) -> bool {
    let mut cell = TestCell::with(3, 1, |config| config.rules = rules);
    let propose = Request::Propose {
        name: name(NAME),
        ballot: ballot(100, 5),
        ttl: ttl(TTL),
        holder: Holder::NONE,
    };
    cell.tell(3, 5, Message::Request(propose)).expect("the name is free");
    cell.letters.clear();
    let epochs: [(u32, u32, &[NodeId], &[NodeId]); 3] = [
        (1, 0, &[node(1), node(2), node(3)], &[node(1)]),
        (2, 1, &[node(1)], &[]),
        (3, 1, &[node(1)], &[node(3)]),
    ];
    for (epoch, era, old, new) in epochs {
        let now = cell.now;
        let is_here = |shard: &&mut Shard| epoch == 3 || shard.config().node != node(3);
        for shard in cell.shards.iter_mut().filter(is_here) {
            let next = shard.config().cell.in_epoch(epoch, era, Sets { old, new }).expect("valid");
            // The voters were nodes 1 and 2, which have not heard of the contender.
            shard.adopt(now, next, Ballot::above_counter(1));
        }
        cell.collect();
        if epoch == 2 {
            cell.acquire_for(4, 1, NO_WAIT, TTL);
            cell.settle();
            assert!(cell.granted(1).is_some(), "node 1 alone grants");
        }
    }
    let (now, tenure) = (cell.now, cell.last_granted());
    let renew = Renew { token: Token(2), name: name(NAME), holder: Holder::NONE, tenure, ttl: TTL };
    cell.shard(4).renew(now, renew).expect("in bounds");
    cell.collect();
    cell.settle();
    cell.answers(2).iter().any(|answer| matches!(answer, Event::Renewed { .. }))
}

#[test]
fn a_newcomer_stores_a_lease_below_what_it_stored_before() {
    assert!(renewed_by_newcomer(Rules::ALL));
    assert!(!renewed_by_newcomer(Rules::without(Rule::NewcomerForgetsRecords)));
}
