//! Inputs that no honest, healthy node or client sends: each ends in a typed error or a counted
//! drop, and changes no state.

mod cell;

use core::time::Duration;

use cell::{
    MS, NAME, NO_WAIT, State, TTL, TestCell, WAIT, acquire_command, ballot, heal, name, node,
    prepare, propose, release, renew, tenure, ttl,
};
use paxoslease_core::*;

/// Hands a message to a node and expects that it is refused and counted, and changes nothing else.
fn refused(cell: &mut TestCell, to: u16, from: u16, message: Message<'_>, why: Refusal) {
    let before = (cell.state(to), cell.letters.len(), cell.events.len());
    let count = cell.shard(to).dropped(why);
    assert_eq!(cell.tell(to, from, message), Err(why), "{message:?}");
    assert_eq!((cell.state(to), cell.letters.len(), cell.events.len()), before, "{message:?}");
    assert_eq!(cell.shard(to).dropped(why), count + 1);
}

/// Hands a message to a node and expects that it changes nothing and is not counted.
fn ignored(cell: &mut TestCell, to: u16, from: u16, message: Message<'_>) {
    let before = (cell.state(to), cell.letters.len(), cell.events.len());
    assert_eq!(cell.tell(to, from, message), Ok(()), "{message:?}");
    assert_eq!((cell.state(to), cell.letters.len(), cell.events.len()), before, "{message:?}");
}

fn renew_command<'a>(tenure: Tenure, ttl: Duration) -> Renew<'a> {
    Renew { token: Token(9), name: name(NAME), holder: Holder::NONE, tenure, ttl }
}

/// One request of each kind that carries a ballot.
fn rounds<'a>(ballot: Ballot) -> [Request<'a>; 4] {
    let other = tenure(1, 3);
    [prepare(ballot), propose(ballot), renew(other, ballot), heal(other, ballot)]
}

#[test]
fn ttls_out_of_bounds_are_typed_errors() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let before = cell.state(1);
    let now = cell.now;
    let max_lease = ttl(WAIT);
    let too_short = |span| CommandError::Ttl(TtlError::TooShort(span));
    let too_long = |asked| CommandError::Ttl(TtlError::TooLong { asked, max_lease });
    for (span, expected) in [
        (Duration::ZERO, too_short(Duration::ZERO)),
        (49 * MS, too_short(49 * MS)),
        (WAIT + Duration::from_nanos(1), too_long(WAIT + Duration::from_nanos(1))),
        (Duration::MAX, too_long(Duration::MAX)),
    ] {
        let shard = cell.shard(1);
        assert_eq!(shard.acquire(now, acquire_command(9, NO_WAIT, span)), Err(expected));
        assert_eq!(shard.renew(now, renew_command(held, span)), Err(expected));
        assert!(!expected.to_string().is_empty());
    }
    cell.collect();
    assert_eq!(cell.state(1), before);
    assert!(cell.letters.is_empty() && cell.answers(9).is_empty());
}

#[test]
fn the_shortest_and_the_longest_ttl_are_granted() {
    for span in [Ttl::MIN.as_duration(), WAIT] {
        let mut cell = TestCell::new(3, 0);
        cell.acquire_for(1, 1, NO_WAIT, span);
        cell.settle();
        assert!(cell.granted(1).is_some(), "{span:?}");
    }
}

#[test]
fn texts_outside_their_bounds_never_become_names_or_holders() {
    let long = "x".repeat(513);
    assert_eq!(Name::new(""), Err(TextError::Empty));
    assert_eq!(Name::new(&long), Err(TextError::TooLong { len: 513, max: 512 }));
    assert_eq!(Name::from_bytes(b"\xff"), Err(TextError::NotUtf8));
    assert_eq!(Holder::new(&long[..257]), Err(TextError::TooLong { len: 257, max: 256 }));
    assert_eq!(Holder::from_bytes(b"\xff"), Err(TextError::NotUtf8));
    // The longest texts arrive at another node unchanged.
    let mut cell = TestCell::new(3, 0);
    let (longest, holder) = (name(&long[..512]), Holder::new(&long[..256]).expect("fits"));
    let now = cell.now;
    let acquire = Acquire { name: longest, holder, ..acquire_command(1, NO_WAIT, TTL) };
    cell.shard(1).acquire(now, acquire).expect("in bounds");
    cell.collect();
    cell.settle();
    let sighting = cell.shard(2).lease(now, longest).expect("accepted");
    assert_eq!((sighting.label.name(), sighting.label.holder()), (longest, holder));
}

