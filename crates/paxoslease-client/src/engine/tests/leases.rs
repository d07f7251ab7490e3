//! Acquire, renew and release: what the client sends, and when.

use std::future::IntoFuture as _;
use std::time::Duration;

use super::support::{FENCE, ManualClient, ManualFuture, TTL, acquire, granted};
use crate::engine::acquires::QUEUED_MAX;
use crate::{LeaseGuard, LeaseState};
use paxoslease_holder::{AcquireError, AskError, ReleaseError, RenewError, TtlError};

fn try_acquire(
    manual: &ManualClient,
    ttl: Duration,
) -> ManualFuture<Result<LeaseGuard, AcquireError>> {
    let acquire = manual.client.try_acquire("x", ttl).holder("me");
    ManualFuture::new(acquire.into_future()).begun()
}

/// A lease of this ttl, just granted.
fn hold(manual: &mut ManualClient, ttl: Duration) -> LeaseGuard {
    let mut asked = try_acquire(manual, ttl);
    assert_eq!(manual.sent_one(), format!("LEASE.ACQUIRE x {} HOLDER me", ttl.as_millis()));
    manual.reply(&granted(ttl));
    asked.poll().expect("answered").expect("granted")
}

/// The number a wait was sent with.
fn notify_id(sent: &str) -> &str {
    sent.rsplit(' ').next().expect("a word")
}

#[test]
fn a_lease_counts_from_before_its_request() {
    let mut manual = ManualClient::connected(1);
    let mut asked = try_acquire(&manual, TTL);
    assert_eq!(manual.sent_one(), "LEASE.ACQUIRE x 15000 HOLDER me");
    manual.advance_ms(4000);
    manual.reply(&granted(TTL));
    let lease = asked.poll().expect("answered").expect("granted");
    assert_eq!((lease.fence(), lease.name(), lease.holder()), (FENCE, "x", "me"));
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(lease.remaining() < Duration::from_secs(11), "{:?}", lease.remaining());
}

#[test]
fn the_error_held_names_the_holder() {
    let mut manual = ManualClient::connected(1);
    let mut asked = try_acquire(&manual, TTL);
    manual.sent_one();
    manual.reply("_\r\n");
    assert_eq!(manual.sent_one(), "LEASE.GET x");
    manual.reply(
        "%3\r\n$6\r\nholder\r\n$3\r\nyou\r\n$5\r\nfence\r\n:1025\r\n$6\r\nttl_ms\r\n:900\r\n",
    );
    let error = asked.poll().expect("answered").expect_err("held");
    let text = error.to_string();
    let AcquireError::Held { name, holder: Some(seen) } = error else { panic!("{error:?}") };
    assert_eq!((name.as_str(), seen.holder.as_str(), seen.fence), ("x", "you", 1025));
    assert_eq!(seen.remaining, Duration::from_millis(900));
    assert!(text.contains("\"you\" (fence 1025) for 900ms"), "{text}");
}

#[test]
fn a_wait_is_queued_and_granted_by_a_push() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(30));
    let sent = manual.sent_one();
    assert!(sent.starts_with("LEASE.ACQUIRE x 15000 HOLDER me WAIT 30000 NOTIFY "), "{sent}");
    manual.reply("+QUEUED\r\n");
    manual.advance_ms(8000);
    let id = notify_id(&sent);
    let push = format!(
        ">5\r\n$13\r\nlease.granted\r\n${}\r\n{id}\r\n:{FENCE}\r\n:15000\r\n:7900\r\n",
        id.len()
    );
    manual.reply(&push);
    let lease = asked.poll().expect("answered").expect("granted");
    let remaining = lease.remaining();
    assert!(remaining < Duration::from_millis(14_900), "{remaining:?}");
    assert!(
        remaining > Duration::from_millis(14_800),
        "the queueing time does not count: {remaining:?}"
    );
    manual.reply(&push);
    assert!(lease.remaining() <= remaining, "a repeated grant adds nothing");
}

#[test]
fn a_grant_may_overtake_the_reply_queued() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(30));
    let id = notify_id(&manual.sent_one()).to_owned();
    manual.reply(&format!(
        ">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n+QUEUED\r\n"
    ));
    assert!(asked.poll().expect("answered").expect("granted").is_held());
}

