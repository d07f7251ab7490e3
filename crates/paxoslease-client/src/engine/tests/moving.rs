//! From one node to the next: what is asked again, what is not, and when it is over.

use std::future::IntoFuture as _;
use std::time::Duration;

use super::scene::{Asked, FENCE, REQUEST_TIMEOUT, Scene};
use crate::{Client, LeaseGuard, LeaseState};
use paxoslease_holder::{AcquireError, AskError, ReleaseError};

const TTL: Duration = Duration::from_secs(15);

fn acquire(scene: &Scene, wait: Duration) -> Asked<Result<LeaseGuard, AcquireError>> {
    let wish = scene.client.acquire("x", TTL).holder("me").wait(wait);
    Asked::new(wish.into_future()).begun()
}

fn release(client: &Client) -> Asked<Result<(), ReleaseError>> {
    let client = client.clone();
    Asked::new(async move { client.release("x", FENCE).await }).begun()
}

fn unreachable() -> AskError {
    AskError::Unreachable { endpoints: vec!["n1:1".into()], problem: "refused".into() }
}

#[test]
fn what_was_under_way_is_asked_again_in_its_order() {
    let mut scene = Scene::connected(2);
    let mut queued = acquire(&scene, Duration::from_secs(60));
    let before = scene.said_one();
    scene.hear("+QUEUED\r\n");
    scene.pass_ms(10_000);
    let mut released = release(&scene.client);
    let client = scene.client.clone();
    let mut got = Asked::new(async move { client.get("y").await }).begun();
    assert_eq!(scene.said(), [format!("LEASE.RELEASE x {FENCE}"), "LEASE.GET y".into()]);
    scene.engine.disconnected();
    scene.connect();
    let said = scene.said();
    assert_eq!(said[..2], [format!("LEASE.RELEASE x {FENCE}"), "LEASE.GET y".into()]);
    assert!(said[2].starts_with("LEASE.ACQUIRE x 15000 HOLDER me WAIT 50000 NOTIFY "), "{said:?}");
    assert_ne!(said[2].rsplit(' ').next(), before.rsplit(' ').next(), "under another number");
    scene.hear(&format!(":0\r\n_\r\n*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert_eq!(released.poll(), Some(Ok(())), "the first node may have done it");
    assert_eq!(got.poll(), Some(Ok(None)));
    assert!(queued.poll().expect("answered").expect("granted").is_held());
}

#[test]
fn a_release_of_what_was_not_held_says_so() {
    let mut scene = Scene::connected(2);
    let mut released = release(&scene.client);
    scene.said_one();
    scene.hear(":0\r\n");
    let error = ReleaseError::NotHeld { name: "x".into(), fence: FENCE };
    assert_eq!(released.poll(), Some(Err(error)));
}

#[test]
fn a_grant_of_an_earlier_sending_grants_nothing() {
    let mut scene = Scene::connected(2);
    let mut queued = acquire(&scene, Duration::from_secs(60));
    let said = scene.said_one();
    let id = said.rsplit(' ').next().expect("a word");
    scene.hear("+QUEUED\r\n");
    scene.engine.disconnected();
    scene.connect();
    scene.said_one();
    scene.hear("+QUEUED\r\n");
    scene.hear(&format!(">5\r\n+lease.granted\r\n:{id}\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert!(queued.poll().is_none());
}

#[test]
fn what_was_never_sent_fails_when_nobody_can_be_reached() {
    let mut scene = Scene::new(1);
    let (mut waits, mut released) = (acquire(&scene, Duration::MAX), release(&scene.client));
    scene.turn();
    assert!(scene.engine.wants_session());
    scene.engine.unreachable(scene.now(), &unreachable());
    let error = waits.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, AcquireError::Ask(unreachable()));
    let error = released.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, ReleaseError::Unconfirmed(unreachable()));
    assert!(!scene.engine.wants_session());
}

#[test]
fn what_was_sent_is_tried_again_while_it_has_time() {
    let mut scene = Scene::connected(1);
    let mut waits = acquire(&scene, Duration::from_secs(60));
    scene.said_one();
    scene.hear("+QUEUED\r\n");
    let mut released = release(&scene.client);
    scene.said_one();
    scene.engine.disconnected();
    scene.engine.unreachable(scene.now(), &unreachable());
    assert!(released.poll().is_none());
    scene.pass(REQUEST_TIMEOUT);
    scene.engine.unreachable(scene.now(), &unreachable());
    let error = released.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, ReleaseError::Unconfirmed(unreachable()));
    assert!(waits.poll().is_none(), "it waits as long as it wanted to");
    scene.pass(Duration::from_secs(60));
    scene.engine.unreachable(scene.now(), &unreachable());
    let error = waits.poll().expect("answered").expect_err("unreachable");
    assert_eq!(error, AcquireError::Ask(unreachable()));
}

#[test]
fn a_guard_goes_on_trying_as_long_as_it_holds() {
    let mut scene = Scene::connected(2);
    let mut asked = acquire(&scene, Duration::ZERO);
    scene.said_one();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    let lease = asked.poll().expect("answered").expect("granted");
    scene.engine.disconnected();
    assert!(scene.engine.wants_session(), "before there is anything to say");
    scene.pass_ms(5600);
    scene.turn();
    for _ in 0..8 {
        scene.pass_ms(1000);
        scene.engine.unreachable(scene.now(), &unreachable());
    }
    scene.connect();
    assert_eq!(scene.said_one(), format!("LEASE.RENEW x {FENCE} 15000"));
    scene.hear(":15000\r\n");
    scene.pass_ms(14_000);
    assert!(lease.is_held(), "counted from when it was sent at last");
}

#[test]
fn a_node_without_a_majority_is_left_for_one_that_has_it() {
    let mut scene = Scene::connected(3);
    let mut asked = acquire(&scene, Duration::ZERO);
    for _ in 0..2 {
        assert_eq!(scene.said_one(), "LEASE.ACQUIRE x 15000 HOLDER me");
        scene.hear("-NOQUORUM alone\r\n");
        assert!(scene.engine.wants_elsewhere().is_some());
        assert!(!scene.engine.disconnected(), "it was good for nothing");
        scene.connect();
    }
    scene.said_one();
    scene.hear("-NOQUORUM alone\r\n");
    assert_eq!(scene.engine.wants_elsewhere(), None, "all were asked");
    let error = asked.poll().expect("answered").expect_err("no quorum");
    assert_eq!(error, AcquireError::Ask(AskError::NoQuorum("alone".into())));
}

#[test]
fn a_split_vote_is_no_reason_to_leave_a_node() {
    let mut scene = Scene::connected(3);
    let mut asked = acquire(&scene, Duration::ZERO);
    let client = scene.client.clone();
    let _got = Asked::new(async move { client.get("y").await }).begun();
    let mut contended = acquire(&scene, Duration::ZERO);
    scene.said();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n_\r\n-NOQUORUM split\r\n"));
    assert!(asked.poll().expect("answered").is_ok());
    let error = contended.poll().expect("answered").expect_err("no quorum");
    assert_eq!(error, AcquireError::Ask(AskError::NoQuorum("split".into())));
    assert_eq!(scene.engine.wants_elsewhere(), None);
}

#[test]
fn a_node_that_stops_is_left() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::ZERO);
    scene.said_one();
    scene.hear("-STOPPING this node is stopping; ask another\r\n");
    assert!(scene.engine.wants_elsewhere().is_some());
    scene.engine.disconnected();
    scene.connect();
    scene.said_one();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert!(asked.poll().expect("answered").is_ok());
}

