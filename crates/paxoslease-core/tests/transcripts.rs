//! Typical conversations between nodes, as transcripts in `tests/snapshots/`. Every message takes
//! one millisecond; no message is lost unless the transcript says so.
//!
//! A transcript that differs fails the test. If the change is intended and understood, rewrite the
//! files with `INSTA_UPDATE=always cargo test -p paxoslease-core --test transcripts`.

mod cell;
#[path = "transcripts/scene.rs"]
mod scene;

use core::time::Duration;

use cell::{NO_WAIT, TTL, WAIT};
use insta::assert_snapshot;
use scene::Scene;

#[test]
fn an_uncontended_acquire() {
    let mut scene = Scene::new(3);
    scene.acquire(1, NO_WAIT);
    scene.hops(2);
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_contended_acquire() {
    let mut scene = Scene::new(3);
    scene.acquire(1, NO_WAIT);
    scene.hops(2);
    scene.acquire(2, NO_WAIT);
    scene.hops(4);
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_prepared_round_after_a_split_vote() {
    let mut scene = Scene::new(3);
    for id in 1..=3 {
        scene.acquire(id, NO_WAIT);
    }
    scene.until_quiet();
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_renewal_that_heals_an_acceptor_after_its_restart() {
    let mut scene = Scene::with_disks(3);
    let tenure = scene.acquired(1);
    scene.crash(3);
    scene.note("the holder renews every 4 s; node 3 is quarantined for 10 s");
    for _ in 0..2 {
        scene.skip(Duration::from_secs(4));
        scene.renew(1, tenure);
        scene.until_quiet();
    }
    scene.skip(Duration::from_secs(4));
    scene.note("node 3 is back, with a floor above this renewal's ballot");
    scene.renew(1, tenure);
    scene.until_quiet();
    scene.skip(Duration::from_secs(4));
    scene.renew(1, tenure);
    scene.until_quiet();
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_release_handing_over_to_a_waiter_on_another_node() {
    let mut scene = Scene::new(3);
    let tenure = scene.acquired(1);
    scene.acquire(2, WAIT);
    scene.hops(4);
    scene.skip(Duration::from_secs(2));
    scene.release(1, tenure);
    scene.until_quiet();
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_holder_that_dies_and_a_waiter_that_takes_over() {
    let mut scene = Scene::new(3);
    scene.acquired(1);
    scene.acquire(2, WAIT);
    scene.hops(4);
    scene.dead(1);
    scene.skip(TTL - Duration::from_millis(10));
    scene.note("still excluded");
    scene.until_quiet();
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_clean_restart_with_a_snapshot() {
    let mut scene = Scene::with_disks(3);
    let tenure = scene.acquired(1);
    scene.restart(2, Duration::from_secs(3));
    scene.note("node 2 answers at once, and knows of the lease");
    scene.acquire(3, NO_WAIT);
    scene.hops(4);
    scene.renew(1, tenure);
    scene.until_quiet();
    assert_snapshot!(scene.transcript());
}

#[test]
fn a_crash_with_a_quarantine() {
    let mut scene = Scene::with_disks(3);
    scene.acquired(1);
    scene.crash(2);
    scene.note("node 2 has forgotten the lease, and says nothing");
    scene.acquire(2, WAIT);
    scene.hops(4);
    scene.skip(TTL - Duration::from_millis(10));
    scene.note("the lease and the quarantine end");
    scene.until_quiet();
    assert_snapshot!(scene.transcript());
}

#[test]
fn an_abandoned_client() {
    let mut scene = Scene::new(3);
    scene.acquire(1, NO_WAIT);
    scene.hops(1);
    scene.abandon(1);
    scene.hops(3);
    scene.acquire(2, NO_WAIT);
    scene.hops(2);
    assert_snapshot!(scene.transcript());
}
