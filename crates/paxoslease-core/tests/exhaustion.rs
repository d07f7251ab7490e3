//! A1: no number of messages can use up the counters. A counter far above the bound is refused and
//! not learnt, and a cell continues after peers have driven its counters up.

mod cell;

use core::time::Duration;

use cell::{TTL, TestCell, ballot, heal, prepare, propose, release, renew, tenure};
use paxoslease_core::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// The bound of these cells, far from zero and from the limit.
const BOUND: u64 = Ballot::COUNTER_LIMIT / 3;
/// How far the bound moves in a minute, like the wall clock of R5. A node learns no counter that is
/// closer to the bound, and admits requests this far above it.
const MINUTE: u64 = 60_000 << 10;

fn bounded(members: u16) -> TestCell {
    let mut cell = TestCell::new(members, 1);
    cell.shards.iter_mut().for_each(|shard| shard.set_counter_bound(BOUND));
    cell
}

/// One message of each kind that carries a counter, all with the same one.
fn carriers<'a>(counter: u64, from: u16) -> [Message<'a>; 7] {
    let (high, high_tenure) = (ballot(counter, from), tenure(counter, from));
    [
        Message::Request(prepare(high)),
        Message::Request(propose(high)),
        Message::Request(renew(tenure(1, from), high)),
        Message::Request(heal(tenure(1, from), high)),
        Message::Request(heal(high_tenure, ballot(9, from))),
        Message::Reply(Reply::Reject { ballot: high, promised: high, accepted: None }),
        Message::Reply(Reply::NotHeld { ballot: high, promised: high }),
    ]
}

#[test]
fn a_counter_beyond_the_bound_is_refused_and_changes_nothing() {
    let mut cell = bounded(3);
    cell.held_by(1, 1);
    cell.acquire(1, 2, Duration::from_secs(60));
    cell.letters.clear();
    let (mut refused, why) = (0, Err(Refusal::BallotExhausting));
    for counter in [BOUND + MINUTE + 1, Ballot::COUNTER_LIMIT + 1, Ballot::COUNTER_MAX] {
        let before = (cell.state(1), cell.letters.len(), cell.events.len());
        for message in carriers(counter, 2) {
            assert_eq!(cell.tell(1, 2, message), why, "{message:?}");
            let after = (cell.state(1), cell.letters.len(), cell.events.len());
            assert_eq!(after, before, "{message:?}");
            refused += 1;
        }
        assert_eq!(cell.shard(1).observe_counter(counter), why);
        assert_eq!(cell.state(1), before.0);
        refused += 1;
    }
    assert_eq!(cell.shard(1).observe_counter(u64::MAX), Err(Refusal::BallotExhausting));
    assert_eq!(cell.shard(1).dropped(Refusal::BallotExhausting), refused + 1);
}

#[test]
fn a_peer_that_drives_counters_up_does_not_separate_nodes() {
    let mut cell = TestCell::new(3, 1);
    let held = cell.held_by(1, 1);
    // The wall clocks of the nodes are five seconds apart.
    for id in 1..=3_u16 {
        let bound = BOUND + u64::from(id) * MINUTE / 12;
        cell.shard(id).set_counter_bound(bound);
        for counter in [bound - MINUTE, bound, bound + MINUTE] {
            assert_eq!(cell.shard(id).observe_counter(counter), Ok(()));
        }
    }
    for (from, to) in [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)] {
        let counter = cell.shard(from).counter();
        assert_eq!(cell.shard(to).observe_counter(counter), Ok(()), "{from} to {to}");
    }
    for id in 1..=3_u16 {
        cell.renew(id, 10 + u64::from(id), held, TTL);
        cell.settle();
        let answers = cell.answers(10 + u64::from(id));
        assert!(matches!(answers[..], [Event::Renewed { .. }]), "{answers:?}");
    }
}

#[test]
fn without_a_set_bound_half_of_the_counters_stay_unused() {
    let mut cell = TestCell::new(3, 0);
    for _ in 0..100 {
        for counter in [Ballot::COUNTER_LIMIT, cell.shard(1).counter_bound()] {
            for message in carriers(counter, 2) {
                let _ = cell.tell(1, 2, message);
            }
        }
    }
    assert!(cell.shard(1).counter() <= Ballot::COUNTER_LIMIT / 2);
}

/// A message of a hostile node: receiver, sender, kind of message and counter.
fn hostile() -> impl Strategy<Value = (u16, u16, usize, u64)> {
    let counter = prop_oneof![
        0..=Ballot::COUNTER_MAX,
        BOUND - MINUTE - 3..=BOUND - MINUTE + 3,
        BOUND - 3..=BOUND + 3,
        BOUND + MINUTE - 3..=BOUND + MINUTE + 3,
        Ballot::COUNTER_LIMIT - 3..=Ballot::COUNTER_LIMIT + 3,
        0..10_u64,
    ];
    (1..=3_u16, 1..=4_u16, 0..9_usize, counter)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_messages_ends_a_cell(said in vec(hostile(), 1..60)) {
        let mut cell = bounded(3);
        for (to, from, kind, counter) in said {
            let outcome = match kind {
                7 => cell.shard(to).observe_counter(counter),
                8 => cell.tell(to, from, Message::Request(release(tenure(counter.max(1), from)))),
                kind => cell.tell(to, from, carriers(counter, from)[kind]),
            };
            if kind < 8 && counter > BOUND + MINUTE && (kind < 5 || from < 4) {
                prop_assert_eq!(outcome, Err(Refusal::BallotExhausting));
            }
            // Honest nodes answer, and their peers learn from the answers.
            cell.settle();
            for id in 1..=4 {
                prop_assert!(cell.shard(id).counter() <= BOUND);
            }
        }
        // The leases of the hostile node expire. Minutes later, nodes learn counters above its
        // promises.
        cell.pass(Duration::from_secs(181));
        cell.settle();
        let bound = BOUND + 3 * MINUTE;
        cell.shards.iter_mut().for_each(|shard| shard.set_counter_bound(bound));
        for (id, token) in [(1, 100), (2, 101), (3, 102)] {
            cell.acquire(id, token, Duration::ZERO);
            cell.run(Duration::from_secs(2));
            let granted = cell.granted(token);
            prop_assert!(granted.is_some(), "node {} is granted nothing", id);
            cell.release(id, token + 10, granted.expect("checked"));
            cell.settle();
        }
    }
}