#[test]
fn a_wait_that_ends_asks_for_the_holder() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(1));
    let id = notify_id(&manual.sent_one()).to_owned();
    manual.reply("+QUEUED\r\n");
    manual.advance_ms(1000);
    manual.reply(&format!(">2\r\n+lease.timeout\r\n:{id}\r\n"));
    assert_eq!(manual.sent_one(), "LEASE.GET x");
    manual.reply("_\r\n");
    let error = asked.poll().expect("answered").expect_err("held");
    assert_eq!(error, AcquireError::Held { name: "x".into(), holder: None });
}

#[test]
fn a_server_that_never_ends_a_wait_does_not_make_it_longer() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::from_secs(1));
    manual.sent_one();
    manual.reply("+QUEUED\r\n");
    for _ in 0..20 {
        manual.advance_ms(500);
        if manual.sent().iter().any(|sent| sent == "PING") {
            manual.reply("+PONG\r\n");
        }
    }
    let error = asked.poll().expect("answered").expect_err("no lease");
    assert!(matches!(error, AcquireError::Ask(AskError::Unreachable { .. })), "{error:?}");
    assert!(manual.engine.leave_reason().is_some(), "what it may grant goes with the connection");
}

#[test]
fn leases_are_renewed_together_from_a_third_of_their_ttl() {
    let mut manual = ManualClient::connected(1);
    let mut asked: Vec<_> = (0..1000).map(|_| try_acquire(&manual, TTL)).collect();
    assert_eq!(manual.sent().len(), 1000);
    let grants: String =
        (0..1000).map(|n| format!("*3\r\n:{}\r\n:15000\r\n:0\r\n", FENCE + (n << 10))).collect();
    manual.reply(&grants);
    let leases: Vec<LeaseGuard> =
        asked.iter_mut().map(|asked| asked.poll().expect("answered").expect("granted")).collect();
    assert_eq!(manual.sent(), [""; 0]);
    manual.advance_ms(4400);
    assert_eq!(manual.sent_one(), "PING", "not before three tenths");
    manual.reply("+PONG\r\n");
    manual.advance_ms(1200);
    let renewals = manual.sent();
    assert_eq!(renewals.len(), 1000, "in one go, when they are due together");
    assert_eq!(renewals[0].split(' ').next(), Some("LEASE.RENEW"));
    manual.reply(&":15000\r\n".repeat(1000));
    manual.advance_ms(10_000);
    assert!(leases.iter().all(LeaseGuard::is_held), "counted from the renewal");
}

#[test]
fn a_lease_without_renewals_is_in_jeopardy_lost_and_released() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
    let mut states = vec![lease.state()];
    let (mut renewals, mut sent) = (0, Vec::new());
    while lease.state() != LeaseState::Lost {
        assert!(lease.is_held());
        manual.advance_ms(20);
        sent = manual.sent();
        for sent in &sent {
            if sent.starts_with("LEASE.RENEW") {
                renewals += 1;
                manual.reply("-NOQUORUM nobody\r\n");
            } else if sent == "PING" {
                manual.reply("+PONG\r\n");
            }
        }
        states.push(lease.state());
    }
    states.dedup();
    assert_eq!(states, [LeaseState::Held, LeaseState::Jeopardy, LeaseState::Lost]);
    assert!(renewals > 10, "it was tried until the end");
    assert_eq!(sent, [format!("LEASE.RELEASE x {FENCE}")]);
    manual.reply(":15000\r\n");
    assert!(!lease.is_held());
    let error = ManualFuture::new(lease.release()).poll().expect("at once").expect_err("lost");
    assert_eq!(error, ReleaseError::NotHeld { name: "x".into(), fence: FENCE });
}

#[test]
fn a_released_lease_is_never_renewed_again() {
    for is_connected in [true, false] {
        let mut manual = ManualClient::connected(1);
        let lease = hold(&mut manual, TTL);
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
fn a_renewal_in_time_ends_the_jeopardy() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
    manual.advance_ms(5600);
    manual.sent_one();
    manual.advance_ms(4500);
    manual.run();
    assert_eq!(lease.state(), LeaseState::Jeopardy);
    manual.reply(":15000\r\n");
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(lease.remaining() < Duration::from_millis(10_500), "counted from its sending");
}

#[test]
fn a_renewal_does_not_revive_a_lease_seen_to_be_over() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
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
fn a_tenure_that_is_over_is_lost_at_once() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
    manual.advance_ms(5600);
    manual.sent_one();
    manual.reply("-NOTHELD that tenure is over\r\n");
    assert_eq!(lease.state(), LeaseState::Lost);
    drop(lease);
    assert_eq!(manual.sent(), [""; 0], "there is nothing to give back");
}