#[test]
fn unsolicited_replies_change_nothing() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    let seen = Some(Seen { tenure: tenure(9, 3), remaining: ttl(TTL), holder: Holder::NONE });
    let stray = ballot(1, 1);
    for reply in [
        Reply::Promise { ballot: stray, accepted: None },
        Reply::Promise { ballot: stray, accepted: seen },
        Reply::Accept { ballot: stray },
        Reply::Reject { ballot: stray, promised: Ballot::ZERO, accepted: seen },
        Reply::NotHeld { ballot: stray, promised: Ballot::ZERO },
        Reply::Released { tenure: held, held: true },
        Reply::Inspected { query: 1, accepted: seen },
    ] {
        ignored(&mut cell, 1, 2, Message::Reply(reply));
    }
}

#[test]
fn a_reply_of_the_wrong_kind_does_not_move_a_round() {
    let mut cell = TestCell::new(5, 0);
    cell.acquire(1, 1, NO_WAIT);
    let direct = cell.shard(1).rounds().next().expect("a round").ballot;
    for from in 2..=5 {
        ignored(
            &mut cell,
            1,
            from,
            Message::Reply(Reply::NotHeld { ballot: direct, promised: Ballot::ZERO }),
        );
    }
    // An Accept during the prepare phase.
    let mut cell = TestCell::with(5, 0, |config| config.direct_rounds = false);
    cell.acquire(1, 1, NO_WAIT);
    let preparing = cell.shard(1).rounds().next().expect("a round").ballot;
    for from in 2..=5 {
        ignored(&mut cell, 1, from, Message::Reply(Reply::Accept { ballot: preparing }));
    }
    // A Promise for a renewal.
    let mut cell = TestCell::new(5, 0);
    let held = cell.held_by(1, 1);
    cell.renew(1, 2, held, TTL);
    let renewing = cell.shard(1).rounds().next().expect("a round").ballot;
    for from in 2..=5 {
        let promise = Reply::Promise { ballot: renewing, accepted: None };
        cell.tell(1, from, Message::Reply(promise)).expect("no refusal");
    }
    assert!(cell.answers(2).is_empty());
    cell.settle();
    assert!(matches!(cell.answers(2)[..], [Event::Renewed { .. }]));
}

#[test]
fn replies_from_nodes_without_an_acceptor_are_dropped() {
    let mut cell = TestCell::new(3, 1);
    cell.acquire(1, 1, NO_WAIT);
    let ballot = cell.shard(1).rounds().next().expect("a round").ballot;
    for from in [4, 77] {
        let accept = Message::Reply(Reply::Accept { ballot });
        refused(&mut cell, 1, from, accept, Refusal::NotMember);
    }
    assert_eq!(cell.granted(1), None);
}

#[test]
fn requests_under_a_ballot_of_another_node_are_dropped() {
    let mut cell = TestCell::new(3, 0);
    for request in rounds(ballot(8, 3)) {
        refused(&mut cell, 1, 2, Message::Request(request), Refusal::BallotNotSenders);
    }
    // A ballot with node 0, which no node issues.
    let unissued = Ballot::from_u64(8 << 10).expect("63 bits");
    for request in rounds(unissued) {
        refused(&mut cell, 1, 2, Message::Request(request), Refusal::BallotNotSenders);
    }
}

