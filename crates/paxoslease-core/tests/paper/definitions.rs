//! Sections 1 "Introduction" and 2 "Definitions".

use core::time::Duration;

use crate::cell::{
    self, TTL, TestCell, acquire_command, ballot, name, node, prepare, propose, tenure, ttl,
};
use crate::{MS, NO_WAIT, WAIT, two_phases};
use paxoslease_core::*;

/// Section 1: a lease is a lock that expires, so a holder that fails does not block for ever.
#[test]
fn a_lease_is_a_lock_with_an_expiry_time() {
    let mut cell = TestCell::new(3, 0);
    let first = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    // No message reaches or leaves the holder's node.
    for _ in 0..=TTL.as_millis() + 2 {
        cell.take(|letter| letter.from == node(1) || letter.to == node(1));
        cell.settle();
        cell.pass(MS);
    }
    assert!(cell.granted(2).expect("it expired") > first);
}

/// Section 1: the number of acceptors is fixed and does not change. A cell is checked when it is
/// made, and a reply from another node does not count.
#[test]
fn the_number_of_acceptors_is_fixed() {
    let m = ttl(WAIT);
    let none = Cell::new(&[], m, Drift::NONE);
    let ten: Vec<NodeId> = (1..=10).map(node).collect();
    assert_eq!(none, Err(CellError::MemberCount(0)));
    assert_eq!(Cell::new(&ten, m, Drift::NONE), Err(CellError::MemberCount(10)));
    let twice = Cell::new(&[node(1), node(1)], m, Drift::NONE);
    assert_eq!(twice, Err(CellError::DuplicateMember(node(1))));
    let mut cell = TestCell::new(3, 1);
    cell.acquire(1, 1, NO_WAIT);
    let ballot = cell.shard(1).rounds().next().expect("a round").ballot;
    let outsider = cell.tell(1, 4, Message::Reply(Reply::Accept { ballot }));
    assert_eq!(outsider, Err(Refusal::NotMember));
    assert_eq!(cell.granted(1), None);
}

/// Section 1: a majority of the nodes has to be up and communicating; it also suffices.
#[test]
fn a_majority_of_acceptors_is_needed_and_suffices() {
    for members in 1..=9 {
        let majority = members / 2 + 1;
        for up in 1..=members {
            let mut cell = TestCell::new(members, 0);
            cell.acquire(1, 1, NO_WAIT);
            cell.take(|letter| letter.to.get() > up);
            cell.settle();
            assert_eq!(cell.granted(1).is_some(), up >= majority, "{up} of {members}");
        }
    }
}

/// Section 1: if three proposers each have one acceptor, the naive vote has to wait for the
/// timeouts. P4 avoids that by the undo of the paper's footnote 1, and then by preparing.
#[test]
fn a_three_way_split_vote_does_not_block_for_the_ttl() {
    let mut cell = TestCell::new(3, 0);
    for id in 1..=3 {
        cell.acquire(id, u64::from(id), WAIT);
    }
    cell.run(TTL / 20);
    let winners = (1..=3).filter(|token| cell.granted(*token).is_some()).count();
    assert_eq!(winners, 1, "within a twentieth of the ttl");
}

/// Section 1: nodes stop and restart, the network splits, messages are lost, reordered and
/// delayed. This test is about a network split; other tests cover the rest.
#[test]
fn only_the_majority_side_of_a_network_split_acquires() {
    let mut cell = TestCell::new(5, 0);
    let minority = |id: NodeId| id.get() <= 2;
    cell.acquire(1, 1, NO_WAIT);
    cell.acquire(5, 2, NO_WAIT);
    for _ in 0..3000 {
        cell.take(|letter| minority(letter.from) != minority(letter.to));
        cell.settle();
        cell.pass(MS);
    }
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]));
    assert!(cell.granted(2).is_some());
}

/// Section 1: no time synchrony is assumed; clocks may have any offsets.
#[test]
fn clocks_need_not_be_synchronised() {
    let mut cell = TestCell::new(3, 0);
    cell.ahead = [(1, 0), (2, 86_400), (3, 1_000_000_000)]
        .map(|(id, secs)| (id, Duration::from_secs(secs)))
        .into();
    let tenure = cell.held_by(1, 1);
    cell.acquire(3, 2, WAIT);
    cell.run(TTL - MS);
    assert_eq!((cell.live(2), cell.granted(2)), (Some(tenure), None));
    cell.run(5 * MS);
    assert!(cell.granted(2).is_some());
}

/// Section 2: n acceptors and any number of proposers; nodes may be both, but need not.
#[test]
fn a_proposer_need_not_be_an_acceptor() {
    let mut cell = TestCell::new(3, 7);
    for id in 4..=10 {
        cell.acquire(id, u64::from(id), WAIT);
        cell.settle();
        let held = cell.granted(id.into()).expect("one after the other");
        cell.release(id, 100, held);
        cell.settle();
    }
    assert_eq!(cell.shard(4).floor(), None, "it has no acceptor");
}

