//! Leaving out operations changes no verdict: drawn histories, right and wrong, of few values on
//! which many operations overlap.

use proptest::prelude::*;

use crate::linear::history::{Command, Operation, Outcome, Reply, When};
use crate::linear::judge::{judge, judge_all};
use crate::linear::model::Service;

const TTL: u64 = 30_000;

/// Every command, with the replies that it can have.
fn exchanges() -> Vec<(Command, Reply)> {
    let mut all = Vec::new();
    let mut add = |command: Command, replies: &[Reply]| {
        all.extend(replies.iter().map(|reply| (command, *reply)));
    };
    let done = [Reply::Number(0), Reply::Number(1)];
    let seen = [Reply::Nil, Reply::Value(1), Reply::Value(2)];
    for (when, get) in [(When::IsFree, false), (When::IsFree, true), (When::IsHeld, false)] {
        for value in [1, 2] {
            let told = match (when, get) {
                (When::IsFree, false) => &[Reply::Ok, Reply::Ok, Reply::Nil][..],
                (When::IsFree, true) => &seen,
                (When::IsHeld, _) => &[Reply::Ok, Reply::Nil, Reply::Conflict],
            };
            add(Command::Set { value, ttl: Some(TTL), when, get }, told);
        }
    }
    for number in [1, 2] {
        let granted = Reply::Granted { fence: number };
        add(Command::LeaseAcquire(number, TTL), &[granted, granted, Reply::Nil]);
        add(Command::Release(number), &done);
        add(Command::Extend(number, TTL), &done);
        add(Command::LeaseRelease { fence: number }, &done);
        add(Command::LeaseRenew { fence: number, ttl: 1 }, &[Reply::NotHeld, Reply::Number(1)]);
        let held = Reply::Held { value: number, fence: number, ttl: TTL as i64 };
        add(Command::LeaseGet, &[held, Reply::Nil]);
    }
    add(Command::Get, &seen);
    add(Command::GetDel, &seen);
    add(Command::Exists, &done);
    add(Command::Del, &done);
    add(Command::Del, &done);
    add(Command::Pexpire { ttl: TTL, condition: None }, &done);
    add(Command::Pttl, &[Reply::Number(-2), Reply::Number(TTL as i64)]);
    all
}

fn operation() -> impl Strategy<Value = Operation> {
    // Short times, so that no end comes and every remaining time is right.
    let times = (0..20_u64, 1..12_u64);
    (times, prop::sample::select(exchanges())).prop_map(|((at, took), (command, reply))| {
        let (called_at, returned_at) = (1_000_000 + at * 1000, 1_000_000 + (at + took) * 1000);
        let outcome = Outcome::Reply(reply);
        Operation { client: 1, node: 1, command, called_at, outcome, returned_at }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30_000))]

    #[test]
    fn leaving_out_what_says_nothing_new_changes_no_verdict(
        operations in prop::collection::vec(operation(), 2..7)
    ) {
        let whole = judge_all(&operations, Service::CELL);
        prop_assert_eq!(judge(&operations, Service::CELL, &[]), whole);
    }
}
