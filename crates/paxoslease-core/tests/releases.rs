//! Releases whose messages overtake others, are lost, or are repeated (A8, P6), and what requests
//! learn meanwhile (P4, P10).

mod cell;

use core::time::Duration;

use cell::{NAME, NO_WAIT, TTL, TestCell, WAIT, name, node, tenure};
use paxoslease_core::*;

/// Delivers all letters except those that are lost.
fn settle_without(cell: &mut TestCell, is_lost: impl Fn(&cell::Letter) -> bool) {
    while !cell.letters.is_empty() {
        let letter = cell.letters.remove(0);
        if !is_lost(&letter) {
            // A test that checks refusals delivers its letters itself.
            let _ = cell.deliver(&letter);
        }
    }
}

fn live_without(cell: &mut TestCell, span: Duration, is_lost: impl Fn(&cell::Letter) -> bool) {
    for _ in 0..span.as_millis() / 10 {
        cell.pass(Duration::from_millis(10));
        settle_without(cell, &is_lost);
    }
}

fn is_with(letter: &cell::Letter, id: u16) -> bool {
    letter.from == node(id) || letter.to == node(id)
}

fn joint(cell: &mut TestCell, old: &[u16], new: &[u16]) {
    let ids = |set: &[u16]| -> Vec<NodeId> { set.iter().map(|id| node(*id)).collect() };
    let (old, new) = (ids(old), ids(new));
    let now = cell.now;
    for shard in &mut cell.shards {
        let sets = Sets { old: &old, new: &new };
        let next = shard.config().cell.in_epoch(1, 0, sets).expect("valid");
        shard.adopt(now, next, Ballot::ZERO);
    }
    cell.collect();
    cell.settle();
}

/// A8. The client of a grant through node 1 releases through node 2, and node 3 gets that Release
/// before the Propose. Then node 2 dies: the name is free, so nodes 1 and 3 grant it.
#[test]
fn a_release_that_overtakes_its_propose_leaves_the_name_free() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    let late = cell.take(|letter| letter.to == node(3));
    cell.settle();
    let held = cell.granted(1).expect("a majority accepted");
    cell.release(2, 2, held);
    cell.settle();
    assert!(matches!(
        cell.answers(2)[..],
        [Event::Released { held: Some(true), confirmed: true, .. }]
    ));
    for letter in late {
        cell.deliver(&letter).expect("a late message is normal");
    }
    assert_eq!(cell.live(3), None, "it has confirmed the release");
    settle_without(&mut cell, |letter| is_with(letter, 2));
    cell.acquire_for(3, 3, NO_WAIT, TTL);
    live_without(&mut cell, Duration::from_secs(2), |letter| is_with(letter, 2));
    assert!(cell.granted(3).is_some(), "{:?}", cell.answers(3));
}

/// A8 in a joint epoch: the Release overtakes the Heal of the second step.
#[test]
fn a_release_that_overtakes_a_heal_leaves_the_name_free() {
    let mut cell = TestCell::new(1, 4);
    joint(&mut cell, &[1], &[2, 3, 4]);
    cell.acquire_for(5, 1, NO_WAIT, TTL);
    let mut late = Vec::new();
    while !cell.letters.is_empty() {
        late.extend(cell.take(|letter| letter.to == node(4)));
        let letter = cell.letters.remove(0);
        let _ = cell.deliver(&letter);
        late.extend(cell.take(|letter| letter.to == node(4)));
    }
    assert!(late.iter().any(|letter| letter.kind() == "Heal"), "{late:?}");
    let held = cell.granted(1).expect("both sets have majorities");
    cell.release(1, 2, held);
    cell.settle();
    for letter in late {
        let _ = cell.deliver(&letter);
    }
    cell.settle();
    assert!([1, 2, 3, 4].into_iter().all(|id| cell.live(id).is_none()));
}

