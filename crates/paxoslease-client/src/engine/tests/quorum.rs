//! Nodes that answer, but reach no majority: whom to ask then, how long, and what is said of it.

use std::future::IntoFuture as _;
use std::time::Duration;

use super::scene::{Asked, FENCE, REQUEST_TIMEOUT, Scene};
use crate::LeaseGuard;
use crate::error::{AcquireError, AskError};

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
    assert_eq!(error, AcquireError::Held { name: "x".into(), seen: None });
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
