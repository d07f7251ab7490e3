//! Section 3 "Basic algorithm": steps 1 to 5, restarts, knowledge of the lease, and retries.

use core::time::Duration;

use crate::cell::{NAME, TTL, TestCell, ballot, name, node, prepare, propose, tenure};
use crate::{MS, NO_WAIT, WAIT, two_phases};
use paxoslease_core::*;

/// Section 3: two round trips if all goes well. P1 needs one: Propose is sent at once, because A3
/// refuses while another lease is live, so safety needs no promise.
#[test]
fn it_takes_two_round_trips_prepared_and_one_direct() {
    for (mut cell, hops) in [(two_phases(3, 0), 4), (TestCell::new(3, 0), 2)] {
        cell.acquire(1, 1, NO_WAIT);
        for hop in 0..hops {
            assert_eq!(cell.granted(1), None, "after {hop} hops");
            for letter in cell.take(|_| true) {
                cell.deliver(&letter).expect("not refused");
            }
        }
        assert!(cell.granted(1).is_some(), "after {hops} hops");
    }
}

/// Step 1: the proposer generates a ballot number and sends prepare requests to a majority. Ours
/// sends them to all acceptors, so that a slow one does not delay the round.
#[test]
fn step_1_the_proposer_sends_prepares_with_a_fresh_ballot() {
    let mut cell = two_phases(5, 0);
    cell.acquire(1, 1, NO_WAIT);
    assert_eq!(cell.letters.len(), 4);
    for letter in &cell.letters {
        let expected = Message::Request(prepare(ballot(1, 1)));
        assert_eq!(letter.transmit.message(), expected);
    }
    assert_eq!(cell.shard(1).counter(), 1);
}

/// Step 2: a prepare request below the promise is rejected and changes nothing.
#[test]
fn step_2_a_lower_prepare_is_rejected() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, prepare(ballot(7, 2))).expect("a promise");
    let before = cell.register(1);
    assert_eq!(cell.ask(1, 3, prepare(ballot(6, 3))).expect("an answer").kind(), "Reject");
    assert_eq!(cell.register(1), before);
}

/// Step 2: an equal or higher one is promised, and the promise is raised to it.
#[test]
fn step_2_an_equal_or_higher_prepare_is_promised() {
    let mut cell = TestCell::new(3, 0);
    for counter in [7, 7, 8] {
        let letter = cell.ask(1, 2, prepare(ballot(counter, 2))).expect("an answer");
        assert_eq!(letter.kind(), "Promise");
        assert_eq!(cell.register(1).promised, ballot(counter, 2));
    }
}

/// Step 2: the response contains the accepted proposal, which may be empty. Ours carries the time
/// left on the acceptor's clock, so that the proposer knows how long to wait.
#[test]
fn step_2_the_promise_contains_the_currently_accepted_proposal() {
    let mut cell = TestCell::new(3, 0);
    let reported = |cell: &mut TestCell, counter| {
        let letter = cell.ask(1, 2, prepare(ballot(counter, 2))).expect("an answer");
        match letter.transmit.message() {
            Message::Reply(Reply::Promise { accepted, .. }) => {
                accepted.map(|seen| (seen.tenure, seen.remaining.as_duration()))
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reported(&mut cell, 1), None);
    cell.ask(1, 3, propose(ballot(5, 3))).expect("accepted");
    cell.pass(MS);
    assert_eq!(reported(&mut cell, 6), Some((tenure(5, 3), TTL - MS)));
    cell.pass(TTL - MS);
    assert_eq!(reported(&mut cell, 7), None, "A1: an expired lease is no lease");
}

/// Step 3: with empty responses from a majority the proposer proposes itself, under the same
/// ballot number.
#[test]
fn step_3_a_majority_of_empty_promises_is_followed_by_propose() {
    let mut cell = two_phases(5, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.letters.clear();
    let promise = Message::Reply(Reply::Promise { ballot: ballot(1, 1), accepted: None });
    cell.tell(1, 2, promise).expect("counted");
    assert_eq!(cell.letters.len(), 0, "2 of 5 are not a majority");
    cell.tell(1, 3, promise).expect("counted");
    assert_eq!(cell.letters.len(), 4);
    assert!(cell.letters.iter().all(|letter| letter.kind() == "Propose"));
    let proposed = cell.letters[0].transmit.clone();
    let Message::Request(request) = proposed.message() else { panic!("{proposed:?}") };
    assert_eq!(request.ballot(), Some(ballot(1, 1)));
}

/// Step 3: without such a majority, the proposer does not propose.
#[test]
fn step_3_promises_that_report_a_lease_do_not_count() {
    let mut cell = two_phases(3, 0);
    let held = cell.held_by(2, 1);
    cell.acquire(1, 2, NO_WAIT);
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Denied { .. }]));
    assert_eq!((cell.live(1), cell.live(3)), (Some(held), Some(held)));
}