#[test]
fn a_node_that_does_not_answer_is_left_while_there_is_time_to_ask_another() {
    let mut scene = Scene::connected(2);
    let mut released = release(&scene.client);
    scene.said_one();
    let stalls_at = scene.engine.next_at().expect("it looks after that");
    scene.pass(stalls_at.since(scene.now()));
    scene.turn();
    assert!(scene.engine.wants_elsewhere().is_some());
    scene.engine.disconnected();
    scene.connect();
    scene.said_one();
    scene.hear(":1\r\n");
    assert_eq!(released.poll(), Some(Ok(())));
}

/// A lease of a second, just granted.
fn hold_a_second(scene: &mut Scene) -> LeaseGuard {
    let wish = scene.client.try_acquire("x", Duration::from_secs(1));
    let mut asked = Asked::new(wish.into_future()).begun();
    scene.said_one();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:1000\r\n:0\r\n"));
    asked.poll().expect("answered").expect("granted")
}

#[test]
fn nodes_that_do_not_answer_a_renewal_are_left_with_time_for_two_more_tries() {
    let mut scene = Scene::connected(3);
    let lease = hold_a_second(&mut scene);
    let renewal = format!("LEASE.RENEW x {FENCE} 1000");
    let mut renewals = 0;
    while renewals < 3 {
        scene.pass_ms(1);
        let said = scene.said();
        renewals += said.iter().filter(|said| **said == renewal).count();
        if scene.engine.wants_elsewhere().is_some() {
            scene.engine.disconnected();
            scene.connect();
        }
    }
    scene.pass_ms(75);
    scene.turn();
    assert_eq!(scene.engine.wants_elsewhere(), None, "the third has its time too");
    assert_eq!(lease.state(), LeaseState::Held, "all that before the lease is in danger");
    scene.hear(":1000\r\n");
    scene.pass_ms(900);
    assert!(lease.is_held());
}

