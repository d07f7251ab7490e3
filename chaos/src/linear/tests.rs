//! Histories written by hand: the outside checker accepts what a register with an expiry may do,
//! and rejects every class of wrong replies, each with the class as its only explanation.

use super::classify::classify;
use super::history::{Command, Condition, Doubt, Operation, Outcome, Reply, Value, When};
use super::judge::{Verdict, judge};
use super::model::{Class, Service};
use super::shrink::shrink;

const SECOND: u64 = 1_000_000_000;
const LONG: u64 = 30_000;

/// An operation between two times in milliseconds.
fn op(from: u64, to: u64, command: Command, reply: Reply) -> Operation {
    let outcome = Outcome::Reply(reply);
    let (called_at, returned_at) = (SECOND + from * 1_000_000, SECOND + to * 1_000_000);
    Operation { client: 1, node: 1, command, called_at, outcome, returned_at }
}

fn unknown(from: u64, command: Command, doubt: Doubt) -> Operation {
    let operation = op(from, from + 1, command, Reply::Nil);
    Operation { outcome: Outcome::Unknown(doubt), ..operation }
}

const fn set(value: Value, ttl: u64) -> Command {
    Command::Set { value, ttl: Some(ttl), when: When::IsFree, get: false }
}

const fn number(number: i64) -> Reply {
    Reply::Number(number)
}

fn verdict(operations: &[Operation]) -> Verdict {
    judge(operations, Service::CELL, &[])
}

fn assert_accepted(operations: &[Operation]) {
    assert_eq!(verdict(operations), Verdict::Linearizable);
}

/// The history is rejected, and this class alone explains it, also for the part that is shown.
fn assert_rejected(operations: &[Operation], class: Class) {
    assert_eq!(verdict(operations), Verdict::NotLinearizable);
    let classes = classify(operations, Service::CELL);
    assert_eq!(classes, [class]);
    let part = shrink(operations, Service::CELL, &classes);
    assert!(!part.is_empty() && part.len() <= operations.len());
}

#[test]
fn a_lock_is_taken_renewed_and_given_back() {
    assert_accepted(&[
        op(0, 1, set(1, LONG), Reply::Ok),
        op(2, 3, set(2, LONG), Reply::Nil),
        op(4, 5, Command::Get, Reply::Value(1)),
        op(6, 7, Command::Exists, number(1)),
        op(8, 9, Command::Pttl, number(29_992)),
        op(10, 11, Command::Extend(1, 20_000), number(1)),
        op(12, 13, Command::Pttl, number(19_998)),
        op(14, 15, Command::Release(2), number(0)),
        op(16, 17, Command::Release(1), number(1)),
        op(18, 19, Command::Pttl, number(-2)),
        op(20, 21, Command::GetDel, Reply::Nil),
    ]);
}

#[test]
fn a_native_lease_has_a_rising_fence() {
    let first = Reply::Granted { fence: 10 };
    let history = |fence| {
        [
            op(0, 1, Command::LeaseAcquire(1, LONG), first),
            op(2, 3, Command::LeaseAcquire(2, LONG), Reply::Nil),
            op(4, 5, Command::LeaseRenew { fence: 10, ttl: LONG }, number(LONG as i64)),
            op(6, 7, Command::LeaseGet, Reply::Held { value: 1, fence: 10, ttl: 29_999 }),
            op(8, 9, Command::LeaseRelease { fence: 10 }, number(1)),
            op(10, 11, Command::LeaseRenew { fence: 10, ttl: LONG }, Reply::NotHeld),
            op(12, 13, Command::LeaseAcquire(3, LONG), Reply::Granted { fence }),
        ]
    };
    assert_accepted(&history(11));
    assert_rejected(&history(9), Class::Fence);
}

#[test]
fn a_renewal_never_ends_a_lease_earlier() {
    let renew = Command::LeaseRenew { fence: 10, ttl: 100 };
    let history = |seen| {
        [
            op(0, 1, Command::LeaseAcquire(1, 1000), Reply::Granted { fence: 10 }),
            op(2, 3, renew, number(100)),
            op(500, 501, Command::Exists, number(seen)),
        ]
    };
    assert_accepted(&history(1));
    assert_rejected(&history(0), Class::Dirty);
}

#[test]
fn concurrent_commands_may_come_in_any_order() {
    assert_accepted(&[
        op(0, 9, set(1, LONG), Reply::Ok),
        op(1, 2, Command::Get, Reply::Value(1)),
        op(1, 8, Command::Del, number(1)),
        op(3, 4, set(2, LONG), Reply::Ok),
        op(5, 6, Command::GetDel, Reply::Value(2)),
        op(5, 9, Command::Release(2), number(0)),
    ]);
}