/// Step 3: an acceptor that answers twice counts once (P3).
#[test]
fn step_3_a_response_that_came_twice_counts_once() {
    let mut cell = two_phases(5, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.letters.clear();
    let promise = Message::Reply(Reply::Promise { ballot: ballot(1, 1), accepted: None });
    for _ in 0..5 {
        cell.tell(1, 2, promise).expect("counted once");
    }
    assert_eq!(cell.letters.len(), 0);
}

/// Step 3: responses to another ballot are ignored.
#[test]
fn step_3_responses_to_some_other_proposal_are_ignored() {
    let mut cell = two_phases(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let before = cell.state(1);
    let stray = Message::Reply(Reply::Promise { ballot: ballot(9, 1), accepted: None });
    cell.tell(1, 2, stray).expect("no error");
    assert_eq!(cell.state(1), before);
}

/// Step 3: the paper starts its timer here, and again for every further response. Ours starts once,
/// before the first message of the round is sent (P2, P3), which is earlier and so safer.
#[test]
fn step_3_the_timer_is_started_once_and_before_anything_is_sent() {
    let mut cell = two_phases(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let begun_at = cell.now;
    for _ in 0..4 {
        cell.pass(MS);
        for letter in cell.take(|_| true) {
            cell.deliver(&letter).expect("not refused");
        }
    }
    let belief = cell.belief(1).expect("granted");
    assert_eq!(belief.ends_at(), begun_at.after(TTL));
}

/// Step 4: a propose request below the promise is rejected.
#[test]
fn step_4_a_lower_propose_is_rejected() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 3, prepare(ballot(7, 3))).expect("a promise");
    let letter = cell.ask(1, 2, propose(ballot(6, 2))).expect("an answer");
    assert_eq!((letter.kind(), cell.live(1)), ("Reject", None));
}

/// Step 4: an equal or higher one is accepted and starts a timeout of T.
#[test]
fn step_4_an_equal_or_higher_propose_is_accepted() {
    for counter in [7, 8] {
        let mut cell = TestCell::new(3, 0);
        cell.ask(1, 2, prepare(ballot(7, 2))).expect("a promise");
        let letter = cell.ask(1, 2, propose(ballot(counter, 2))).expect("an answer");
        assert_eq!(letter.kind(), "Accept");
        assert_eq!(cell.live(1), Some(tenure(counter, 2)));
        cell.pass(TTL - MS);
        assert_eq!(cell.live(1), Some(tenure(counter, 2)));
    }
}

/// Step 4: the paper's acceptor discards a previous proposal for a higher one. Ours refuses while
/// a lease of another tenure is live (A3): overwriting allows two holders after one restart.
#[test]
fn step_4_a_previous_live_proposal_is_kept_not_discarded() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    let before = cell.register(1);
    let letter = cell.ask(1, 3, propose(ballot(9, 3))).expect("an answer");
    assert_eq!(letter.kind(), "Reject");
    assert_eq!(cell.register(1), before, "not even the promise");
    cell.pass(TTL);
    assert_eq!(cell.ask(1, 3, propose(ballot(9, 3))).expect("an answer").kind(), "Accept");
}

