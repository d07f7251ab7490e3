//! A cell whose members change: leases move to the new members by their own renewals.

mod cell;

use core::time::Duration;

use cell::{NAME, NO_WAIT, TTL, TestCell, name, node};
use paxoslease_core::*;

fn adopt(cell: &mut TestCell, epoch: u32, era: u32, old: &[u16], new: &[u16]) {
    let ids = |set: &[u16]| -> Vec<NodeId> { set.iter().map(|id| node(*id)).collect() };
    let (old, new, now) = (ids(old), ids(new), cell.now);
    let top = cell.shards.iter().map(Shard::counter).max().expect("some node");
    for shard in &mut cell.shards {
        let sets = Sets { old: &old, new: &new };
        let next = shard.config().cell.in_epoch(epoch, era, sets).expect("valid");
        shard.adopt(now, next, Ballot::above_counter(top));
    }
    cell.collect();
    cell.settle();
}

fn renew(cell: &mut TestCell, id: u16, token: u64, tenure: Tenure) -> bool {
    let (now, holder) = (cell.now, Holder::NONE);
    let renew = Renew { token: Token(token), name: name(NAME), holder, tenure, ttl: TTL };
    cell.shard(id).renew(now, renew).expect("in bounds");
    cell.collect();
    cell.settle();
    cell.answers(token).iter().any(|answer| matches!(answer, Event::Renewed { .. }))
}

#[test]
fn a_lease_moves_to_three_new_members() {
    let mut cell = TestCell::new(3, 4);
    cell.acquire_for(7, 1, NO_WAIT, TTL);
    cell.settle();
    let tenure = cell.granted(1).expect("the name is free");
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[4, 5, 6]);
    assert!([4, 5, 6].into_iter().all(|id| cell.live(id).is_none()), "nothing is copied");
    assert!(renew(&mut cell, 7, 2, tenure));
    assert!([4, 5, 6].into_iter().all(|id| cell.live(id) == Some(tenure)));
    adopt(&mut cell, 2, 1, &[4, 5, 6], &[]);
    assert!(renew(&mut cell, 7, 3, tenure));
    // The removed nodes answer nothing, and serve their clients.
    let now = cell.now;
    cell.shard(1).inspect(now, Token(4), name(NAME)).expect("in bounds");
    cell.collect();
    cell.settle();
    let answers = cell.answers(4);
    let [Event::Inspected { accepted: Some(seen), .. }] = answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(seen.tenure, tenure);
}

#[test]
fn a_request_that_waits_keeps_its_place_when_members_change() {
    let mut cell = TestCell::new(1, 2);
    cell.acquire_for(3, 1, NO_WAIT, TTL);
    cell.settle();
    let held = cell.granted(1).expect("the name is free");
    cell.acquire_for(3, 2, Duration::from_secs(60), TTL);
    cell.acquire_for(3, 3, Duration::from_secs(60), TTL);
    cell.settle();
    adopt(&mut cell, 1, 0, &[1], &[2]);
    assert!(renew(&mut cell, 3, 4, held));
    adopt(&mut cell, 2, 1, &[2], &[]);
    cell.release(3, 5, held);
    cell.settle();
    cell.run(Duration::from_secs(2));
    assert!(cell.granted(2).is_some(), "the first in the queue");
    assert!(cell.granted(3).is_none());
}

/// Passes time in steps of 10 ms, and delivers everything.
fn live(cell: &mut TestCell, span: Duration) {
    for _ in 0..span.as_millis() / 10 {
        cell.pass(Duration::from_millis(10));
        cell.settle();
    }
}

/// J1: two of five are not a majority, although two of the three old members are.
#[test]
fn a_majority_of_the_new_set_is_counted_by_its_own_size() {
    let mut cell = TestCell::new(3, 3);
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[1, 2, 3, 4, 5]);
    cell.acquire_for(6, 1, NO_WAIT, TTL);
    let is_away = |letter: &cell::Letter| [3, 4, 5].map(node).contains(&letter.to);
    while !cell.letters.is_empty() {
        cell.take(is_away);
        if let Some(letter) = cell.letters.first().cloned() {
            cell.letters.remove(0);
            let _ = cell.deliver(&letter);
        }
    }
    assert_eq!([1, 2].map(|id| cell.live(id).is_some()), [true; 2]);
    assert!(cell.granted(1).is_none(), "two of five store it");
}