#[test]
fn a_lease_ends_after_its_ttl_and_not_before() {
    let history = |at: u64, reply: Reply| {
        [op(0, 10, set(1, 200), Reply::Ok), op(at, at + 1, set(2, LONG), reply)]
    };
    assert_accepted(&history(150, Reply::Nil));
    assert_accepted(&history(205, Reply::Nil));
    assert_accepted(&history(205, Reply::Ok));
    assert_accepted(&history(250, Reply::Ok));
    assert_rejected(&history(250, Reply::Nil), Class::Dirty);
    // A grant before the end is not excused by anything but a lease that ended too early.
    assert_rejected(&history(150, Reply::Ok), Class::Expiry);
}

#[test]
fn a_later_end_keeps_the_lease_and_an_earlier_one_ends_it() {
    let expire = |ttl| Command::Pexpire { ttl, condition: None };
    let history = |ttl, seen| {
        [
            op(0, 1, set(1, 200), Reply::Ok),
            op(2, 3, expire(ttl), number(1)),
            op(300, 301, Command::Exists, number(seen)),
        ]
    };
    assert_accepted(&history(500, 1));
    assert_accepted(&history(100, 0));
    assert_rejected(&history(100, 1), Class::Dirty);
    assert_rejected(&history(500, 0), Class::Dirty);
}

#[test]
fn an_end_that_passed_before_the_reply_still_comes() {
    let slow = [op(0, 900, set(1, 200), Reply::Ok)];
    let seen =
        |at: u64, seen| [&slow[..], &[op(at, at + 1, Command::Exists, number(seen))]].concat();
    assert_accepted(&seen(100, 1));
    assert_accepted(&seen(1000, 1));
    assert_accepted(&seen(1000, 0));
    assert_rejected(&seen(1200, 1), Class::Dirty);
}

#[test]
fn conditions_compare_ends() {
    let on = |condition, ttl| Command::Pexpire { ttl, condition: Some(condition) };
    for (condition, ttl, reply) in [
        (Condition::Nx, 50_000, 0),
        (Condition::Xx, 50_000, 1),
        (Condition::Gt, 50_000, 1),
        (Condition::Gt, 10_000, 0),
        (Condition::Lt, 10_000, 1),
        (Condition::Lt, 50_000, 0),
    ] {
        let history = |reply| {
            [op(0, 1, set(1, LONG), Reply::Ok), op(2, 3, on(condition, ttl), number(reply))]
        };
        assert_accepted(&history(reply));
        assert_eq!(verdict(&history(1 - reply)), Verdict::NotLinearizable, "{condition} {ttl}");
    }
}

#[test]
fn a_key_without_an_end_is_later_than_any_end() {
    let endless = Command::Set { value: 1, ttl: None, when: When::IsFree, get: true };
    let gt = Command::Pexpire { ttl: LONG, condition: Some(Condition::Gt) };
    let nx = Command::Pexpire { ttl: LONG, condition: Some(Condition::Nx) };
    assert_accepted(&[
        op(0, 1, endless, Reply::Nil),
        op(2, 3, endless, Reply::Value(1)),
        op(4, 5, Command::Pttl, number(-1)),
        op(6, 7, gt, number(0)),
        op(8, 9, nx, number(1)),
        op(10, 11, nx, number(0)),
    ]);
}

#[test]
fn only_redis_replaces_another_value() {
    let replace = Command::Set { value: 2, ttl: Some(LONG), when: When::IsHeld, get: false };
    let with = |reply| [op(0, 1, set(1, LONG), Reply::Ok), op(2, 3, replace, reply)];
    for (service, right, wrong) in
        [(Service::REDIS, Reply::Ok, Reply::Conflict), (Service::CELL, Reply::Conflict, Reply::Ok)]
    {
        assert_eq!(judge(&with(right), service, &[]), Verdict::Linearizable);
        assert_eq!(judge(&with(wrong), service, &[]), Verdict::NotLinearizable);
    }
}

#[test]
fn what_got_no_reply_may_happen_at_any_later_time_or_never() {
    let history = |seen| {
        [
            op(0, 1, set(1, LONG), Reply::Ok),
            unknown(2, Command::Del, Doubt::Error),
            op(10, 11, Command::Get, Reply::Value(1)),
            op(20, 21, Command::Get, seen),
        ]
    };
    assert_accepted(&history(Reply::Value(1)));
    assert_accepted(&history(Reply::Nil));
    // But only once.
    let mut twice = history(Reply::Nil).to_vec();
    twice.extend([op(30, 31, set(2, LONG), Reply::Ok), op(40, 41, Command::Get, Reply::Nil)]);
    assert_rejected(&twice, Class::Dirty);
    // And not before it was called.
    let early = [
        op(0, 1, set(1, LONG), Reply::Ok),
        op(2, 3, Command::Get, Reply::Nil),
        unknown(5, Command::Del, Doubt::Gone),
    ];
    assert_rejected(&early, Class::Dirty);
}

#[test]
fn only_what_a_client_that_left_acquired_is_given_back() {
    let history = |doubt| {
        [
            unknown(0, set(1, LONG), doubt),
            op(2, 3, Command::Get, Reply::Value(1)),
            op(4, 5, Command::Get, Reply::Nil),
        ]
    };
    assert_accepted(&history(Doubt::Gone));
    assert_eq!(verdict(&history(Doubt::Error)), Verdict::NotLinearizable);
    assert_eq!(judge(&history(Doubt::Gone), Service::REDIS, &[]), Verdict::NotLinearizable);
}