/// Step 4: the paper does not raise the promise on accept. Ours does (A3), or fences would be out
/// of order.
#[test]
fn step_4_accepting_raises_the_highest_promise() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    assert_eq!(cell.register(1).promised, ballot(5, 2));
    cell.pass(TTL);
    assert_eq!(cell.ask(1, 3, propose(ballot(4, 3))).expect("an answer").kind(), "Reject");
}

/// Step 4: after the timeout the accepted proposal is empty again. There is no timer: an expired
/// lease does not exist for any purpose (A1).
#[test]
fn step_4_after_the_timeout_the_accepted_proposal_is_empty() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(1, 2, propose(ballot(5, 2))).expect("accepted");
    cell.now = cell.now.after(TTL);
    assert_eq!(cell.live(1), None);
    let now = cell.now;
    assert_eq!(cell.shard(1).lease(now, name(NAME)), None);
}

/// Step 4: acceptors never reset the highest ballot number promised, except when restarting. Ours
/// keep it even then (R1), and when they reclaim an idle name (A7): the floor rises to it.
#[test]
fn step_4_promises_never_fall() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.ask(1, 2, prepare(ballot(7, 2))).expect("a promise");
    for _ in 0..10 {
        cell.pass(Duration::from_secs(1));
        let now = cell.now;
        cell.shard(1).sweep(now, 10);
    }
    assert_eq!(cell.shard(1).entries(), 0, "reclaimed");
    assert_eq!(cell.shard(1).floor(), Some(ballot(7, 2)));
    assert_eq!(cell.ask(1, 3, prepare(ballot(6, 3))).expect("an answer").kind(), "Reject");
    cell.crash(1);
    cell.write_records();
    assert!(cell.shard(1).floor() > Some(ballot(7, 2)));
    cell.letters.clear();
    assert_eq!(cell.ask(1, 3, prepare(ballot(8, 3))).expect("an answer").kind(), "Reject");
}

/// Step 5: with accepts from a majority the proposer has the lease, from the last message that was
/// necessary.
#[test]
fn step_5_the_lease_is_held_from_the_majority_s_last_accept() {
    let mut cell = TestCell::new(5, 0);
    cell.acquire(1, 1, NO_WAIT);
    cell.letters.clear();
    let accept = Message::Reply(Reply::Accept { ballot: ballot(1, 1) });
    cell.tell(1, 2, accept).expect("counted");
    cell.tell(1, 2, accept).expect("counted once");
    assert_eq!(cell.granted(1), None, "2 of 5 are not a majority");
    cell.tell(1, 3, accept).expect("counted");
    assert_eq!(cell.granted(1), Some(tenure(1, 1)));
}

/// Step 5: it has the lease until its local timeout, which began before those of the acceptors.
#[test]
fn step_5_the_lease_is_held_until_the_local_timeout() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let begun_at = cell.now;
    cell.pass(3 * MS);
    cell.settle();
    let belief = cell.belief(1).expect("granted");
    assert!(belief.is_held(begun_at.after(TTL - MS)));
    assert!(!belief.is_held(begun_at.after(TTL)));
    assert!(cell.register(2).live(begun_at.after(TTL)).is_some(), "the exclusion ends later");
}

/// Step 5: the timeout empties the ballot number, so a later majority counts for nothing (P1), even
/// if the proposer was not woken in between.
#[test]
fn step_5_a_majority_after_the_timeout_gives_no_lease() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    for letter in cell.take(|_| true) {
        cell.deliver(&letter).expect("accepted");
    }
    cell.now = cell.now.after(TTL);
    cell.settle();
    assert_eq!(cell.granted(1), None);
}