/// Clients make fences up. Who may release one name must not end the tenures of another.
#[test]
fn an_invented_release_of_one_name_refuses_no_other() {
    let mut cell = TestCell::new(3, 0);
    for counter in 1..10 {
        let tenure = tenure(counter, 1);
        let id = ReleaseId::from_u64(counter);
        let message = Request::Release { name: name("other"), tenure, id };
        for id in 1..=3 {
            cell.tell(id, 2, Message::Request(message)).expect("normal input");
        }
    }
    cell.letters.clear();
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    cell.settle();
    assert!(cell.granted(1).is_some(), "{:?}", cell.answers(1));
}

/// P4. This node's acceptor has a tenure that no majority has, the others have the one that is
/// held. The first two refusals differ, so the third decides.
#[test]
fn a_request_is_denied_although_its_own_acceptor_differs() {
    let mut cell = TestCell::new(3, 0);
    let left = Request::Propose {
        name: name(NAME),
        ballot: Ballot::new(1, node(2)),
        ttl: cell::ttl(WAIT),
        holder: Holder::NONE,
    };
    cell.tell(1, 2, Message::Request(left)).expect("accepted");
    cell.letters.clear();
    cell.acquire_for(3, 1, NO_WAIT, WAIT);
    cell.settle();
    let held = cell.granted(1).expect("nodes 2 and 3 accepted");
    cell.acquire_for(1, 2, NO_WAIT, TTL);
    cell.settle();
    let answers = cell.answers(2);
    let [Event::Denied { by, .. }] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(by.tenure, held);
}

/// Whether the release of each token ended the tenure.
fn ended(cell: &TestCell, tokens: core::ops::RangeInclusive<u64>) -> Vec<Option<bool>> {
    let held = |token| match cell.answers(token)[..] {
        [Event::Released { held, confirmed: true, .. }] => *held,
        ref answers => panic!("{token}: {answers:?}"),
    };
    tokens.map(held).collect()
}

/// A9. Every node releases the tenure, and each acceptor receives another Release first. One of
/// them ended it, and all know which.
#[test]
fn of_releases_through_several_nodes_one_ended_the_tenure() {
    for members in 1..=5 {
        let mut cell = TestCell::new(members, 0);
        cell.acquire_for(1, 100, NO_WAIT, TTL);
        cell.settle();
        let held = cell.granted(100).expect("free");
        let tokens = 1..=u64::from(members);
        for token in tokens.clone() {
            cell.release(token as u16, token, held);
        }
        cell.settle();
        let ended = ended(&cell, tokens);
        let count = |outcome| ended.iter().filter(|ended| **ended == outcome).count();
        assert_eq!(count(Some(true)), 1, "{ended:?}");
        assert_eq!(count(None), 0, "{ended:?}");
    }
}

/// A9. A new grant of the name does not make acceptors forget who ended the tenure before.
#[test]
fn a_late_release_learns_that_another_ended_the_tenure() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    cell.settle();
    let held = cell.granted(1).expect("free");
    cell.release(2, 2, held);
    cell.release(1, 3, held);
    let late = cell.take(|letter| letter.from == node(2) && letter.to == node(1));
    cell.settle();
    cell.acquire_for(3, 4, NO_WAIT, TTL);
    cell.settle();
    assert!(cell.granted(4).is_some());
    for letter in late {
        cell.deliver(&letter).expect("normal input");
    }
    cell.settle();
    let ended = ended(&cell, 2..=3);
    assert!(ended == [Some(true), Some(false)] || ended == [Some(false), Some(true)], "{ended:?}");
}

