//! From one node to the next: which requests the client repeats, which fail, and when.

use std::future::IntoFuture as _;
use std::time::Duration;

use super::support::{
    FENCE, ManualClient, ManualFuture, REQUEST_TIMEOUT, TTL, acquire, granted, unreachable,
};
use crate::{Client, LeaseGuard, LeaseState};
use paxoslease_holder::{AcquireError, AskError, ReleaseError};

fn release(client: &Client) -> ManualFuture<Result<(), ReleaseError>> {
    let client = client.clone();
    ManualFuture::new(async move { client.release("x", FENCE).await }).begun()
}

#[test]
fn requests_in_flight_are_repeated_in_their_order() {
    let mut manual = ManualClient::connected(2);
    let mut queued = acquire(&manual, Duration::from_secs(60));
    let before = manual.sent_one();
    manual.reply("+QUEUED\r\n");
    manual.advance_ms(10_000);
    let mut released = release(&manual.client);
    let client = manual.client.clone();
    let mut got = ManualFuture::new(async move { client.get("y").await }).begun();
    assert_eq!(manual.sent(), [format!("LEASE.RELEASE x {FENCE}"), "LEASE.GET y".into()]);
    manual.engine.disconnected();
    manual.connect();
    let sent = manual.sent();
    assert_eq!(sent[..2], [format!("LEASE.RELEASE x {FENCE}"), "LEASE.GET y".into()]);
    assert!(sent[2].starts_with("LEASE.ACQUIRE x 15000 HOLDER me WAIT 50000 NOTIFY "), "{sent:?}");
    assert_ne!(sent[2].rsplit(' ').next(), before.rsplit(' ').next(), "under another number");
    manual.reply(&format!(":0\r\n_\r\n*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(released.poll(), Some(Ok(())), "the first node may have done it");
    assert_eq!(got.poll(), Some(Ok(None)));
    assert!(queued.poll().expect("answered").expect("granted").is_held());
}

#[test]
fn a_release_of_what_was_not_held_says_so() {
    let mut manual = ManualClient::connected(2);
    let mut released = release(&manual.client);
    manual.sent_one();
    manual.reply(":0\r\n");
    let error = ReleaseError::NotHeld { name: "x".into(), fence: FENCE };
    assert_eq!(released.poll(), Some(Err(error)));
}

#[test]
fn a_push_for_an_earlier_sending_grants_nothing() {
    let mut manual = ManualClient::connected(2);
    let mut queued = acquire(&manual, Duration::from_secs(60));
    let sent = manual.sent_one();
    let id = sent.rsplit(' ').next().expect("a word");
    manual.reply("+QUEUED\r\n");
    manual.engine.disconnected();
    manual.connect();
    manual.sent_one();
    manual.reply("+QUEUED\r\n");
    manual.reply(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert!(queued.poll().is_none());
}

#[test]
fn unsent_requests_fail_when_no_node_is_reachable() {
    let mut manual = ManualClient::new(1);
    let (mut waits, mut released) = (acquire(&manual, Duration::MAX), release(&manual.client));
    manual.run();
    assert!(manual.engine.wants_session());
    manual.engine.unreachable(manual.now(), &unreachable(), false);
    let error = waits.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, AcquireError::Ask(unreachable()));
    let error = released.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, ReleaseError::Unconfirmed(unreachable()));
    assert!(!manual.engine.wants_session());
}

#[test]
fn sent_requests_are_retried_while_they_have_time() {
    let mut manual = ManualClient::connected(1);
    let mut waits = acquire(&manual, Duration::from_secs(60));
    manual.sent_one();
    manual.reply("+QUEUED\r\n");
    let mut released = release(&manual.client);
    manual.sent_one();
    manual.engine.disconnected();
    manual.engine.unreachable(manual.now(), &unreachable(), false);
    assert!(released.poll().is_none());
    manual.advance(REQUEST_TIMEOUT);
    manual.engine.unreachable(manual.now(), &unreachable(), false);
    let error = released.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, ReleaseError::Unconfirmed(unreachable()));
    assert!(waits.poll().is_none(), "it waits as long as it wanted to");
    manual.advance(Duration::from_secs(60));
    manual.engine.unreachable(manual.now(), &unreachable(), false);
    let error = waits.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, AcquireError::Ask(unreachable()));
}