#[test]
fn the_belief_ends_before_the_release_is_sent() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
    manual.advance_ms(5600);
    assert_eq!(manual.sent_one(), format!("LEASE.RENEW x {FENCE} 15000"));
    let mut released = ManualFuture::new(lease.release()).begun();
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
    manual.reply(":15000\r\n");
    manual.advance_ms(60_000);
    assert_eq!(manual.sent(), [""; 0], "and it is never renewed again");
    manual.try_reply(":1\r\n").expect("well formed");
    assert_eq!(released.poll(), Some(Ok(())));
}

#[test]
fn a_dropped_guard_releases_its_lease() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
    drop(lease);
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
}

#[test]
fn an_abandoned_grant_is_released() {
    let mut manual = ManualClient::connected(1);
    let asked = try_acquire(&manual, TTL);
    manual.sent_one();
    drop(asked);
    manual.reply(&granted(TTL));
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
}

#[test]
fn a_grant_that_is_never_polled_is_released() {
    let mut manual = ManualClient::connected(1);
    let guarded = try_acquire(&manual, TTL);
    let acquire = manual.client.try_acquire("y", TTL).detached();
    let detached = ManualFuture::new(acquire.into_future()).begun();
    manual.sent();
    manual.reply(&granted(TTL));
    drop(guarded);
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
    drop(detached);
    manual.reply(&granted(TTL));
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE y {FENCE}"));
}