/// P6. Node 3 ended the tenure together with node 1, and is gone. Node 1 never got its answer, and
/// node 2, which had not received that Release, cannot know it.
#[test]
fn a_release_claims_nothing_that_another_may_have_ended() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire_for(3, 1, NO_WAIT, WAIT);
    cell.settle();
    let held = cell.granted(1).expect("free");
    cell.release(3, 2, held);
    settle_without(&mut cell, |letter| is_with(letter, 2));
    live_without(&mut cell, Duration::from_millis(50), |letter| is_with(letter, 2));
    assert_eq!(ended(&cell, 2..=2), [Some(true)]);
    cell.release(2, 3, held);
    live_without(&mut cell, 2 * TTL, |letter| is_with(letter, 3));
    assert_eq!(ended(&cell, 3..=3), [None]);
    // With the answer of node 3 it is known.
    cell.release(1, 4, held);
    live_without(&mut cell, Duration::from_secs(3), |_| false);
    assert_eq!(ended(&cell, 4..=4), [Some(false)]);
}

/// P6. All acceptors release the tenure, the answers are lost with a connection, and the repetition
/// finds nothing to release.
#[test]
fn a_release_whose_answers_were_lost_was_held() {
    for via in [1, 4] {
        let mut cell = TestCell::new(3, 1);
        cell.acquire_for(via, 1, NO_WAIT, TTL);
        cell.settle();
        let held = cell.granted(1).expect("free");
        cell.release(via, 2, held);
        for letter in cell.take(|letter| letter.to != node(via)) {
            cell.deliver(&letter).expect("normal input");
        }
        cell.letters.clear();
        live_without(&mut cell, Duration::from_secs(3), |_| false);
        let answers = cell.answers(2);
        assert!(
            matches!(answers[..], [Event::Released { held: Some(true), confirmed: true, .. }]),
            "through {via}: {answers:?}"
        );
        // A second release of the same tenure ended nothing.
        cell.release(via, 3, held);
        live_without(&mut cell, Duration::from_secs(3), |_| false);
        let answers = cell.answers(3);
        assert!(
            matches!(answers[..], [Event::Released { held: Some(false), confirmed: true, .. }]),
            "through {via}: {answers:?}"
        );
    }
}

/// J3. The members change before the answers to a Release arrive.
#[test]
fn a_release_that_an_epoch_interrupts_was_held() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire_for(4, 1, NO_WAIT, TTL);
    cell.settle();
    let held = cell.granted(1).expect("free");
    cell.release(4, 2, held);
    for letter in cell.take(|letter| letter.to != node(4)) {
        cell.deliver(&letter).expect("normal input");
    }
    cell.letters.clear();
    joint(&mut cell, &[1, 2, 3], &[1, 2, 3, 4]);
    let answers = cell.answers(2);
    assert!(
        matches!(answers[..], [Event::Released { held: Some(true), confirmed: true, .. }]),
        "{answers:?}"
    );
}

/// P6. The first answers are lost, and one member cannot be reached. The repetition finds nothing
/// at the two others, but the third still stores the tenure.
#[test]
fn a_release_with_lost_answers_reaches_the_last_acceptor() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire_for(4, 1, NO_WAIT, WAIT);
    cell.settle();
    let held = cell.granted(1).expect("free");
    cell.release(4, 2, held);
    for letter in cell.take(|letter| letter.to == node(1) || letter.to == node(2)) {
        cell.deliver(&letter).expect("normal input");
    }
    cell.letters.clear();
    live_without(&mut cell, Duration::from_secs(3), |letter| is_with(letter, 3));
    assert!(matches!(
        cell.answers(2)[..],
        [Event::Released { held: Some(true), confirmed: true, .. }]
    ));
    assert_eq!(cell.live(3), Some(held));
    live_without(&mut cell, Duration::from_secs(3), |_| false);
    assert_eq!(cell.live(3), None);
}