#[test]
fn two_holders_are_rejected() {
    let redis = [op(0, 1, set(1, LONG), Reply::Ok), op(2, 3, set(2, LONG), Reply::Ok)];
    assert_eq!(verdict(&redis), Verdict::NotLinearizable);
    let granted = |fence| Reply::Granted { fence };
    let native = [
        op(0, 1, Command::LeaseAcquire(1, LONG), granted(1)),
        op(2, 3, Command::LeaseAcquire(2, LONG), granted(2)),
        op(4, 5, Command::LeaseRenew { fence: 1, ttl: LONG }, number(LONG as i64)),
        op(6, 7, Command::LeaseRenew { fence: 2, ttl: LONG }, number(LONG as i64)),
        op(8, 9, Command::LeaseRenew { fence: 1, ttl: LONG }, number(LONG as i64)),
    ];
    assert_eq!(verdict(&native), Verdict::NotLinearizable);
}

/// Class ii of the review: three commands end one lease, and none of them says so.
#[test]
fn a_delete_that_replied_0_and_deleted_is_rejected() {
    assert_rejected(
        &[
            op(0, 3, set(1, LONG), Reply::Ok),
            op(4, 11, Command::Release(1), number(0)),
            op(6, 14, Command::Del, number(0)),
            op(10, 13, Command::Exists, number(0)),
            op(15, 16, set(2, LONG), Reply::Ok),
        ],
        Class::Silent,
    );
}

/// Class ii: the remaining time is one that only this extension sets.
#[test]
fn an_extension_that_replied_0_and_extended_is_rejected() {
    assert_rejected(
        &[
            op(0, 5, set(1, 32_000), Reply::Ok),
            op(10, 24, Command::Del, number(1)),
            op(14, 25, Command::Pttl, number(21_500)),
            op(16, 26, Command::Extend(1, 21_500), number(0)),
        ],
        Class::Silent,
    );
}

/// Class iii: the refused acquire was visible.
#[test]
fn a_read_of_an_acquire_that_failed_is_rejected() {
    assert_rejected(
        &[op(0, 20, set(1, LONG), Reply::Nil), op(1, 14, Command::Get, Reply::Value(1))],
        Class::Dirty,
    );
}

#[test]
fn a_refusal_by_nothing_is_rejected() {
    assert_rejected(
        &[op(0, 9, set(1, LONG), Reply::Nil), op(1, 8, set(2, LONG), Reply::Nil)],
        Class::Dirty,
    );
    let seen = Reply::Held { value: 1, fence: 4, ttl: 10 };
    assert_rejected(&[op(0, 1, Command::LeaseGet, seen)], Class::Hint);
    let extend = Command::Set { value: 1, ttl: Some(LONG), when: When::IsHeld, get: false };
    assert_rejected(&[op(0, 1, extend, Reply::Conflict)], Class::Conflict);
}

/// Class iv: a second more than was set.
#[test]
fn a_remaining_time_that_no_command_set_is_rejected() {
    assert_rejected(
        &[op(0, 1, set(1, 800), Reply::Ok), op(2, 3, Command::Pttl, number(1800))],
        Class::Remaining,
    );
}

/// Class v: the only delete ends two tenures one after the other.
#[test]
fn a_delete_that_ended_two_tenures_is_rejected() {
    assert_rejected(
        &[
            op(4, 11, set(1, LONG), Reply::Ok),
            op(10, 21, Command::Del, number(1)),
            op(15, 19, set(2, LONG), Reply::Ok),
            op(22, 24, set(3, LONG), Reply::Ok),
        ],
        Class::Twice,
    );
}

/// Class vi: the second release of one fence.
#[test]
fn a_release_that_replied_1_for_nothing_is_rejected() {
    let release = Command::LeaseRelease { fence: 7 };
    assert_rejected(
        &[
            op(0, 1, Command::LeaseAcquire(1, LONG), Reply::Granted { fence: 7 }),
            op(2, 3, release, number(1)),
            op(41, 42, release, number(1)),
        ],
        Class::Claimed,
    );
}

/// What no single class explains is not hidden by its being long.
#[test]
fn the_part_that_is_shown_leaves_out_what_is_not_needed() {
    let mut operations = Vec::new();
    for round in 0..10 {
        let (at, value) = (100 * round, round + 1);
        operations.push(op(at, at + 1, set(value, LONG), Reply::Ok));
        operations.push(op(at + 2, at + 3, Command::Get, Reply::Value(value)));
        operations.push(op(at + 4, at + 5, Command::Release(value), number(1)));
    }
    operations.push(op(1000, 1001, set(50, LONG), Reply::Ok));
    operations.push(op(1002, 1005, Command::Release(50), number(0)));
    operations.push(op(1006, 1007, Command::Exists, number(0)));
    let part = shrink(&operations, Service::CELL, &[Class::Silent]);
    assert_eq!(part.len(), 2, "{part:?}");
}