#[test]
fn a_ttl_above_m_is_refused_in_every_message() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(2, 1);
    let ttl = ttl(WAIT + MS);
    let (name, holder, ballot) = (name(NAME), Holder::NONE, ballot(8, 2));
    for request in [
        Request::Propose { name, ballot, ttl, holder },
        Request::Renew { name, tenure: held, ballot, ttl },
        Request::Heal { name, tenure: held, ballot, ttl, holder },
        Request::Heal { name, tenure: held, ballot, ttl: Ttl::MAX, holder },
    ] {
        refused(&mut cell, 1, 2, Message::Request(request), Refusal::TtlTooLong);
    }
}

#[test]
fn a_node_without_an_acceptor_answers_no_request() {
    let mut cell = TestCell::new(3, 1);
    let inspect = Request::Inspect { name: name(NAME), query: 1 };
    let others = [release(tenure(8, 2)), inspect];
    for request in rounds(ballot(8, 2)).into_iter().chain(others) {
        refused(&mut cell, 4, 2, Message::Request(request), Refusal::NotAcceptor);
    }
    let shard = cell.shard(4);
    assert_eq!((shard.floor(), shard.entries(), shard.acceptor_bytes()), (None, 0, 0));
    assert_eq!((shard.slot_count(), shard.lease_in(Instant::ZERO, 0, |_| true)), (0, None));
    shard.sweep(Instant::MAX, 9);
}

#[test]
fn a_quarantined_acceptor_answers_no_request_from_any_node() {
    let mut cell = TestCell::with_disks(3, 0);
    cell.tell(1, 2, Message::Request(propose(ballot(5, 2)))).expect("deferred");
    cell.write_records();
    cell.crash(1);
    cell.write_records();
    cell.letters.clear();
    let inspect = Request::Inspect { name: name(NAME), query: 1 };
    let others = [release(tenure(5, 2)), inspect];
    for request in rounds(ballot(8, 2)).into_iter().chain(others) {
        refused(&mut cell, 1, 2, Message::Request(request), Refusal::Quarantined);
    }
    // Its proposer works, because the other acceptors are a majority.
    let dropped = cell.shard(1).dropped(Refusal::Quarantined);
    cell.acquire(1, 1, NO_WAIT);
    assert_eq!(cell.shard(1).dropped(Refusal::Quarantined), dropped + 1);
    assert_eq!(cell.shard(1).entries(), 0);
    for _ in 0..10 {
        cell.settle();
        cell.write_records();
    }
    assert!(cell.granted(1).is_some());
    cell.pass(TTL);
    assert_eq!(cell.ask(1, 2, prepare(ballot(8, 2))).expect("an answer").kind(), "Reject");
}

#[test]
fn a_full_table_takes_no_new_name_and_serves_the_old_ones() {
    let mut cell = TestCell::with(3, 0, |config| config.limits.entries_max = 1);
    let held = cell.held_by(1, 1);
    let other = name("another");
    let request = Request::Prepare { name: other, ballot: ballot(8, 2) };
    let entries = cell.shard(1).entries();
    assert_eq!(cell.tell(1, 2, Message::Request(request)), Err(Refusal::TableFull));
    assert_eq!(cell.shard(1).dropped(Refusal::TableFull), 1);
    assert_eq!((cell.shard(1).entries(), cell.shard(1).register(other)), (entries, None));
    let now = cell.now;
    let acquire = Acquire { name: other, ..acquire_command(2, NO_WAIT, TTL) };
    cell.shard(1).acquire(now, acquire).expect("other acceptors may have room");
    cell.collect();
    for _ in 0..30 {
        cell.settle();
        cell.pass(100 * MS);
    }
    assert!(matches!(cell.answers(2)[..], [Event::NoQuorum { .. }]));
    cell.renew(1, 3, held, TTL);
    cell.settle();
    assert!(matches!(cell.answers(3)[..], [Event::Renewed { .. }]));
}

