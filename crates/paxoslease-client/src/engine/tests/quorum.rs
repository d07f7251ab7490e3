//! Nodes that answer, but reach no majority: which node the client asks next, and the error.

use std::time::Duration;

use super::support::{
    ManualClient, ManualFuture, REQUEST_TIMEOUT, TTL, acquire, granted, unreachable,
};
use paxoslease_holder::{AcquireError, AskError};

fn no_quorum() -> AcquireError {
    AcquireError::Ask(AskError::NoQuorum("alone".into()))
}

#[test]
fn a_wait_that_ends_without_a_majority_is_not_called_held() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(1));
    let sent = manual.sent_one();
    manual.reply("+QUEUED\r\n");
    manual.advance_ms(1000);
    let id = sent.rsplit(' ').next().expect("a word");
    manual.reply(&format!(">2\r\n+lease.timeout\r\n:{id}\r\n"));
    assert_eq!(manual.sent_one(), "LEASE.GET x");
    manual.reply("-NOQUORUM alone\r\n");
    assert_eq!(asked.poll().expect("answered").expect_err("no quorum"), no_quorum());
}

#[test]
fn without_read_permission_the_error_is_held() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::ZERO);
    manual.sent_one();
    manual.reply("_\r\n");
    assert_eq!(manual.sent_one(), "LEASE.GET x");
    manual.reply("-NOPERM not yours\r\n");
    let error = asked.poll().expect("answered").expect_err("held");
    assert_eq!(error, AcquireError::Held { name: "x".into(), holder: None });
}

#[test]
fn the_refusal_of_a_node_wins_over_unreachable() {
    let mut manual = ManualClient::connected(3);
    let mut asked = acquire(&manual, Duration::ZERO);
    let client = manual.client.clone();
    let mut got = ManualFuture::new(async move { client.get("y").await }).begun();
    manual.sent();
    manual.advance_ms(2000);
    manual.reply("-NOQUORUM alone\r\n-QUARANTINE silent\r\n");
    assert_eq!(manual.engine.leave_reason(), Some(&AskError::NoQuorum("alone".into())));
    manual.engine.disconnected();
    manual.connect();
    manual.sent();
    manual.advance(REQUEST_TIMEOUT - Duration::from_millis(2000));
    manual.run();
    manual.engine.disconnected();
    manual.engine.unreachable(manual.now(), &unreachable(), false);
    assert_eq!(asked.poll().expect("answered").expect_err("no quorum"), no_quorum());
    assert_eq!(got.poll(), Some(Err(AskError::Quarantine("silent".into()))));
}

#[test]
fn after_noquorum_the_next_renewal_goes_to_another_node() {
    let mut manual = ManualClient::connected(2);
    let mut asked = acquire(&manual, Duration::ZERO);
    manual.sent_one();
    manual.reply(&granted(TTL));
    let lease = asked.poll().expect("answered").expect("granted");
    manual.advance_ms(5600);
    for _ in 0..5 {
        while manual.sent().is_empty() {
            manual.advance_ms(20);
        }
        assert!(lease.is_held());
        manual.reply("-NOQUORUM alone\r\n");
        assert!(manual.engine.leave_reason().is_some());
        manual.engine.disconnected();
        manual.connect();
    }
}

#[test]
fn a_wait_outlasts_a_cell_without_a_majority() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(60));
    manual.sent_one();
    manual.reply("-NOQUORUM alone\r\n");
    assert!(asked.poll().is_none());
    assert_eq!(manual.sent(), [""; 0], "not at once");
    let again_at = manual.engine.next_at().expect("a timer");
    manual.advance(again_at.since(manual.now()));
    assert!(manual.sent_one().starts_with("LEASE.ACQUIRE x 15000 HOLDER me WAIT 59"));
    manual.engine.disconnected();
    manual.advance(REQUEST_TIMEOUT * 2);
    manual.engine.unreachable(manual.now(), &unreachable(), false);
    assert!(asked.poll().is_none(), "nor is that a reason to give up");
    manual.connect();
    manual.sent_one();
    manual.reply(&granted(TTL));
    assert!(asked.poll().expect("answered").expect("granted").is_held());
}

#[test]
fn a_wait_that_is_over_without_a_majority_says_so() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(3));
    let mut answer = None;
    for _ in 0..100 {
        manual.advance_ms(100);
        for _ in manual.sent() {
            manual.reply("-NOQUORUM alone\r\n");
        }
        answer = answer.or_else(|| asked.poll());
        if answer.is_some() {
            break;
        }
    }
    assert_eq!(answer.expect("answered").expect_err("no quorum"), no_quorum());
}

#[test]
fn a_node_that_lost_its_majority_during_a_wait_is_left() {
    let mut manual = ManualClient::connected(2);
    let mut asked = acquire(&manual, Duration::MAX);
    manual.sent_one();
    manual.reply("+QUEUED\r\n");
    let silent_at = manual.engine.next_at().expect("a timer");
    manual.advance(silent_at.since(manual.now()));
    assert_eq!(manual.sent_one(), "LEASE.GET x");
    manual.reply("-NOQUORUM alone\r\n");
    assert!(manual.engine.leave_reason().is_some());
    manual.engine.disconnected();
    manual.connect();
    let sent = manual.sent();
    assert!(sent.iter().any(|sent| sent.starts_with("LEASE.ACQUIRE x")), "{sent:?}");
    assert!(asked.poll().is_none());
}

#[test]
fn an_abandoned_wait_is_not_retried() {
    let mut manual = ManualClient::connected(1);
    let asked = acquire(&manual, Duration::MAX);
    manual.sent_one();
    manual.reply("-NOQUORUM alone\r\n");
    drop(asked);
    manual.advance_ms(1000);
    assert_eq!(manual.sent(), [""; 0]);
}
