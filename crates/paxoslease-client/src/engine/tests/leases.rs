//! Asking, holding, renewing, giving back: what goes over the line, and when.

use std::future::IntoFuture as _;
use std::time::Duration;

use super::scene::{Asked, FENCE, Scene};
use crate::engine::wishes::QUEUED_MAX;
use crate::{LeaseGuard, LeaseState};
use paxoslease_holder::{AcquireError, AskError, ReleaseError, RenewError, TtlError};

const TTL: Duration = Duration::from_secs(15);

fn try_acquire(scene: &Scene, ttl: Duration) -> Asked<Result<LeaseGuard, AcquireError>> {
    let wish = scene.client.try_acquire("x", ttl).holder("me");
    Asked::new(wish.into_future()).begun()
}

fn acquire(scene: &Scene, wait: Duration) -> Asked<Result<LeaseGuard, AcquireError>> {
    let wish = scene.client.acquire("x", TTL).holder("me").wait(wait);
    Asked::new(wish.into_future()).begun()
}

/// A lease of this ttl, just granted.
fn hold(scene: &mut Scene, ttl: Duration) -> LeaseGuard {
    let mut asked = try_acquire(scene, ttl);
    assert_eq!(scene.said_one(), format!("LEASE.ACQUIRE x {} HOLDER me", ttl.as_millis()));
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:{}\r\n:0\r\n", ttl.as_millis()));
    asked.poll().expect("answered").expect("granted")
}

/// The number a wait was sent with.
fn notify_id(said: &str) -> &str {
    said.rsplit(' ').next().expect("a word")
}

#[test]
fn a_lease_is_counted_from_before_it_was_asked_for() {
    let mut scene = Scene::connected(1);
    let mut asked = try_acquire(&scene, TTL);
    assert_eq!(scene.said_one(), "LEASE.ACQUIRE x 15000 HOLDER me");
    scene.pass_ms(4000);
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    let lease = asked.poll().expect("answered").expect("granted");
    assert_eq!((lease.fence(), lease.name(), lease.holder()), (FENCE, "x", "me"));
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(lease.remaining() < Duration::from_secs(11), "{:?}", lease.remaining());
}

#[test]
fn who_holds_it_is_asked_for_when_it_is_held() {
    let mut scene = Scene::connected(1);
    let mut asked = try_acquire(&scene, TTL);
    scene.said_one();
    scene.hear("_\r\n");
    assert_eq!(scene.said_one(), "LEASE.GET x");
    scene.hear(
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
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(30));
    let said = scene.said_one();
    assert!(said.starts_with("LEASE.ACQUIRE x 15000 HOLDER me WAIT 30000 NOTIFY "), "{said}");
    scene.hear("+QUEUED\r\n");
    scene.pass_ms(8000);
    let id = notify_id(&said);
    let push = format!(
        ">5\r\n$13\r\nlease.granted\r\n${}\r\n{id}\r\n:{FENCE}\r\n:15000\r\n:7900\r\n",
        id.len()
    );
    scene.hear(&push);
    let lease = asked.poll().expect("answered").expect("granted");
    let remaining = lease.remaining();
    assert!(remaining < Duration::from_millis(14_900), "{remaining:?}");
    assert!(remaining > Duration::from_millis(14_800), "what it waited is no loss: {remaining:?}");
    scene.hear(&push);
    assert!(lease.remaining() <= remaining, "a repeated grant adds nothing");
}

#[test]
fn a_grant_may_overtake_the_word_that_it_is_queued() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(30));
    let id = notify_id(&scene.said_one()).to_owned();
    scene
        .hear(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n+QUEUED\r\n"));
    assert!(asked.poll().expect("answered").expect("granted").is_held());
}

#[test]
fn a_wait_that_is_over_says_who_holds_it() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(1));
    let id = notify_id(&scene.said_one()).to_owned();
    scene.hear("+QUEUED\r\n");
    scene.pass_ms(1000);
    scene.hear(&format!(">2\r\n+lease.timeout\r\n:{id}\r\n"));
    assert_eq!(scene.said_one(), "LEASE.GET x");
    scene.hear("_\r\n");
    let error = asked.poll().expect("answered").expect_err("held");
    assert_eq!(error, AcquireError::Held { name: "x".into(), holder: None });
}

#[test]
fn a_server_that_never_ends_a_wait_does_not_make_it_longer() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(1));
    scene.said_one();
    scene.hear("+QUEUED\r\n");
    for _ in 0..20 {
        scene.pass_ms(500);
        if scene.said().iter().any(|said| said == "PING") {
            scene.hear("+PONG\r\n");
        }
    }
    let error = asked.poll().expect("answered").expect_err("no lease");
    assert!(matches!(error, AcquireError::Ask(AskError::Unreachable { .. })), "{error:?}");
    assert!(scene.engine.wants_elsewhere().is_some(), "what it may grant goes with the connection");
}