#[test]
fn long_names_are_bounded_by_their_bytes_and_short_ones_are_not() {
    let mut cell = TestCell::with(3, 0, |config| config.limits.text_bytes_max = 1);
    let long = "n".repeat(400);
    let prepare =
        |name, counter| Message::Request(Request::Prepare { name, ballot: ballot(counter, 2) });
    assert_eq!(cell.tell(1, 2, prepare(name("short"), 8)), Ok(()));
    assert_eq!(cell.tell(1, 2, prepare(name(&long), 9)), Ok(()), "the first exceeds the limit");
    assert!(cell.shard(1).is_full());
    assert_eq!(cell.tell(1, 2, prepare(name("other"), 10)), Err(Refusal::TableFull));
}

#[test]
fn a_long_holder_text_cannot_exceed_the_bound_on_text() {
    let mut cell = TestCell::with(1, 0, |config| config.limits.text_bytes_max = 100);
    let holder = "h".repeat(200);
    let now = cell.now;
    for token in [1, 2] {
        let holder = if token == 1 { Holder::NONE } else { Holder::new(&holder).expect("short") };
        let acquire = Acquire { holder, ..acquire_command(token, NO_WAIT, TTL) };
        cell.shard(1).acquire(now, acquire).expect("room");
        cell.collect();
        let tenure = cell.granted(token).expect("no other request");
        let seen = cell.shard(1).lease(now, name(NAME)).expect("held");
        assert_eq!(seen.label.holder(), Holder::NONE, "there is no room for the text");
        cell.release(1, 10 + token, tenure);
    }
}

#[test]
fn answered_releases_do_not_count_as_rounds_in_flight() {
    let mut cell = TestCell::with(1, 0, |config| config.limits.rounds_max = 2);
    for token in 0..20 {
        let tenure = cell.held_by(1, 2 * token);
        cell.release(1, 2 * token + 1, tenure);
        assert!(matches!(cell.answers(2 * token + 1)[..], [Event::Released { .. }]));
    }
}

#[test]
fn too_many_rounds_and_too_many_waiters_are_typed_errors() {
    let mut cell = TestCell::with(3, 0, |config| config.limits.rounds_max = 2);
    let now = cell.now;
    let held = tenure(1, 1);
    cell.shard(1).inspect(now, Token(1), name(NAME)).expect("room");
    cell.shard(1).release(now, Token(2), name(NAME), held, TTL).expect("room");
    cell.collect();
    let before = cell.state(1);
    let full = Err(CommandError::TooManyRounds(2));
    let shard = cell.shard(1);
    assert_eq!(shard.acquire(now, acquire_command(9, NO_WAIT, TTL)), full);
    assert_eq!(shard.renew(now, renew_command(held, TTL)), full);
    assert_eq!(shard.release(now, Token(9), name(NAME), tenure(2, 1), TTL), full);
    assert_eq!(shard.inspect(now, Token(9), name(NAME)), full);
    assert_eq!(cell.state(1), before);
    assert!(cell.answers(9).is_empty());

    let mut cell = TestCell::with(3, 0, |config| config.limits.waiters_max = 1);
    cell.acquire(1, 1, WAIT);
    let before = cell.state(1);
    let refused = cell.shard(1).acquire(now, acquire_command(2, WAIT, TTL));
    assert_eq!(refused, Err(CommandError::TooManyWaiters(1)));
    assert_eq!(cell.state(1), before);
    cell.settle();
    cell.acquire(1, 3, NO_WAIT);
    assert!(cell.granted(1).is_some(), "the first is granted, so there is room again");
}

