//! Acquire, renew and release of many leases. All other tests are transcripts, see
//! [`super::scene`].

use std::future::IntoFuture as _;
use std::time::Duration;

use super::support::{FENCE, ManualClient, ManualFuture, TTL};
use crate::LeaseGuard;
use crate::engine::acquires::QUEUED_MAX;
use paxoslease_holder::AcquireError;

/// An acquire of the name `x`, not sent yet.
fn acquire(manual: &ManualClient, wait: Duration) -> Asked {
    let acquire = manual.client.acquire("x", TTL).holder("me").wait(wait);
    ManualFuture::new(acquire.into_future()).begun()
}

type Asked = ManualFuture<Result<LeaseGuard, AcquireError>>;

fn answer(asked: &mut Asked) -> Result<LeaseGuard, AcquireError> {
    asked.poll().expect("answered")
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
fn more_waits_than_a_node_allows_do_not_block_renewals() {
    let mut manual = ManualClient::connected(1);
    let mut asked = acquire(&manual, Duration::ZERO);
    assert_eq!(manual.sent(), ["LEASE.ACQUIRE x 15000 HOLDER me"]);
    manual.reply("*3\r\n:7169\r\n:15000\r\n:0\r\n");
    let lease = answer(&mut asked).expect("granted");
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