#[test]
fn leases_are_renewed_together_from_a_third_of_their_ttl() {
    let mut scene = Scene::connected(1);
    let mut asked: Vec<_> = (0..1000).map(|_| try_acquire(&scene, TTL)).collect();
    assert_eq!(scene.said().len(), 1000);
    let grants: String =
        (0..1000).map(|n| format!("*3\r\n:{}\r\n:15000\r\n:0\r\n", FENCE + (n << 10))).collect();
    scene.hear(&grants);
    let leases: Vec<LeaseGuard> =
        asked.iter_mut().map(|asked| asked.poll().expect("answered").expect("granted")).collect();
    assert_eq!(scene.said(), [""; 0]);
    scene.pass_ms(4400);
    assert_eq!(scene.said_one(), "PING", "not before three tenths");
    scene.hear("+PONG\r\n");
    scene.pass_ms(1200);
    let renewals = scene.said();
    assert_eq!(renewals.len(), 1000, "in one go, when they are due together");
    assert_eq!(renewals[0].split(' ').next(), Some("LEASE.RENEW"));
    scene.hear(&":15000\r\n".repeat(1000));
    scene.pass_ms(10_000);
    assert!(leases.iter().all(LeaseGuard::is_held), "counted from the renewal");
}

#[test]
fn a_lease_that_is_not_renewed_is_in_jeopardy_then_lost_then_given_back() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    let mut states = vec![lease.state()];
    let (mut renewals, mut said) = (0, Vec::new());
    while lease.state() != LeaseState::Lost {
        assert!(lease.is_held());
        scene.pass_ms(20);
        said = scene.said();
        for said in &said {
            if said.starts_with("LEASE.RENEW") {
                renewals += 1;
                scene.hear("-NOQUORUM nobody\r\n");
            } else if said == "PING" {
                scene.hear("+PONG\r\n");
            }
        }
        states.push(lease.state());
    }
    states.dedup();
    assert_eq!(states, [LeaseState::Held, LeaseState::Jeopardy, LeaseState::Lost]);
    assert!(renewals > 10, "it was tried until the end");
    assert_eq!(said, [format!("LEASE.RELEASE x {FENCE}")]);
    scene.hear(":15000\r\n");
    assert!(!lease.is_held());
    let error = Asked::new(lease.release()).poll().expect("at once").expect_err("lost");
    assert_eq!(error, ReleaseError::NotHeld { name: "x".into(), fence: FENCE });
}

#[test]
fn a_lease_that_was_given_back_is_never_renewed_again() {
    for is_connected in [true, false] {
        let mut scene = Scene::connected(1);
        let lease = hold(&mut scene, TTL);
        if !is_connected {
            // A renewal that could not be sent yet is not sent later either.
            scene.disconnect();
            scene.pass(TTL / 2);
            assert_eq!(scene.said(), [""; 0]);
        }
        drop(lease);
        scene.turn();
        if !is_connected {
            scene.connect();
        }
        assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
        scene.hear(":1\r\n");
        for _ in 0..200 {
            scene.pass(TTL / 100);
            assert_eq!(scene.said(), [""; 0]);
        }
    }
}

#[test]
fn a_renewal_in_time_ends_the_jeopardy() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    scene.pass_ms(5600);
    scene.said_one();
    scene.pass_ms(4500);
    scene.turn();
    assert_eq!(lease.state(), LeaseState::Jeopardy);
    scene.hear(":15000\r\n");
    assert_eq!(lease.state(), LeaseState::Held);
    assert!(lease.remaining() < Duration::from_millis(10_500), "counted from its sending");
}

#[test]
fn a_renewal_does_not_bring_back_what_was_seen_to_be_over() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    scene.pass_ms(5600);
    scene.said_one();
    scene.pass_ms(9400);
    assert!(!lease.is_held(), "the client's thread was late, and the holder looked");
    scene.try_hear(":15000\r\n").expect("well formed");
    assert!(!lease.is_held());
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
    assert_eq!(lease.state(), LeaseState::Lost);
}

#[test]
fn a_tenure_that_is_over_is_lost_at_once() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    scene.pass_ms(5600);
    scene.said_one();
    scene.hear("-NOTHELD that tenure is over\r\n");
    assert_eq!(lease.state(), LeaseState::Lost);
    drop(lease);
    assert_eq!(scene.said(), [""; 0], "there is nothing to give back");
}