#[test]
fn a_clock_that_stands_still_expires_nothing() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(2, 2, WAIT);
    cell.acquire(2, 3, NO_WAIT);
    cell.renew(3, 4, held, TTL);
    for _ in 0..1000 {
        cell.settle();
        cell.pass(Duration::ZERO);
    }
    assert_eq!(cell.live(1), Some(held));
    assert!(cell.answers(2).is_empty());
    assert!(matches!(cell.answers(3)[..], [Event::Denied { .. }]));
    assert!(matches!(cell.answers(4)[..], [Event::Renewed { .. }]));
    let now = cell.now;
    for _ in 0..1000 {
        cell.shard(1).sweep(now, 100);
    }
    assert_eq!(cell.live(1), Some(held));
    cell.release(1, 5, held);
    cell.settle();
    assert!(matches!(cell.answers(5)[..], [Event::Released { confirmed: true, .. }]));
}

#[test]
fn a_clock_that_jumps_to_its_end_answers_every_request() {
    let mut cell = TestCell::new(3, 0);
    let held = cell.held_by(1, 1);
    cell.acquire(1, 2, WAIT);
    cell.acquire(2, 3, WAIT);
    cell.acquire(2, 4, WAIT);
    cell.settle();
    cell.renew(3, 5, held, TTL);
    cell.release(3, 6, tenure(9, 3));
    let now = cell.now;
    cell.shard(3).inspect(now, Token(7), name(NAME)).expect("room");
    cell.letters.clear();
    cell.now = Instant::MAX;
    for _ in 0..10 {
        cell.pass(Duration::ZERO);
        cell.letters.clear();
    }
    for token in 2..=7 {
        assert_eq!(cell.answers(token).len(), 1, "{token}: {:?}", cell.answers(token));
    }
    for id in 1..=3 {
        assert_eq!((cell.shard(id).waiters(), cell.shard(id).rounds().count()), (0, 0));
        assert_eq!(cell.live(id), None);
    }
    // A request at the end of time is answered, although no lease is possible.
    cell.acquire(1, 8, NO_WAIT);
    cell.settle();
    cell.pass(Duration::ZERO);
    assert!(matches!(cell.answers(8)[..], [Event::NoQuorum { .. }]), "{:?}", cell.answers(8));
}

/// Acquires, contends for, renews, heals, inspects and releases a lease. Returns the cell and all
/// letters that were sent.
fn all_kinds_of_letters() -> (TestCell, Vec<cell::Letter>) {
    let mut cell = TestCell::with(3, 1, |config| config.direct_rounds = config.node != node(1));
    let mut sent = Vec::new();
    cell.acquire(1, 1, NO_WAIT);
    // No message reaches node 3.
    while let Some(letter) = cell.take(|letter| letter.to != node(3)).pop() {
        cell.deliver(&letter).expect("not refused");
        sent.push(letter);
    }
    cell.letters.clear();
    let mut settle = |cell: &mut TestCell| {
        while !cell.letters.is_empty() {
            let letter = cell.letters.remove(0);
            cell.deliver(&letter).expect("not refused");
            sent.push(letter);
        }
    };
    let held = cell.granted(1).expect("by 1 and 2");
    cell.renew(2, 2, held, TTL);
    settle(&mut cell);
    cell.acquire(4, 3, WAIT);
    settle(&mut cell);
    let now = cell.now;
    cell.shard(4).inspect(now, Token(4), name(NAME)).expect("room");
    cell.collect();
    settle(&mut cell);
    cell.release(1, 5, held);
    settle(&mut cell);
    for _ in 0..2 {
        cell.pass(MS);
        settle(&mut cell);
    }
    let second = cell.granted(3).expect("freed");
    cell.release(4, 6, second);
    settle(&mut cell);
    cell.pass(200 * MS);
    settle(&mut cell);
    (cell, sent)
}