#[test]
fn a_guard_retries_as_long_as_it_holds() {
    let mut manual = ManualClient::connected(2);
    let mut asked = acquire(&manual, Duration::ZERO);
    manual.sent_one();
    manual.reply(&granted(TTL));
    let lease = asked.poll().expect("answered").expect("granted");
    manual.engine.disconnected();
    assert!(manual.engine.wants_session(), "before there is anything to say");
    manual.advance_ms(5600);
    manual.run();
    for _ in 0..8 {
        manual.advance_ms(1000);
        manual.engine.unreachable(manual.now(), &unreachable(), false);
    }
    manual.connect();
    assert_eq!(manual.sent_one(), format!("LEASE.RENEW x {FENCE} 15000"));
    manual.reply(":15000\r\n");
    manual.advance_ms(14_000);
    assert!(lease.is_held(), "counted from when it was sent at last");
}

#[test]
fn a_node_without_a_majority_is_left_for_one_that_has_it() {
    let mut manual = ManualClient::connected(3);
    let mut asked = acquire(&manual, Duration::ZERO);
    for _ in 0..2 {
        assert_eq!(manual.sent_one(), "LEASE.ACQUIRE x 15000 HOLDER me");
        manual.reply("-NOQUORUM alone\r\n");
        assert!(manual.engine.leave_reason().is_some());
        assert!(!manual.engine.disconnected(), "it only sent an error");
        manual.connect();
    }
    manual.sent_one();
    manual.reply("-NOQUORUM alone\r\n");
    assert_eq!(manual.engine.leave_reason(), None, "all were asked");
    let error = asked.poll().expect("answered").expect_err("no quorum");
    assert_eq!(error, AcquireError::Ask(AskError::NoQuorum("alone".into())));
}

#[test]
fn a_split_vote_is_no_reason_to_leave_a_node() {
    let mut manual = ManualClient::connected(3);
    let mut asked = acquire(&manual, Duration::ZERO);
    let client = manual.client.clone();
    let _got = ManualFuture::new(async move { client.get("y").await }).begun();
    let mut contended = acquire(&manual, Duration::ZERO);
    manual.sent();
    manual.reply(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n_\r\n-NOQUORUM split\r\n"));
    assert!(asked.poll().expect("answered").is_ok());
    let error = contended.poll().expect("answered").expect_err("no quorum");
    assert_eq!(error, AcquireError::Ask(AskError::NoQuorum("split".into())));
    assert_eq!(manual.engine.leave_reason(), None);
}

#[test]
fn a_node_that_stops_is_left() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::ZERO);
    manual.sent_one();
    manual.reply("-STOPPING this node is stopping; ask another\r\n");
    assert!(manual.engine.leave_reason().is_some());
    manual.engine.disconnected();
    manual.connect();
    manual.sent_one();
    manual.reply(&granted(TTL));
    assert!(asked.poll().expect("answered").is_ok());
}

#[test]
fn a_silent_node_is_left_with_time_to_ask_another() {
    let mut manual = ManualClient::connected(2);
    let mut released = release(&manual.client);
    manual.sent_one();
    let stalls_at = manual.engine.next_at().expect("a timer");
    manual.advance(stalls_at.since(manual.now()));
    manual.run();
    assert!(manual.engine.leave_reason().is_some());
    manual.engine.disconnected();
    manual.connect();
    manual.sent_one();
    manual.reply(":1\r\n");
    assert_eq!(released.poll(), Some(Ok(())));
}

/// A lease of a second, just granted.
fn hold_a_second(manual: &mut ManualClient) -> LeaseGuard {
    let acquire = manual.client.try_acquire("x", Duration::from_secs(1));
    let mut asked = ManualFuture::new(acquire.into_future()).begun();
    manual.sent_one();
    manual.reply(&granted(Duration::from_secs(1)));
    asked.poll().expect("answered").expect("granted")
}

#[test]
fn an_unanswered_renewal_leaves_time_for_two_more_tries() {
    let mut manual = ManualClient::connected(3);
    let lease = hold_a_second(&mut manual);
    let renewal = format!("LEASE.RENEW x {FENCE} 1000");
    let mut renewals = 0;
    while renewals < 3 {
        manual.advance_ms(1);
        let sent = manual.sent();
        renewals += sent.iter().filter(|sent| **sent == renewal).count();
        if manual.engine.leave_reason().is_some() {
            manual.engine.disconnected();
            manual.connect();
        }
    }
    manual.advance_ms(75);
    manual.run();
    assert_eq!(manual.engine.leave_reason(), None, "the third has its time too");
    assert_eq!(lease.state(), LeaseState::Held, "all that before the lease is in danger");
    manual.reply(":1000\r\n");
    manual.advance_ms(900);
    assert!(lease.is_held());
}