#[test]
fn an_abandoned_wait_is_cancelled() {
    let mut manual = ManualClient::connected(1);
    let asked = acquire(&manual, Duration::MAX);
    let id = notify_id(&manual.sent_one()).to_owned();
    manual.reply("+QUEUED\r\n");
    drop(asked);
    assert_eq!(manual.sent_one(), format!("LEASE.CANCEL {id}"));
    manual.reply(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"), "it was on its way");
    manual.reply(":0\r\n:1\r\n");
    assert!(manual.engine.leave_reason().is_none(), "no wait under that id any more, as is right");
}

#[test]
fn the_grant_of_a_wait_that_was_not_cancelled_is_released() {
    let mut manual = ManualClient::connected(1);
    let asked = acquire(&manual, Duration::MAX);
    let id = notify_id(&manual.sent_one()).to_owned();
    manual.reply("+QUEUED\r\n");
    drop(asked);
    assert_eq!(manual.sent_one(), format!("LEASE.CANCEL {id}"));
    manual.reply("-ERR unknown command 'LEASE.CANCEL'\r\n");
    manual.reply(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
}

#[test]
fn a_wait_abandoned_before_it_is_queued_is_cancelled_then() {
    let mut manual = ManualClient::connected(1);
    let asked = acquire(&manual, Duration::MAX);
    let id = notify_id(&manual.sent_one()).to_owned();
    drop(asked);
    assert_eq!(manual.sent(), [""; 0], "it may be granted at once");
    manual.reply("+QUEUED\r\n");
    assert_eq!(manual.sent_one(), format!("LEASE.CANCEL {id}"));
    manual.reply(":1\r\n");
    manual.reply(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(manual.sent(), [""; 0], "what was cancelled is not granted");
}

#[test]
fn more_waits_than_a_node_allows_do_not_block_renewals() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
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
fn a_detached_lease_is_neither_renewed_nor_released() {
    let mut manual = ManualClient::connected(1);
    let acquire = manual.client.try_acquire("x", TTL).detached();
    let mut asked = ManualFuture::new(acquire.into_future()).begun();
    manual.sent_one();
    manual.reply(&granted(TTL));
    let grant = asked.poll().expect("answered").expect("granted");
    assert_eq!((grant.fence(), grant.ttl(), grant.waited()), (FENCE, TTL, Duration::ZERO));
    manual.advance_ms(14_900);
    assert!(grant.is_held());
    manual.advance_ms(100);
    assert!(!grant.is_held());
    drop(grant);
    assert_eq!(manual.sent(), [""; 0]);
}

#[test]
fn invalid_arguments_fail_without_a_request() {
    let manual = ManualClient::connected(1);
    let too_short = manual.client.try_acquire("x", Duration::from_millis(49));
    let error =
        ManualFuture::new(too_short.into_future()).poll().expect("at once").expect_err("short");
    assert!(matches!(error, AcquireError::Ttl(_)), "{error:?}");
    let error = ManualFuture::new(manual.client.try_acquire("", TTL).into_future()).poll();
    let error = error.expect("at once").expect_err("no name");
    assert!(matches!(error, AcquireError::Ask(AskError::Name(_))), "{error:?}");
    let long = "x".repeat(257);
    let error =
        ManualFuture::new(manual.client.try_acquire("x", TTL).holder(&long).into_future()).poll();
    let error = error.expect("at once").expect_err("long");
    assert!(matches!(error, AcquireError::Holder(_)), "{error:?}");
    let client = manual.client.clone();
    let renewed = ManualFuture::new(async move { client.renew("x", 0, TTL).await }).poll();
    let error = renewed.expect("at once").expect_err("no fence");
    assert_eq!(error, RenewError::NotHeld { name: "x".into(), fence: 0 });
}

#[test]
fn errors_of_a_node_have_their_types() {
    let mut manual = ManualClient::connected(1);
    for (sent, expected) in [
        ("NOQUORUM so", AskError::NoQuorum("so".into())),
        ("QUARANTINE so", AskError::Quarantine("so".into())),
        ("BUSY so", AskError::Busy("so".into())),
        ("NOAUTH so", AskError::Unauthenticated("so".into())),
        ("WRONGPASS so", AskError::Unauthenticated("so".into())),
        ("NOPERM so", AskError::Denied("so".into())),
        ("NAME so", AskError::Protocol("NAME so".into())),
        ("ERR so", AskError::Protocol("ERR so".into())),
    ] {
        let mut asked = try_acquire(&manual, TTL);
        manual.sent_one();
        manual.reply(&format!("-{sent}\r\n"));
        let error = asked.poll().expect("answered").expect_err("refused");
        assert_eq!(error, AcquireError::Ask(expected));
    }
    let mut asked = try_acquire(&manual, TTL);
    manual.sent_one();
    manual.reply("-TTL longer than 60s\r\n");
    let error = asked.poll().expect("answered").expect_err("refused");
    let max_lease = crate::test_util::MAX_LEASE;
    assert_eq!(error, AcquireError::Ttl(TtlError::TooLong { asked: TTL, max_lease }));
}

#[test]
fn a_stopping_client_releases_leases_and_fails_requests() {
    let mut manual = ManualClient::connected(1);
    let lease = hold(&mut manual, TTL);
    let mut waits = acquire(&manual, Duration::MAX);
    manual.sent_one();
    manual.reply("+QUEUED\r\n");
    let mut stopping = ManualFuture::new({
        let client = manual.client.clone();
        async move { client.shutdown().await }
    })
    .begun();
    assert_eq!(manual.sent_one(), format!("LEASE.RELEASE x {FENCE}"));
    assert_eq!(lease.state(), LeaseState::Lost);
    let stopped = AcquireError::Ask(AskError::Stopped);
    assert_eq!(waits.poll().expect("answered").expect_err("turned away"), stopped);
    assert!(!manual.engine.is_done(manual.now()));
    let mut late = try_acquire(&manual, TTL);
    manual.run();
    assert_eq!(late.poll().expect("answered").expect_err("turned away"), stopped);
    manual.reply(":1\r\n");
    assert!(manual.engine.is_done(manual.now()));
    assert!(stopping.poll().is_none(), "until the thread is gone");
}

#[test]
fn a_hundred_thousand_leases_are_renewed() {
    let mut manual = ManualClient::connected(1);
    let mut asked: Vec<_> = (0..100_000).map(|_| try_acquire(&manual, TTL)).collect();
    let mut fence = FENCE;
    let answer = |manual: &mut ManualClient, fence: &mut u64| {
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
    };
    assert_eq!(answer(&mut manual, &mut fence), 100_000);
    let leases: Vec<LeaseGuard> =
        asked.iter_mut().map(|asked| asked.poll().expect("answered").expect("granted")).collect();
    drop(asked);
    let mut renewals = 0;
    for _ in 0..40 {
        manual.advance_ms(500);
        renewals += answer(&mut manual, &mut fence);
        assert!(leases.iter().all(LeaseGuard::is_held));
    }
    assert!((300_000..=500_000).contains(&renewals), "{renewals} in four thirds of a ttl");
}
