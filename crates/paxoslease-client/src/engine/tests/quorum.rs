//! Nodes that answer, but reach no majority: whom to ask then, how long, and what is said of it.

use std::future::IntoFuture as _;
use std::time::Duration;

use super::scene::{Asked, FENCE, REQUEST_TIMEOUT, Scene};
use crate::LeaseGuard;
use paxoslease_holder::{AcquireError, AskError};

const TTL: Duration = Duration::from_secs(15);

fn acquire(scene: &Scene, wait: Duration) -> Asked<Result<LeaseGuard, AcquireError>> {
    let wish = scene.client.acquire("x", TTL).holder("me").wait(wait);
    Asked::new(wish.into_future()).begun()
}

fn unreachable() -> AskError {
    AskError::Unreachable { endpoints: vec!["n1:1".into()], problem: "refused".into() }
}

fn no_quorum() -> AcquireError {
    AcquireError::Ask(AskError::NoQuorum("alone".into()))
}

#[test]
fn a_wait_that_ends_without_a_majority_is_not_called_held() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(1));
    let said = scene.said_one();
    scene.hear("+QUEUED\r\n");
    scene.pass_ms(1000);
    let id = said.rsplit(' ').next().expect("a word");
    scene.hear(&format!(">2\r\n+lease.timeout\r\n:{id}\r\n"));
    assert_eq!(scene.said_one(), "LEASE.GET x");
    scene.hear("-NOQUORUM alone\r\n");
    assert_eq!(asked.poll().expect("answered").expect_err("no quorum"), no_quorum());
}

#[test]
fn who_may_not_look_hears_that_it_is_held() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::ZERO);
    scene.said_one();
    scene.hear("_\r\n");
    assert_eq!(scene.said_one(), "LEASE.GET x");
    scene.hear("-NOPERM not yours\r\n");
    let error = asked.poll().expect("answered").expect_err("held");
    assert_eq!(error, AcquireError::Held { name: "x".into(), holder: None });
}

#[test]
fn a_node_that_answered_knows_better_than_those_that_do_not() {
    let mut scene = Scene::connected(3);
    let mut asked = acquire(&scene, Duration::ZERO);
    let client = scene.client.clone();
    let mut got = Asked::new(async move { client.get("y").await }).begun();
    scene.said();
    scene.pass_ms(2000);
    scene.hear("-NOQUORUM alone\r\n-QUARANTINE silent\r\n");
    assert_eq!(scene.engine.wants_elsewhere(), Some(&AskError::NoQuorum("alone".into())));
    scene.engine.disconnected();
    scene.connect();
    scene.said();
    scene.pass(REQUEST_TIMEOUT - Duration::from_millis(2000));
    scene.turn();
    scene.engine.disconnected();
    scene.engine.unreachable(scene.now(), &unreachable());
    assert_eq!(asked.poll().expect("answered").expect_err("no quorum"), no_quorum());
    assert_eq!(got.poll(), Some(Err(AskError::Quarantine("silent".into()))));
}

#[test]
fn a_renewal_that_is_refused_for_want_of_a_majority_is_never_asked_of_the_same_node_next() {
    let mut scene = Scene::connected(2);
    let mut asked = acquire(&scene, Duration::ZERO);
    scene.said_one();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    let lease = asked.poll().expect("answered").expect("granted");
    scene.pass_ms(5600);
    for _ in 0..5 {
        while scene.said().is_empty() {
            scene.pass_ms(20);
        }
        assert!(lease.is_held());
        scene.hear("-NOQUORUM alone\r\n");
        assert!(scene.engine.wants_elsewhere().is_some());
        scene.engine.disconnected();
        scene.connect();
    }
}

#[test]
fn a_wait_outlasts_a_cell_without_a_majority() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(60));
    scene.said_one();
    scene.hear("-NOQUORUM alone\r\n");
    assert!(asked.poll().is_none());
    assert_eq!(scene.said(), [""; 0], "not at once");
    let again_at = scene.engine.next_at().expect("it looks after that");
    scene.pass(again_at.since(scene.now()));
    assert!(scene.said_one().starts_with("LEASE.ACQUIRE x 15000 HOLDER me WAIT 59"));
    scene.engine.disconnected();
    scene.pass(REQUEST_TIMEOUT * 2);
    scene.engine.unreachable(scene.now(), &unreachable());
    assert!(asked.poll().is_none(), "nor is that a reason to give up");
    scene.connect();
    scene.said_one();
    scene.hear(&format!("*3\r\n:{FENCE}\r\n:15000\r\n:0\r\n"));
    assert!(asked.poll().expect("answered").expect("granted").is_held());
}

#[test]
fn a_wait_that_is_over_without_a_majority_says_so() {
    let mut scene = Scene::connected(1);
    let mut asked = acquire(&scene, Duration::from_secs(3));
    let mut answer = None;
    for _ in 0..100 {
        scene.pass_ms(100);
        for _ in scene.said() {
            scene.hear("-NOQUORUM alone\r\n");
        }
        answer = answer.or_else(|| asked.poll());
        if answer.is_some() {
            break;
        }
    }
    assert_eq!(answer.expect("answered").expect_err("no quorum"), no_quorum());
}

#[test]
fn a_node_that_lost_its_majority_while_it_waits_is_left() {
    let mut scene = Scene::connected(2);
    let mut asked = acquire(&scene, Duration::MAX);
    scene.said_one();
    scene.hear("+QUEUED\r\n");
    let silent_at = scene.engine.next_at().expect("it looks after that");
    scene.pass(silent_at.since(scene.now()));
    assert_eq!(scene.said_one(), "LEASE.GET x");
    scene.hear("-NOQUORUM alone\r\n");
    assert!(scene.engine.wants_elsewhere().is_some());
    scene.engine.disconnected();
    scene.connect();
    let said = scene.said();
    assert!(said.iter().any(|said| said.starts_with("LEASE.ACQUIRE x")), "{said:?}");
    assert!(asked.poll().is_none());
}

#[test]
fn a_wait_that_nobody_waits_for_any_more_is_not_asked_again() {
    let mut scene = Scene::connected(1);
    let asked = acquire(&scene, Duration::MAX);
    scene.said_one();
    scene.hear("-NOQUORUM alone\r\n");
    drop(asked);
    scene.pass_ms(1000);
    assert_eq!(scene.said(), [""; 0]);
}