/// J1: the records of the old set may have ended when the new set answers.
#[test]
fn a_late_majority_of_the_new_set_is_worth_nothing() {
    let mut cell = TestCell::new(1, 3);
    adopt(&mut cell, 1, 0, &[1], &[2, 3]);
    cell.acquire_for(4, 1, Duration::from_secs(30), TTL);
    let mut late = Vec::new();
    while !cell.letters.is_empty() {
        let letter = cell.letters.remove(0);
        if letter.kind() == "Healed" {
            late.push(letter);
        } else {
            let _ = cell.deliver(&letter);
        }
    }
    assert!(late.len() >= 2, "the new set stored it: {late:?}");
    cell.now = cell.now.after(TTL);
    for letter in late {
        let _ = cell.deliver(&letter);
    }
    assert!(cell.granted(1).is_none());
}

/// C2: a request that waited for the disk is of the epoch before.
#[test]
fn a_request_that_waits_for_the_disk_ends_with_its_epoch() {
    let mut cell = TestCell::started(1, 1, |_| {}, Start::NewCell { counter: 0, disk: true });
    cell.collect();
    cell.write_records();
    // The first lease of this length waits for the record.
    cell.acquire_for(2, 1, NO_WAIT, TTL);
    cell.settle();
    assert_eq!(cell.live(1), None);
    let now = cell.now;
    let writes: Vec<(NodeId, Record)> = cell.writes.drain(..).collect();
    assert!(!writes.is_empty());
    let sets = Sets { old: &[node(1)], new: &[] };
    let next = cell.shard(1).config().cell.in_epoch(1, 0, sets).expect("valid");
    cell.shard(1).adopt(now, next, Ballot::ZERO);
    for (id, record) in writes {
        cell.shard(id.get()).record_written(now, record);
    }
    cell.collect();
    assert_eq!(cell.live(1), None, "its sender is in the epoch before");
}

/// C1, C2: a message that has not left yet is of the epoch before.
#[test]
fn a_message_that_was_not_sent_ends_with_its_epoch() {
    let mut cell = TestCell::new(3, 1);
    let now = cell.now;
    let shard = cell.shard(4);
    shard.acquire(now, cell::acquire_command(1, NO_WAIT, TTL)).expect("in bounds");
    let before = shard.counter();
    let ids = [1, 2, 3].map(node);
    let next = shard.config().cell.in_epoch(1, 0, Sets { old: &ids, new: &[] }).expect("valid");
    shard.adopt(now, next, Ballot::ZERO);
    let mut sent = Vec::new();
    while let Some(transmit) = shard.poll_transmit() {
        if let Message::Request(Request::Propose { ballot, .. }) = transmit.message() {
            sent.push(ballot.counter());
        }
    }
    assert_eq!(sent, [before + 1], "the round begins again, with a fresh ballot");
}

#[test]
fn a_release_during_a_change_says_that_the_lease_was_held() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire_for(4, 1, NO_WAIT, TTL);
    cell.settle();
    let tenure = cell.last_granted();
    cell.release(4, 2, tenure);
    // Nodes 1 and 2 release it, and one of their answers arrives.
    for letter in cell.take(|letter| letter.to != node(3)) {
        cell.deliver(&letter).expect("a member");
    }
    let answers = cell.take(|letter| letter.to == node(4));
    cell.deliver(&answers[0]).expect("a member");
    cell.letters.clear();
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[]);
    live(&mut cell, Duration::from_secs(3));
    assert!(matches!(
        cell.answers(2)[..],
        [Event::Released { held: Some(true), confirmed: true, .. }]
    ));
}

#[test]
fn a_renewal_does_not_outlive_a_release_through_another_node() {
    let mut cell = TestCell::new(3, 2);
    cell.acquire_for(5, 1, NO_WAIT, TTL);
    cell.settle();
    let (now, tenure) = (cell.now, cell.last_granted());
    let renew = Renew { token: Token(2), name: name(NAME), holder: Holder::NONE, tenure, ttl: TTL };
    cell.shard(1).renew(now, renew).expect("in bounds");
    cell.collect();
    cell.letters.clear();
    cell.release(5, 3, tenure);
    for letter in cell.take(|letter| letter.to == node(1)) {
        cell.deliver(&letter).expect("a member");
    }
    cell.letters.clear();
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[]);
    assert!(matches!(cell.answers(2)[..], [Event::NotHeld { .. }]), "{:?}", cell.answers(2));
}

/// A renewal that was answered stays in flight, to heal a member that has not answered yet.
#[test]
fn a_renewal_is_answered_once_when_members_change() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    cell.settle();
    let tenure = cell.granted(1).expect("the name is free");
    let (now, holder) = (cell.now, Holder::NONE);
    let renew = Renew { token: Token(2), name: name(NAME), holder, tenure, ttl: TTL };
    cell.shard(1).renew(now, renew).expect("in bounds");
    cell.collect();
    cell.letters.retain(|letter| letter.to != node(3));
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Renewed { .. }]));
    cell.release(1, 3, tenure);
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[1, 2, 4]);
    assert_eq!(cell.answers(2).len(), 1, "{:?}", cell.answers(2));
}

