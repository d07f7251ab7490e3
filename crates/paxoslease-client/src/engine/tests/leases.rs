//! Acquire, renew and release: tests that repeat steps, or that look between two steps. All others
//! are transcripts, see [`super::scene`].

use std::future::IntoFuture as _;
use std::time::Duration;

use super::support::{FENCE, GRANTED, ManualClient, ManualFuture, TTL};
use crate::engine::acquires::QUEUED_MAX;
use crate::{LeaseGuard, LeaseState};
use paxoslease_holder::{AcquireError, AskError, RenewError};

/// An acquire of the name `x`, not sent yet.
fn acquire(manual: &ManualClient, wait: Duration) -> Asked {
    let acquire = manual.client.acquire("x", TTL).holder("me").wait(wait);
    ManualFuture::new(acquire.into_future()).begun()
}

type Asked = ManualFuture<Result<LeaseGuard, AcquireError>>;

fn answer(asked: &mut Asked) -> Result<LeaseGuard, AcquireError> {
    asked.poll().expect("answered")
}

/// A lease that was just granted.
fn hold(manual: &mut ManualClient) -> LeaseGuard {
    let mut asked = acquire(manual, Duration::ZERO);
    assert_eq!(manual.sent_one(), "LEASE.ACQUIRE x 15000 HOLDER me");
    manual.reply(GRANTED);
    answer(&mut asked).expect("granted")
}

/// Answers all requests as a willing node does, and returns how many there were.
fn serve(manual: &mut ManualClient, fence: &mut u64) -> usize {
    let mut answered = 0;
    loop {
        let sent = manual.sent();
        if sent.is_empty() {
            return answered;
        }
        answered += sent.len();
        let mut replies = String::new();
        for sent in sent {
            *fence += 1 << 10;
            replies += &match sent.split(' ').next() {
                Some("LEASE.ACQUIRE") => format!("*3\r\n:{fence}\r\n:15000\r\n:0\r\n"),
                Some("PING") => "+PONG\r\n".to_owned(),
                _ => ":15000\r\n".to_owned(),
            };
        }
        manual.reply(&replies);
    }
}

#[test]
fn a_hundred_thousand_leases_are_renewed() {
    let mut manual = ManualClient::connected(1);
    let mut fence = FENCE;
    let mut asked: Vec<Asked> = (0..100_000).map(|_| acquire(&manual, Duration::ZERO)).collect();
    assert_eq!(serve(&mut manual, &mut fence), 100_000);
    let leases: Vec<_> = asked.iter_mut().map(|asked| answer(asked).expect("granted")).collect();
    let mut renewals = 0;
    for _ in 0..40 {
        manual.advance_ms(500);
        renewals += serve(&mut manual, &mut fence);
        assert!(leases.iter().all(LeaseGuard::is_held));
    }
    assert!((300_000..=500_000).contains(&renewals), "{renewals} in four thirds of a ttl");
}

#[test]
fn a_released_lease_is_never_renewed_again() {
    for is_connected in [true, false] {
        let mut manual = ManualClient::connected(1);
        let lease = hold(&mut manual);
        if !is_connected {
            // The client does not send the pending renewal after it reconnects.
            manual.disconnect();
            manual.advance(TTL / 2);
            assert_eq!(manual.sent(), [""; 0]);
        }
        drop(lease);
        manual.run();
        if !is_connected {
            manual.connect();
        }
        assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
        manual.reply(":1\r\n");
        for _ in 0..200 {
            manual.advance(TTL / 100);
            assert_eq!(manual.sent(), [""; 0]);
        }
    }
}

#[test]
fn a_renewal_does_not_revive_a_lease_seen_to_be_over() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual);
    manual.advance_ms(5600);
    manual.sent_one();
    manual.advance_ms(9400);
    assert!(!lease.is_held(), "the client's thread was late, and the holder looked");
    manual.try_reply(":15000\r\n").expect("well formed");
    assert!(!lease.is_held());
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
    assert_eq!(lease.state(), LeaseState::Lost);
}

#[test]
fn a_grant_that_is_never_polled_is_released() {
    let mut manual = ManualClient::connected(1);
    let guarded = acquire(&manual, Duration::ZERO);
    let detached = manual.client.try_acquire("y", TTL).detached();
    let detached = ManualFuture::new(detached.into_future()).begun();
    manual.sent();
    manual.reply(GRANTED);
    drop(guarded);
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
    drop(detached);
    manual.reply(GRANTED);
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE y {FENCE}"));
}

#[test]
fn more_waits_than_a_node_allows_do_not_block_renewals() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual);
    let waits: Vec<_> = (0..QUEUED_MAX + 500).map(|_| acquire(&manual, Duration::MAX)).collect();
    let mut queued = 0;
    loop {
        let sent = manual.sent().len();
        if sent == 0 {
            break;
        }
        queued += sent;
        manual.reply(&"+QUEUED\r\n".repeat(sent));
    }
    assert!((QUEUED_MAX..QUEUED_MAX + 500).contains(&queued), "{queued}");
    manual.advance_ms(5600);
    assert!(manual.sent().contains(&format!("LEASE.RENEW x {FENCE} 15000")));
    manual.reply(":15000\r\n");
    drop((waits, lease));
    let sent = manual.sent();
    assert!(!sent.iter().any(|sent| sent.starts_with("LEASE.ACQUIRE")), "all waits are abandoned");
}

#[test]
fn invalid_arguments_fail_without_a_request() {
    let manual = ManualClient::connected(1);
    let refused = |name, ttl, holder: &str| {
        let acquire = manual.client.try_acquire(name, ttl).holder(holder);
        answer(&mut ManualFuture::new(acquire.into_future())).expect_err("refused")
    };
    let error = refused("x", Duration::from_millis(49), "me");
    assert!(matches!(error, AcquireError::Ttl(_)), "{error:?}");
    let error = refused("", TTL, "me");
    assert!(matches!(error, AcquireError::Ask(AskError::Name(_))), "{error:?}");
    let error = refused("x", TTL, &"x".repeat(257));
    assert!(matches!(error, AcquireError::Holder(_)), "{error:?}");
    let client = manual.client.clone();
    let renewed = ManualFuture::new(async move { client.renew("x", 0, TTL).await }).poll();
    let error = renewed.expect("at once").expect_err("no fence");
    assert_eq!(error, RenewError::NotHeld { name: "x".into(), fence: 0 });
}