#[test]
fn a_node_that_does_not_answer_one_renewal_is_left_although_it_answers_others() {
    let mut scene = Scene::connected(2);
    let _lease = hold_a_second(&mut scene);
    scene.pass_ms(400);
    scene.said_one();
    for _ in 0..3 {
        scene.pass_ms(30);
        scene.hear(">1\r\n+unheard.of\r\n");
    }
    assert!(scene.engine.wants_elsewhere().is_some());
}

#[test]
fn a_cell_that_is_slow_is_not_taken_for_a_node_that_is() {
    let mut scene = Scene::connected(2);
    let wish = scene.client.try_acquire("x", Duration::from_secs(1));
    let mut asked = Asked::new(wish.into_future()).begun();
    scene.said_one();
    scene.pass_ms(100);
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:1000\r\n:0\r\n"));
    let lease = asked.poll().expect("answered").expect("granted");
    scene.pass_ms(300);
    scene.said_one();
    scene.pass_ms(120);
    scene.turn();
    assert_eq!(scene.engine.wants_elsewhere(), None);
    scene.hear(":1000\r\n");
    assert!(lease.is_held());
}

#[test]
fn the_only_node_there_is_may_be_slow() {
    let mut scene = Scene::connected(1);
    let _lease = hold_a_second(&mut scene);
    scene.pass_ms(400);
    scene.said_one();
    scene.pass_ms(300);
    scene.hear(">1\r\n+unheard.of\r\n");
    scene.pass_ms(100);
    scene.turn();
    assert_eq!(scene.engine.wants_elsewhere(), None);
}

#[test]
fn a_silent_connection_that_matters_is_asked_for_a_sign_of_life() {
    let mut scene = Scene::connected(1);
    assert_eq!(scene.engine.next_at(), None, "nothing matters yet");
    let _waits = acquire(&scene, Duration::MAX);
    scene.said_one();
    scene.hear("+QUEUED\r\n");
    let silent_at = scene.engine.next_at().expect("it looks after that");
    scene.pass(silent_at.since(scene.now()));
    assert_eq!(scene.said_one(), "PING");
    scene.pass(REQUEST_TIMEOUT / 2);
    scene.turn();
    assert!(scene.engine.wants_elsewhere().is_some());
}

#[test]
fn what_makes_no_sense_ends_the_connection() {
    for reply in ["+OK\r\n", ":1\r\n", "*3\r\n:0\r\n:15000\r\n:0\r\n", "*2\r\n:1025\r\n:15000\r\n"]
    {
        let mut scene = Scene::connected(1);
        let mut asked = acquire(&scene, Duration::ZERO);
        scene.said_one();
        scene.hear(reply);
        let error = asked.poll().expect("answered").expect_err("no grant");
        assert!(matches!(error, AcquireError::Ask(AskError::Protocol(_))), "{error:?}");
        assert!(scene.engine.wants_elsewhere().is_some());
    }
    let mut scene = Scene::connected(1);
    scene.hear(":1\r\n");
    assert!(scene.engine.wants_elsewhere().is_some(), "nobody asked");
    assert!(scene.try_hear("?\r\n").is_err());
}

#[test]
fn a_list_begins_anew_at_another_node() {
    let mut scene = Scene::connected(2);
    let list = scene.client.list("jobs/").page_len(2);
    let mut all = Asked::new(list.all()).begun();
    assert_eq!(scene.said_one(), "LEASE.LIST 0 MATCH jobs/* COUNT 2");
    let entry = |name: &str| {
        format!("%4\r\n+name\r\n+{name}\r\n+holder\r\n+h\r\n+fence\r\n:1025\r\n+ttl_ms\r\n:9\r\n")
    };
    scene.hear(&format!("*2\r\n+77\r\n*2\r\n{}{}", entry("jobs/b"), entry("jobs/c")));
    assert!(all.poll().is_none());
    assert_eq!(scene.said_one(), "LEASE.LIST 77 MATCH jobs/* COUNT 2");
    scene.engine.disconnected();
    scene.connect();
    assert_eq!(scene.said_one(), "LEASE.LIST 0 MATCH jobs/* COUNT 2");
    scene.hear(&format!("*2\r\n+3\r\n*2\r\n{}{}", entry("jobs/b"), entry("jobs/a")));
    assert!(all.poll().is_none());
    assert_eq!(scene.said_one(), "LEASE.LIST 3 MATCH jobs/* COUNT 2");
    scene.hear(&format!("*2\r\n+0\r\n*1\r\n{}", entry("jobs/c")));
    let all = all.poll().expect("answered").expect("listed");
    let names: Vec<&str> = all.iter().map(|lease| lease.name.as_str()).collect();
    assert_eq!(names, ["jobs/a", "jobs/b", "jobs/c"]);
}