/// U2: in epoch 0 the births are unknown, so this node may not be the member that is listed.
#[test]
fn nothing_is_granted_before_the_cell_is_founded() {
    let mut cell = TestCell::with(3, 0, |config| config.knows_members = false);
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    let prepare = Request::Prepare { name: name(NAME), ballot: cell::ballot(9, 1) };
    assert_eq!(cell.tell(2, 1, Message::Request(prepare)), Err(Refusal::NotAcceptor));
    live(&mut cell, Duration::from_secs(5));
    assert!(matches!(cell.answers(1)[..], [Event::NoQuorum { .. }]), "{:?}", cell.answers(1));
    assert!([1, 2, 3].into_iter().all(|id| cell.shard(id).floor().is_none()));
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[]);
    cell.acquire_for(1, 2, NO_WAIT, TTL);
    cell.settle();
    assert!(cell.granted(2).is_some());
}

/// C8: what it granted before it crashed may be held when it becomes a member again.
#[test]
fn a_node_that_is_no_member_would_be_quarantined_as_one() {
    let mut cell = TestCell::new(3, 0);
    let (now, config) = (cell.now, cell.shard(3).config().clone());
    let record = Record { ballot_ceiling: 1 << 20, lease_ceiling: Some(cell::ttl(TTL)) };
    *cell.shard(3) = Shard::start(config, now, Start::Crash(record));
    let quarantine = cell.shard(3).quarantine_remaining(now);
    assert!(quarantine >= TTL);
    adopt(&mut cell, 1, 0, &[1, 2], &[]);
    assert!(cell.shard(3).quarantine_remaining(now).is_zero());
    assert_eq!(cell.shard(3).quarantine_as_member(now), quarantine);
    adopt(&mut cell, 2, 0, &[1, 2, 3], &[]);
    assert_eq!(cell.shard(3).quarantine_remaining(now), quarantine);
}

/// R5: node 4 lost its folder, and its wall clock went back. It would use ballots again that the
/// members know.
#[test]
fn a_proposer_that_may_have_lost_its_folder_asks_first() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire_for(4, 1, NO_WAIT, TTL);
    cell.settle();
    assert!(cell.granted(1).is_some());
    let now = cell.now;
    let config = Config { asks_first: true, ..cell.shard(4).config().clone() };
    let start = Start::NewCell { counter: 0, disk: false };
    *cell.shard(4) = Shard::start(config, now, start);
    cell.acquire_for(4, 2, Duration::from_secs(5), TTL);
    cell.shard(4).heard_counter(node(1), true);
    cell.shard(4).heard_counter(node(2), false);
    live(&mut cell, Duration::from_millis(500));
    assert_eq!(cell.shard(4).counter(), 0, "only one member that remembers told its counter");
    cell.shard(4).heard_counter(node(3), true);
    live(&mut cell, Duration::from_millis(500));
    assert!(cell.shard(4).counter() > 0);
}

/// R5: a ballot that only a minority accepted is above every counter that the others tell. A node
/// without its folder would use it again.
#[test]
fn a_node_that_asks_first_begins_at_a_random_ballot() {
    let first_ballots: Vec<u64> = (1..=8)
        .map(|seed| {
            let mut cell = TestCell::new(3, 1);
            let now = cell.now;
            let config = Config { asks_first: true, seed, ..cell.shard(4).config().clone() };
            let start = Start::NewCell { counter: 0, disk: false };
            *cell.shard(4) = Shard::start(config, now, start);
            for id in 1..=3 {
                cell.shard(4).observe_counter(100).expect("below the bound");
                cell.shard(4).heard_counter(node(id), true);
            }
            cell.acquire_for(4, 1, NO_WAIT, TTL);
            cell.settle();
            cell.granted(1).expect("the name is free").ballot().counter()
        })
        .collect();
    let spread: std::collections::BTreeSet<u64> = first_ballots.iter().copied().collect();
    assert_eq!(spread.len(), first_ballots.len(), "{first_ballots:?}");
    assert!(spread.iter().all(|counter| (101..101 + BALLOT_BLOCK).contains(counter)));
}