#[test]
fn the_belief_goes_before_the_release_is_said() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    scene.pass_ms(5600);
    assert_eq!(scene.said_one(), format!("LEASE.RENEW x {FENCE} 15000"));
    let mut released = Asked::new(lease.release()).begun();
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
    scene.hear(":15000\r\n");
    scene.pass_ms(60_000);
    assert_eq!(scene.said(), [""; 0], "and it is never renewed again");
    scene.try_hear(":1\r\n").expect("well formed");
    assert_eq!(released.poll(), Some(Ok(())));
}

#[test]
fn a_lease_that_is_dropped_is_given_back() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    drop(lease);
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
}

#[test]
fn a_grant_nobody_waits_for_is_given_back() {
    let mut scene = Scene::connected(1);
    let asked = try_acquire(&scene, TTL);
    scene.said_one();
    drop(asked);
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
}

#[test]
fn a_grant_that_is_never_looked_at_is_given_back() {
    let mut scene = Scene::connected(1);
    let guarded = try_acquire(&scene, TTL);
    let wish = scene.client.try_acquire("y", TTL).detached();
    let detached = Asked::new(wish.into_future()).begun();
    scene.said();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    drop(guarded);
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
    drop(detached);
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE y {FENCE}"));
}

#[test]
fn a_wait_nobody_waits_for_is_taken_back() {
    let mut scene = Scene::connected(1);
    let asked = acquire(&scene, Duration::MAX);
    let id = notify_id(&scene.said_one()).to_owned();
    scene.hear("+QUEUED\r\n");
    drop(asked);
    assert_eq!(scene.said_one(), format!("LEASE.CANCEL {id}"));
    scene.hear(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"), "it was on its way");
    scene.hear(":0\r\n:1\r\n");
    assert!(
        scene.engine.wants_elsewhere().is_none(),
        "no wait under that id any more, as is right"
    );
}

#[test]
fn a_wait_that_a_node_does_not_take_back_is_given_back_when_it_is_granted() {
    let mut scene = Scene::connected(1);
    let asked = acquire(&scene, Duration::MAX);
    let id = notify_id(&scene.said_one()).to_owned();
    scene.hear("+QUEUED\r\n");
    drop(asked);
    assert_eq!(scene.said_one(), format!("LEASE.CANCEL {id}"));
    scene.hear("-ERR unknown command 'LEASE.CANCEL'\r\n");
    scene.hear(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
}

#[test]
fn a_wait_that_was_taken_back_before_it_was_queued_is_taken_back_then() {
    let mut scene = Scene::connected(1);
    let asked = acquire(&scene, Duration::MAX);
    let id = notify_id(&scene.said_one()).to_owned();
    drop(asked);
    assert_eq!(scene.said(), [""; 0], "it may be granted at once");
    scene.hear("+QUEUED\r\n");
    assert_eq!(scene.said_one(), format!("LEASE.CANCEL {id}"));
    scene.hear(":1\r\n");
    scene.hear(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(scene.said(), [""; 0], "what was cancelled is not granted");
}

#[test]
fn more_waits_than_a_node_allows_do_not_keep_leases_from_being_renewed() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    let waits: Vec<_> = (0..QUEUED_MAX + 500).map(|_| acquire(&scene, Duration::MAX)).collect();
    let mut queued = 0;
    loop {
        let said = scene.said().len();
        if said == 0 {
            break;
        }
        queued += said;
        scene.hear(&"+QUEUED\r\n".repeat(said));
    }
    assert!((QUEUED_MAX..QUEUED_MAX + 500).contains(&queued), "{queued}");
    scene.pass_ms(5600);
    assert!(scene.said().contains(&format!("LEASE.RENEW x {FENCE} 15000")));
    scene.hear(":15000\r\n");
    drop((waits, lease));
    let said = scene.said();
    assert!(!said.iter().any(|said| said.starts_with("LEASE.ACQUIRE")), "nobody waits any more");
}

#[test]
fn a_detached_lease_is_neither_renewed_nor_given_back() {
    let mut scene = Scene::connected(1);
    let wish = scene.client.try_acquire("x", TTL).detached();
    let mut asked = Asked::new(wish.into_future()).begun();
    scene.said_one();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    let grant = asked.poll().expect("answered").expect("granted");
    assert_eq!((grant.fence(), grant.ttl(), grant.waited()), (FENCE, TTL, Duration::ZERO));
    scene.pass_ms(14_900);
    assert!(grant.is_held());
    scene.pass_ms(100);
    assert!(!grant.is_held());
    drop(grant);
    assert_eq!(scene.said(), [""; 0]);
}

#[test]
fn what_cannot_be_is_not_asked() {
    let scene = Scene::connected(1);
    let too_short = scene.client.try_acquire("x", Duration::from_millis(49));
    let error = Asked::new(too_short.into_future()).poll().expect("at once").expect_err("short");
    assert!(matches!(error, AcquireError::Ttl(_)), "{error:?}");
    let error = Asked::new(scene.client.try_acquire("", TTL).into_future()).poll();
    let error = error.expect("at once").expect_err("no name");
    assert!(matches!(error, AcquireError::Ask(AskError::Name(_))), "{error:?}");
    let long = "x".repeat(257);
    let error = Asked::new(scene.client.try_acquire("x", TTL).holder(&long).into_future()).poll();
    let error = error.expect("at once").expect_err("long");
    assert!(matches!(error, AcquireError::Holder(_)), "{error:?}");
    let client = scene.client.clone();
    let renewed = Asked::new(async move { client.renew("x", 0, TTL).await }).poll();
    let error = renewed.expect("at once").expect_err("no fence");
    assert_eq!(error, RenewError::NotHeld { name: "x".into(), fence: 0 });
}

#[test]
fn errors_of_a_node_have_their_types() {
    let mut scene = Scene::connected(1);
    for (said, expected) in [
        ("NOQUORUM so", AskError::NoQuorum("so".into())),
        ("QUARANTINE so", AskError::Quarantine("so".into())),
        ("BUSY so", AskError::Busy("so".into())),
        ("NOAUTH so", AskError::Unauthenticated("so".into())),
        ("WRONGPASS so", AskError::Unauthenticated("so".into())),
        ("NOPERM so", AskError::Denied("so".into())),
        ("NAME so", AskError::Protocol("NAME so".into())),
        ("ERR so", AskError::Protocol("ERR so".into())),
    ] {
        let mut asked = try_acquire(&scene, TTL);
        scene.said_one();
        scene.hear(&format!("-{said}\r\n"));
        let error = asked.poll().expect("answered").expect_err("refused");
        assert_eq!(error, AcquireError::Ask(expected));
    }
    let mut asked = try_acquire(&scene, TTL);
    scene.said_one();
    scene.hear("-TTL longer than 60s\r\n");
    let error = asked.poll().expect("answered").expect_err("refused");
    let max_lease = crate::test_util::MAX_LEASE;
    assert_eq!(error, AcquireError::Ttl(TtlError::TooLong { asked: TTL, max_lease }));
}

#[test]
fn a_client_that_leaves_gives_everything_back_and_turns_everybody_away() {
    let mut scene = Scene::connected(1);
    let lease = hold(&mut scene, TTL);
    let mut waits = acquire(&scene, Duration::MAX);
    scene.said_one();
    scene.hear("+QUEUED\r\n");
    let mut stopping = Asked::new({
        let client = scene.client.clone();
        async move { client.shutdown().await }
    })
    .begun();
    assert_eq!(scene.said_one(), format!("LEASE.RELEASE x {FENCE}"));
    assert_eq!(lease.state(), LeaseState::Lost);
    let stopped = AcquireError::Ask(AskError::Stopped);
    assert_eq!(waits.poll().expect("answered").expect_err("turned away"), stopped);
    assert!(!scene.engine.is_done(scene.now()));
    let mut late = try_acquire(&scene, TTL);
    scene.turn();
    assert_eq!(late.poll().expect("answered").expect_err("turned away"), stopped);
    scene.hear(":1\r\n");
    assert!(scene.engine.is_done(scene.now()));
    assert!(stopping.poll().is_none(), "until the thread is gone");
}

#[test]
fn a_hundred_thousand_leases_are_renewed() {
    let mut scene = Scene::connected(1);
    let mut asked: Vec<_> = (0..100_000).map(|_| try_acquire(&scene, TTL)).collect();
    let mut fence = FENCE;
    let answer = |scene: &mut Scene, fence: &mut u64| {
        let mut answered = 0;
        loop {
            let said = scene.said();
            if said.is_empty() {
                return answered;
            }
            answered += said.len();
            let mut replies = String::new();
            for said in said {
                *fence += 1 << 10;
                replies += &match said.split(' ').next() {
                    Some("LEASE.ACQUIRE") => format!("*3\r\n:{fence}\r\n:15000\r\n:0\r\n"),
                    Some("PING") => "+PONG\r\n".to_owned(),
                    _ => ":15000\r\n".to_owned(),
                };
            }
            scene.hear(&replies);
        }
    };
    assert_eq!(answer(&mut scene, &mut fence), 100_000);
    let leases: Vec<LeaseGuard> =
        asked.iter_mut().map(|asked| asked.poll().expect("answered").expect("granted")).collect();
    drop(asked);
    let mut renewals = 0;
    for _ in 0..40 {
        scene.pass_ms(500);
        renewals += answer(&mut scene, &mut fence);
        assert!(leases.iter().all(LeaseGuard::is_held));
    }
    assert!((300_000..=500_000).contains(&renewals), "{renewals} in four thirds of a ttl");
}