#[test]
fn late_duplicates_of_every_kind_bring_no_lease_back() {
    let (mut cell, sent) = all_kinds_of_letters();
    let mut kinds: Vec<&str> = sent.iter().map(cell::Letter::kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let all = [
        "Accept",
        "Freed",
        "Heal",
        "Inspect",
        "Inspected",
        "NotHeld",
        "Prepare",
        "Promise",
        "Propose",
        "Reject",
        "Release",
        "Released",
        "Renew",
    ];
    assert_eq!(kinds, all);
    let before: Vec<State> = (1..=4).map(|id| cell.state(id)).collect();
    let (events, mut answers) = (cell.events.len(), Vec::new());
    for letter in sent.iter().chain(sent.iter().rev()) {
        cell.deliver(letter).expect("not refused");
        answers.append(&mut cell.take(|_| true));
    }
    // A5 allows one exception: a Heal with a ballot above the promise is the same as a late one. It
    // stores a lease again, in which no holder believes and which expires.
    let after: Vec<State> = (1..=4).map(|id| cell.state(id)).collect();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.rounds, before.waiters), (&after.rounds, after.waiters));
        assert_eq!((before.floor, before.counter), (after.floor, after.counter));
        assert_eq!(before.register.map(|r| r.promised), after.register.map(|r| r.promised));
    }
    assert_eq!(cell.events.len(), events, "no request is answered twice");
    // The answers to stale messages are stale, too.
    for letter in answers {
        cell.deliver(&letter).expect("not refused");
    }
    assert_eq!((cell.events.len(), cell.letters.len()), (events, 0));
}

#[test]
fn a_duplicate_changes_nothing_while_the_lease_is_live() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, NO_WAIT);
    let proposes = cell.take(|_| true);
    for letter in &proposes {
        cell.deliver(letter).expect("not refused");
    }
    let accepts = cell.take(|_| true);
    cell.pass(MS);
    let before: Vec<State> = (2..=3).map(|id| cell.state(id)).collect();
    for letter in &proposes {
        cell.deliver(letter).expect("not refused");
    }
    let after: Vec<State> = (2..=3).map(|id| cell.state(id)).collect();
    assert_eq!(after, before, "the expiry included");
    for letter in accepts.iter().chain(&accepts) {
        cell.deliver(letter).expect("not refused");
    }
    cell.settle();
    assert_eq!(cell.answers(1).len(), 1);
}

#[test]
fn repeated_requests_for_one_release_are_bounded() {
    let mut cell = TestCell::with(3, 0, |config| config.limits.rounds_max = 3);
    let held = cell.held_by(1, 1);
    for token in 2..=4 {
        cell.release(1, token, held);
    }
    let now = cell.now;
    let refused = cell.shard(1).release(now, Token(5), name(NAME), held, TTL);
    assert_eq!(refused, Err(CommandError::TooManyRounds(3)));
    cell.settle();
    for token in 2..=4 {
        assert!(matches!(cell.answers(token)[..], [Event::Released { held: true, .. }]));
    }
    cell.release(1, 5, held);
    cell.settle();
    assert!(matches!(cell.answers(5)[..], [Event::Released { held: false, .. }]));
}

#[test]
fn settings_that_would_loop_are_typed_errors() {
    let valid = Config::new(node(1), cell::cell(3), 1);
    assert_eq!(valid.check(), Ok(()));
    let zero = Duration::ZERO;
    let attempts = Config { attempt_timeout: zero, ..valid.clone() };
    assert_eq!(attempts.check(), Err(ConfigError::AttemptTimeoutZero));
    let from = Config { backoff_min: zero, ..valid.clone() };
    let to = Config { backoff_max: zero, ..valid };
    assert_eq!([from.check(), to.check()], [Err(ConfigError::BackoffZero); 2]);
}

#[test]
fn a_release_of_a_round_in_flight_is_answered() {
    let mut cell = TestCell::new(3, 0);
    cell.acquire(1, 1, Duration::ZERO);
    let guessed = cell.shard(1).rounds().next().expect("a round").tenure;
    cell.release(1, 2, guessed);
    // No other node answers: first the round is given up, then the release.
    for _ in 0..200 {
        cell.pass(Duration::from_millis(100));
    }
    assert_eq!(cell.answers(1), [&Event::NoQuorum { token: Token(1) }]);
    let expected = Event::Released { token: Token(2), held: true, confirmed: false };
    assert_eq!(cell.answers(2), [&expected]);
}