/// Section 2: proposers send prepare and propose requests, acceptors answer with responses that
/// carry the same ballot number.
#[test]
fn every_response_names_the_ballot_of_its_request() {
    let mut cell = two_phases(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let round = cell.shard(1).rounds().next().expect("a round").ballot;
    let mut kinds = Vec::new();
    while !cell.letters.is_empty() {
        let letter = cell.letters.remove(0);
        kinds.push(letter.kind());
        let named = match letter.transmit.message() {
            Message::Request(request) => request.ballot(),
            Message::Reply(Reply::Promise { ballot, .. } | Reply::Accept { ballot }) => {
                Some(ballot)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(named, Some(round));
        cell.deliver(&letter).expect("not refused");
    }
    kinds.dedup();
    assert_eq!(kinds, ["Prepare", "Promise", "Propose", "Accept"]);
}

/// Section 2: a lease is a proposer id and a timespan; with the ballot number it is a proposal.
/// The proposer id is part of our ballot, and the holder's text travels along for people to read.
#[test]
fn a_proposal_is_a_ballot_number_a_proposer_and_a_timespan() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(2, 1, NO_WAIT);
    let letter = cell.letters[0].clone();
    let Message::Request(Request::Propose { ballot, ttl: span, holder, .. }) =
        letter.transmit.message()
    else {
        panic!("{letter:?}")
    };
    assert_eq!((ballot.node(), span, holder.as_str()), (Some(node(2)), ttl(TTL), "me"));
}

/// Section 2: acceptors ignore messages below the highest ballot number promised. Ours answer with
/// a Reject that names it (the paper's step 2 allows both), so that the sender can exceed it.
#[test]
fn acceptors_refuse_messages_below_their_promise() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 3, prepare(ballot(7, 3))).expect("a promise");
    let before = cell.register(1);
    for request in [prepare(ballot(6, 2)), propose(ballot(6, 2))] {
        let letter = cell.ask(1, 2, request).expect("an answer");
        let Message::Reply(Reply::Reject { promised, .. }) = letter.transmit.message() else {
            panic!("{letter:?}")
        };
        assert_eq!(promised, ballot(7, 3));
    }
    assert_eq!(cell.register(1), before);
}

/// Section 2: acceptors store the last proposal accepted.
#[test]
fn acceptors_store_the_last_accepted_proposal() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("an answer");
    let expires_at = cell.now.after(TTL);
    let accepted = Some(Accepted { tenure: tenure(5, 2), expires_at });
    assert_eq!(cell.register(1).accepted, accepted);
}

/// Section 2: proposers always acquire leases for T < M. We allow T = M: the quarantine covers the
/// longest accepted ttl and begins after it (T3), so the bound need not be strict.
#[test]
fn leases_longer_than_m_are_neither_requested_nor_accepted() {
    let mut cell = TestCell::new(3, 0);
    let now = cell.now;
    let asked = WAIT + MS;
    let refused = cell.shard(1).acquire(now, acquire_command(1, NO_WAIT, asked));
    let max_lease = ttl(WAIT);
    assert_eq!(refused, Err(CommandError::Ttl(TtlError::TooLong { asked, max_lease })));
    let (name, ballot, holder) = (name(cell::NAME), ballot(5, 2), Holder::NONE);
    let request = Request::Propose { name, ballot, ttl: ttl(asked), holder };
    assert_eq!(cell.tell(1, 2, Message::Request(request)), Err(Refusal::TtlTooLong));
    cell.acquire_for(1, 2, NO_WAIT, WAIT);
    cell.settle();
    assert!(cell.granted(2).is_some());
}

/// Section 2: ballot numbers are globally unique.
#[test]
fn ballot_numbers_of_two_proposers_never_collide() {
    let issued = |id: u16| -> Vec<Ballot> { (1..100).map(|counter| ballot(counter, id)).collect() };
    let (ours, theirs) = (issued(1), issued(2));
    assert!(ours.iter().all(|ballot| !theirs.contains(ballot)));
    assert!(ours.iter().all(|ballot| ballot.node() == Some(node(1))));
}

/// Section 2: ballot numbers increase per proposer. P4 also raises them above every reject.
#[test]
fn ballot_numbers_increase_and_exceed_all_that_were_seen() {
    let mut cell = TestCell::new(3, 0);
    for id in 1..=3 {
        cell.ask(id, 9, prepare(ballot(40, 9))).expect("a promise");
    }
    let mut fences = Vec::new();
    for token in 1..=4 {
        let held = cell.held_by(1, token);
        fences.push(held);
        cell.release(1, 100 + token, held);
        cell.settle();
    }
    assert!(fences[0].ballot() > ballot(40, 9));
    assert!(fences.is_sorted_by(|a, b| a < b));
}

/// Section 2: the paper writes a restart counter to stable storage at every start. We write a
/// ceiling ahead of need (R1), and a start begins at the ceiling.
#[test]
fn ballot_numbers_increase_across_restarts() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let before = cell.shard(1).rounds().next().expect("a round").ballot;
    cell.crash(1);
    cell.write_records();
    cell.acquire(1, 2, NO_WAIT);
    let after = cell.shard(1).rounds().next().expect("a round").ballot;
    assert!(after > before, "{after} after {before}");
    assert!(after.counter() > BALLOT_BLOCK, "the rest of the block is skipped");
}

/// Section 2: the lease invariant: at any time no more than one proposer holds the lease.
#[test]
fn no_more_than_one_proposer_holds_the_lease_at_any_time() {
    let mut cell = TestCell::new(3, 0);
    for id in 1..=3 {
        cell.acquire(id, u64::from(id), WAIT);
    }
    for _ in 0..3 * TTL.as_millis() {
        cell.settle();
        let now = cell.now;
        let holders = (1..=3).filter_map(|token| cell.belief(token));
        assert!(holders.filter(|belief| belief.is_held(now)).count() <= 1);
        cell.pass(MS);
    }
    assert!((1..=3).all(|token| cell.granted(token).is_some()), "one after the other");
}