/// Section 3: acceptors do not store their state and start blank after a restart. Ours lose their
/// leases, but not their promises (R1).
#[test]
fn acceptors_lose_their_leases_in_a_crash() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    assert_eq!(cell.live(1), Some(tenure(5, 2)));
    cell.crash(1);
    assert_eq!((cell.live(1), cell.shard(1).entries()), (None, 0));
}

/// Section 3: restarting nodes wait M before they rejoin. Ours wait as long as the longest lease
/// that they may have accepted (R2, R3), which is at most M; without a record, M.
#[test]
fn restarted_nodes_are_silent_until_all_lost_leases_are_over() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    cell.letters.clear();
    cell.crash(1);
    cell.write_records();
    let late = ballot(2 * BALLOT_BLOCK, 3);
    cell.pass(TTL - MS);
    let silent = cell.tell(1, 3, Message::Request(prepare(late)));
    assert_eq!((silent, cell.letters.len()), (Err(Refusal::Quarantined), 0));
    cell.pass(MS);
    cell.tell(1, 3, Message::Request(prepare(late))).expect("joined");
    cell.write_records();
    assert_eq!(cell.letters.len(), 1);

    let config = Config::new(node(1), crate::cell::cell(3), 1);
    let longest = config.cell.max_lease();
    let start = Start::NoRecord { counter: 1, longest, disk: false };
    let shard = Shard::start(config, cell.now, start);
    assert_eq!(shard.quarantine_remaining(cell.now), longest.as_duration());
}

/// Section 3: only the proposer which has the lease knows it. No message tells other nodes; they
/// can only ask what acceptors store.
#[test]
fn only_the_proposer_which_has_the_lease_knows_it_has_the_lease() {
    let mut cell = TestCell::new(3, 1);
    cell.held_by(1, 1);
    let grants = cell.events.iter().filter(|(_, event)| matches!(event, Event::Granted { .. }));
    let told: Vec<u16> = grants.map(|(at, _)| at.get()).collect();
    assert_eq!(told, [1]);
    assert_eq!(cell.events.len(), 1, "no other node has an event");
    assert_eq!(cell.letters.len(), 0);
}

/// Section 3: nodes may send out learn messages as hints. A hint changes no state.
#[test]
fn learn_messages_are_hints_and_change_nothing() {
    let mut cell = TestCell::new(3, 1);
    cell.shard(1).set_learners(vec![node(4)]);
    cell.shard(4).set_watched(true);
    let before = cell.state(4);
    let held = cell.held_by(1, 1);
    let heard: Vec<&Event> =
        cell.events.iter().filter(|(at, _)| *at == node(4)).map(|(_, event)| event).collect();
    assert!(matches!(heard[..], [Event::HeldHint(hint)] if hint.tenure == held), "{heard:?}");
    assert_eq!(cell.state(4), before);
}

/// Section 3: a proposer without a majority sleeps for a while and starts again at step 1 with a
/// higher ballot number.
#[test]
fn without_a_majority_the_proposer_sleeps_and_tries_higher() {
    let mut cell = TestCell::new(3, 0);
    cell.ask(3, 2, prepare(ballot(50, 2))).expect("promised");
    cell.acquire(1, 1, WAIT);
    let first = cell.shard(1).rounds().next().expect("a round").ballot;
    cell.take(|letter| letter.to == node(2));
    cell.settle();
    cell.pass(Duration::from_millis(100));
    assert_eq!(cell.shard(1).rounds().count(), 0, "it does not try again at once");
    let undone = cell.take(|letter| letter.kind() == "Release");
    assert_eq!(undone.len(), 1, "P4: undone at the acceptor that may have stored it");
    let woken_at = cell.shard(1).poll_timeout().expect("a pause");
    assert!(woken_at > cell.now);
    cell.run(5 * MS);
    assert!(cell.granted(1).expect("the network works again").ballot() > first);
}