/// P10. Node 3 is connected, and is in quarantine, so it answers nothing. Nodes 1 and 2 disagree
/// for a moment.
#[test]
fn an_inspection_is_asked_anew_while_a_member_is_in_quarantine() {
    let mut cell = TestCell::started(3, 0, |_| {}, Start::NewCell { counter: 0, disk: true });
    cell.collect();
    cell.write_records();
    cell.acquire_for(1, 1, NO_WAIT, WAIT);
    for _ in 0..3 {
        cell.write_records();
        cell.settle();
    }
    let held = cell.granted(1).expect("free");
    cell.crash(3);
    let now = cell.now;
    assert!(!cell.shard(3).quarantine_remaining(now).is_zero());
    // The Release has reached node 1 only, when node 1 asks.
    cell.release(1, 2, held);
    let late = cell.take(|_| true);
    cell.shard(1).inspect(now, Token(3), name(NAME)).expect("in bounds");
    cell.collect();
    cell.settle();
    assert!(cell.answers(3).is_empty(), "{:?}", cell.answers(3));
    for letter in late {
        let _ = cell.deliver(&letter);
    }
    live_without(&mut cell, Duration::from_millis(500), |_| false);
    assert!(matches!(cell.answers(3)[..], [Event::Inspected { accepted: None, .. }]));
}

/// How long the lease lasts that node 2 finds, when only these acceptors have received a renewal of
/// the holder for 60 s and the lease was for 10 s.
fn left_after(rules: Rules, renewed: &[u16], is_lost: impl Fn(&cell::Letter) -> bool) -> Duration {
    let mut cell = TestCell::with(3, 0, |config| config.rules = rules);
    cell.acquire_for(1, 1, NO_WAIT, TTL);
    cell.settle();
    let tenure = cell.granted(1).expect("free");
    let now = cell.now;
    let (name, holder) = (name(NAME), Holder::NONE);
    let renew = Renew { token: Token(2), name, holder, tenure, ttl: WAIT };
    cell.shard(1).renew(now, renew).expect("in bounds");
    cell.collect();
    for letter in cell.take(|letter| letter.kind() == "Renew") {
        if renewed.contains(&letter.to.get()) {
            cell.deliver(&letter).expect("normal input");
        }
    }
    cell.letters.clear();
    cell.shard(2).inspect(now, Token(3), name).expect("in bounds");
    cell.collect();
    live_without(&mut cell, Duration::from_secs(1), |letter| {
        letter.kind() == "Renew" || is_lost(letter)
    });
    match cell.answers(3)[..] {
        [Event::Inspected { accepted: Some(lease), .. }] => lease.remaining.as_duration(),
        ref answers => panic!("{answers:?}"),
    }
}

/// P10. A renewal that only node 1 has received may fail, so no end of it is told.
#[test]
fn an_inspection_tells_an_end_that_a_majority_stores() {
    let is_old = |left: Duration| left <= TTL;
    assert!(is_old(left_after(Rules::ALL, &[], |_| false)));
    assert!(!is_old(left_after(Rules::ALL, &[2], |_| false)));
    assert!(!is_old(left_after(Rules::ALL, &[3], |_| false)));
    // Node 3 does not answer: what nodes 1 and 2 tell together.
    assert!(is_old(left_after(Rules::ALL, &[], |letter| is_with(letter, 3))));
    #[cfg(feature = "mutants")]
    assert!(!is_old(left_after(Rules::without(Rule::EndNeedsMajority), &[], |_| false)));
}

/// Section 7. The nodes that waited are gone, and the name is reserved for them. Node 4 only
/// proposes, so it does not know that.
#[test]
fn a_reservation_is_over_before_a_request_is_given_up() {
    let mut cell = TestCell::new(3, 4);
    for id in 1..=7 {
        cell.shard(id).set_turn_trip(Duration::from_millis(250));
    }
    cell.acquire_for(1, 1, NO_WAIT, WAIT);
    cell.settle();
    let held = cell.granted(1).expect("free");
    for id in 5..=7 {
        cell.acquire_for(id, u64::from(id), WAIT, TTL);
    }
    cell.settle();
    let is_gone = |letter: &cell::Letter| (5..=7).any(|id| is_with(letter, id));
    cell.release(1, 2, held);
    settle_without(&mut cell, is_gone);
    cell.acquire_for(4, 3, NO_WAIT, TTL);
    live_without(&mut cell, Duration::from_secs(4), is_gone);
    assert!(cell.granted(3).is_some(), "{:?}", cell.answers(3));
}