/// R5: leases of its past may have been renewed through other nodes for longer than M.
#[test]
fn a_node_that_knows_no_members_issues_no_ballot() {
    let mut cell = TestCell::new(3, 1);
    let now = cell.now;
    let config = cell.shard(4).config().clone();
    let contacts = Cell::new(&[node(1), node(4)], config.cell.max_lease(), config.cell.drift());
    let contacts = contacts.expect("valid");
    let config = Config { asks_first: true, knows_members: false, cell: contacts, ..config };
    let start = Start::NewCell { counter: 0, disk: false };
    *cell.shard(4) = Shard::start(config, now, start);
    cell.shard(4).heard_counter(node(1), true);
    cell.acquire_for(4, 1, Duration::from_secs(600), TTL);
    live(&mut cell, Duration::from_secs(300));
    assert_eq!(cell.shard(4).counter(), 0);
    adopt(&mut cell, 1, 0, &[1, 2, 3], &[]);
    let floor = cell.shard(4).counter();
    live(&mut cell, Duration::from_secs(60));
    assert_eq!(cell.shard(4).counter(), floor, "one of three members told its counter");
    cell.shard(4).heard_counter(node(3), true);
    live(&mut cell, Duration::from_secs(60));
    assert!(cell.granted(1).is_some());
}

/// R5: the lease is renewed through another node, so it outlives every wait. Node 4 would use its
/// ballot again, and members would take the proposal for a duplicate: two holders with one fence.
#[test]
fn a_proposer_without_its_folder_asks_for_as_long_as_it_takes() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire_for(4, 1, NO_WAIT, TTL);
    cell.settle();
    let held = cell.granted(1).expect("the name is free");
    let now = cell.now;
    let config = Config { asks_first: true, ..cell.shard(4).config().clone() };
    let longest = config.cell.max_lease().as_duration();
    let start = Start::NewCell { counter: 0, disk: false };
    *cell.shard(4) = Shard::start(config, now, start);
    cell.acquire_for(4, 2, longest * 4, TTL);
    for token in 3..3 + 2 * longest.as_millis() as u64 / 500 {
        assert!(renew(&mut cell, 1, token, held));
        live(&mut cell, Duration::from_millis(500));
    }
    assert!(cell.granted(2).is_none(), "granted {:?} again", cell.granted(2));
}

/// R5: node 4 heard the list in its settings. The members of the cell are others.
#[test]
fn a_proposer_without_its_folder_asks_the_members_of_each_epoch() {
    let mut cell = TestCell::new(3, 3);
    let now = cell.now;
    let config = Config { asks_first: true, ..cell.shard(4).config().clone() };
    *cell.shard(4) = Shard::start(config, now, Start::NewCell { counter: 0, disk: false });
    cell.shard(4).heard_counter(node(1), true);
    cell.shard(4).heard_counter(node(2), true);
    cell.acquire_for(4, 1, NO_WAIT, TTL);
    cell.settle();
    let tenure = cell.granted(1).expect("the name is free");
    cell.release(4, 9, tenure);
    cell.settle();
    adopt(&mut cell, 1, 0, &[3, 5, 6], &[]);
    cell.acquire_for(4, 2, Duration::from_secs(5), TTL);
    let counter = cell.shard(4).counter();
    live(&mut cell, Duration::from_millis(500));
    assert_eq!(cell.shard(4).counter(), counter, "no member of this epoch told its counter");
    cell.shard(4).heard_counter(node(5), true);
    cell.shard(4).heard_counter(node(6), true);
    live(&mut cell, Duration::from_millis(500));
    assert!(cell.shard(4).counter() > counter);
}

/// C4: the floor of the configuration that lists a node covers what its id granted before.
#[test]
fn a_node_that_became_a_member_asks_no_more() {
    let mut cell = TestCell::new(1, 1);
    let now = cell.now;
    let config = Config { asks_first: true, ..cell.shard(2).config().clone() };
    *cell.shard(2) = Shard::start(config, now, Start::NewCell { counter: 0, disk: false });
    adopt(&mut cell, 1, 0, &[1], &[2]);
    adopt(&mut cell, 2, 1, &[2], &[]);
    cell.acquire_for(2, 1, NO_WAIT, TTL);
    cell.settle();
    assert!(cell.granted(1).is_some());
}

/// R5: what members of an earlier epoch told does not stand for members of this one.
#[test]
fn a_node_without_a_record_hears_the_members_of_its_epoch() {
    let mut cell = TestCell::new(3, 2);
    let (now, config) = (cell.now, cell.shard(4).config().clone());
    let start = Start::NoRecord { counter: 0, longest: cell::ttl(TTL), disk: false };
    *cell.shard(4) = Shard::start(config, now, start);
    cell.shard(4).heard_counter(node(1), true);
    adopt(&mut cell, 1, 0, &[2, 3, 5], &[]);
    cell.shard(4).heard_counter(node(3), true);
    cell.acquire_for(4, 1, Duration::from_secs(5), TTL);
    live(&mut cell, Duration::from_secs(1));
    assert!(cell.granted(1).is_none(), "one of three members told its counter");
    cell.shard(4).heard_counter(node(5), true);
    live(&mut cell, Duration::from_secs(1));
    assert!(cell.granted(1).is_some());
}