#[test]
fn one_unanswered_renewal_is_enough_to_leave_a_node() {
    let mut manual = ManualClient::connected(2);
    let _lease = hold_a_second(&mut manual);
    manual.advance_ms(400);
    manual.sent_one();
    for _ in 0..3 {
        manual.advance_ms(30);
        manual.reply(">1\r\n+unheard.of\r\n");
    }
    assert!(manual.engine.leave_reason().is_some());
}

#[test]
fn a_slow_cell_is_not_taken_for_a_slow_node() {
    let mut manual = ManualClient::connected(2);
    let acquire = manual.client.try_acquire("x", Duration::from_secs(1));
    let mut asked = ManualFuture::new(acquire.into_future()).begun();
    manual.sent_one();
    manual.advance_ms(100);
    manual.reply(&granted(Duration::from_secs(1)));
    let lease = asked.poll().expect("answered").expect("granted");
    manual.advance_ms(300);
    manual.sent_one();
    manual.advance_ms(120);
    manual.run();
    assert_eq!(manual.engine.leave_reason(), None);
    manual.reply(":1000\r\n");
    assert!(lease.is_held());
}

#[test]
fn the_only_endpoint_may_be_slow() {
    let mut manual = ManualClient::connected(1);
    let _lease = hold_a_second(&mut manual);
    manual.advance_ms(400);
    manual.sent_one();
    manual.advance_ms(300);
    manual.reply(">1\r\n+unheard.of\r\n");
    manual.advance_ms(100);
    manual.run();
    assert_eq!(manual.engine.leave_reason(), None);
}

#[test]
fn a_silent_needed_connection_is_probed() {
    let mut manual = ManualClient::connected(1);
    assert_eq!(manual.engine.next_at(), None, "nothing matters yet");
    let _waits = acquire(&manual, Duration::MAX);
    manual.sent_one();
    manual.reply("+QUEUED\r\n");
    let silent_at = manual.engine.next_at().expect("a timer");
    manual.advance(silent_at.since(manual.now()));
    assert_eq!(manual.sent_one(), "PING");
    manual.advance(REQUEST_TIMEOUT / 2);
    manual.run();
    assert!(manual.engine.leave_reason().is_some());
}

#[test]
fn an_unexpected_reply_ends_the_connection() {
    for reply in ["+OK\r\n", ":1\r\n", "*3\r\n:0\r\n:15000\r\n:0\r\n", "*2\r\n:1025\r\n:15000\r\n"]
    {
        let mut manual = ManualClient::connected(1);
        let mut asked = acquire(&manual, Duration::ZERO);
        manual.sent_one();
        manual.reply(reply);
        let error = asked.poll().expect("answered").expect_err("no grant");
        assert!(matches!(error, AcquireError::Ask(AskError::Protocol(_))), "{error:?}");
        assert!(manual.engine.leave_reason().is_some());
    }
    let mut manual = ManualClient::connected(1);
    manual.reply(":1\r\n");
    assert!(manual.engine.leave_reason().is_some(), "there was no request");
    assert!(manual.try_reply("?\r\n").is_err());
}

#[test]
fn a_list_restarts_at_another_node() {
    let mut manual = ManualClient::connected(2);
    let list = manual.client.list("jobs/").page_len(2);
    let mut all = ManualFuture::new(list.all()).begun();
    assert_eq!(manual.sent_one(), "LEASE.LIST 0 MATCH jobs/* COUNT 2");
    let entry = |name: &str| {
        format!("%4\r\n+name\r\n+{name}\r\n+holder\r\n+h\r\n+fence\r\n:1025\r\n+ttl_ms\r\n:9\r\n")
    };
    manual.reply(&format!("*2\r\n+77\r\n*2\r\n{}{}", entry("jobs/b"), entry("jobs/c")));
    assert!(all.poll().is_none());
    assert_eq!(manual.sent_one(), "LEASE.LIST 77 MATCH jobs/* COUNT 2");
    manual.engine.disconnected();
    manual.connect();
    assert_eq!(manual.sent_one(), "LEASE.LIST 0 MATCH jobs/* COUNT 2");
    manual.reply(&format!("*2\r\n+3\r\n*2\r\n{}{}", entry("jobs/b"), entry("jobs/a")));
    assert!(all.poll().is_none());
    assert_eq!(manual.sent_one(), "LEASE.LIST 3 MATCH jobs/* COUNT 2");
    manual.reply(&format!("*2\r\n+0\r\n*1\r\n{}", entry("jobs/c")));
    let all = all.poll().expect("answered").expect("listed");
    let names: Vec<&str> = all.iter().map(|lease| lease.name.as_str()).collect();
    assert_eq!(names, ["jobs/a", "jobs/b", "jobs/c"]);
}
