//! A member that missed something comes back, and then another one goes: a majority is there all
//! the time, and serves.

use std::cell::RefCell;

use paxoslease_core::Name;

use super::*;
use paxoslease_holder::AcquireError;
use paxoslease_node::front::{Answer, Request};

const LONG: Duration = Duration::from_secs(30);

fn long(seed: u64) -> Setup {
    Setup { max_lease: LONG, proposers: 2, ..Setup::new(seed, 3) }
}

#[test]
fn a_free_name_is_granted_although_the_member_that_restarted_missed_its_release() {
    for asker in [0, 2, 3] {
        let mut cell = cell(&long(31));
        let guard = cell.lease(0, LONG);
        cell.stop(2);
        assert_eq!(cell.run(0, guard.release()), Ok(()));
        cell.start(2);
        cell.run_for(SECOND);
        cell.kill(1, Presence::Silent);
        let waited = cell.time_to_take(asker);
        assert!(waited < SECOND, "asked by host {asker}: {waited:?}");
        cell.assert_sound();
    }
}

#[test]
fn a_free_name_is_granted_although_the_member_that_was_cut_off_missed_its_release() {
    for asker in [0, 2, 3] {
        let mut cell = cell(&long(32));
        let guard = cell.lease(0, LONG);
        cell.isolate(2);
        cell.run_for(SECOND * 3);
        assert_eq!(cell.run(0, guard.release()), Ok(()));
        cell.heal();
        cell.run_for(SECOND * 2);
        cell.kill(1, Presence::Silent);
        let waited = cell.time_to_take(asker);
        assert!(waited < SECOND, "asked by host {asker}: {waited:?}");
        cell.assert_sound();
    }
}

/// A lease of two seconds begins while a member is away that still stores the one before, which is
/// of half a minute and was released by host 0 or by one that is gone since. Then every other
/// member is restarted in turn.
fn roll(releaser: usize) -> (Simulation, Rc<LeaseGuard>) {
    let mut cell = cell(&long(33));
    let before = cell.lease(releaser, LONG);
    cell.stop(2);
    assert_eq!(cell.run(releaser, before.release()), Ok(()));
    if releaser != 0 {
        cell.kill(releaser, Presence::Silent);
    }
    let (_, guard) = cell.hold(3);
    cell.start(2);
    cell.run_for(SECOND);
    for host in [1, 0, 2] {
        cell.stop(host);
        cell.run_for(TTL * 3 / 2);
        cell.start(host);
        cell.run_for(SECOND);
    }
    (cell, guard)
}

#[test]
fn a_rolling_restart_keeps_a_lease_although_a_member_missed_the_release_before_it() {
    let (cell, guard) = roll(0);
    assert!(guard.is_held() && cell.judge().losses == 0, "lost with two of three up");
    cell.assert_sound();
}

#[test]
fn a_rolling_restart_keeps_a_lease_although_nobody_is_left_to_repeat_the_release_before_it() {
    let (cell, guard) = roll(4);
    assert!(guard.is_held() && cell.judge().losses == 0, "lost with two of three up");
    cell.assert_sound();
}

#[test]
fn a_heal_that_comes_after_the_release_all_confirmed_keeps_nobody_out() {
    let mut cell = cell(&long(34));
    // Host 2 misses the grant.
    cell.world.network.swallowed.insert((0, 2));
    let guard = cell.lease(0, LONG);
    cell.heal();
    // Host 1 renews for the holder, and what it tells host 2 of that is late.
    cell.block(1, 2);
    let (remote, fence) = (cell.node(1).remote(), guard.fence());
    let renewed = cell.run(1, async move {
        let lease = Name::new(MASTER).expect("a name").into();
        remote.ask(Request::Renew { lease, fence, ttl: LONG }).await
    });
    assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
    cell.run_for(Duration::from_millis(300));
    assert_eq!(cell.run(0, guard.release()), Ok(()));
    cell.run_for(Duration::from_millis(200));
    cell.heal();
    cell.run_for(SECOND);
    cell.kill(0, Presence::Silent);
    let waited = cell.time_to_take(1);
    assert!(waited < SECOND, "{waited:?}");
    cell.assert_sound();
}

/// How long a waiter sleeps on that a release frees the name unheard, out of half a minute.
fn sleeps_on(host: usize) -> Duration {
    let mut cell = cell(&long(35));
    let guard = cell.lease(0, LONG);
    let (waiter, next) = (cell.node(host), Rc::new(RefCell::new(None)));
    let slot = Rc::clone(&next);
    cell.spawn(host, async move {
        *slot.borrow_mut() = Some(waiter.acquire(MASTER, LONG).await.expect("it waits"));
    });
    cell.run_for(SECOND);
    cell.world.network.swallowed.extend((0..3).map(|member| (member, host)));
    let released_at = cell.world.now();
    assert_eq!(cell.run(0, guard.release()), Ok(()));
    cell.run_for(Duration::from_millis(50));
    cell.heal();
    cell.run_while(SECOND * 50, |_| next.borrow().is_none());
    cell.assert_sound();
    Duration::from_nanos(cell.world.now() - released_at)
}

#[test]
fn a_waiter_that_misses_its_wake_up_looks_again_long_before_the_lease_would_have_ended() {
    for host in [2, 3] {
        let slept = sleeps_on(host);
        assert!(slept < SECOND * 5, "host {host}: {slept:?}");
    }
}

/// Whether a request at a node that did not hear of a release is denied because of it. Somebody
/// waits there already, and asked last so long ago.
fn is_denied_by_the_past(waited: Duration, wait: Duration) -> bool {
    let mut cell = cell(&long(36));
    let guard = cell.lease(0, LONG);
    let waiter = cell.node(2);
    cell.spawn(2, async move { drop(waiter.acquire(MASTER, LONG).await) });
    cell.run_for(waited);
    let fence = guard.fence();
    cell.world.network.swallowed.extend([(0, 2), (1, 2)]);
    assert_eq!(cell.run(0, guard.release()), Ok(()));
    cell.heal();
    let node = cell.node(2);
    let answer = cell.run(2, async move { node.acquire(MASTER, TTL).wait(wait).await });
    cell.assert_sound();
    matches!(answer, Err(AcquireError::Held { holder: Some(by), .. }) if by.fence == fence)
}

#[test]
fn nobody_is_denied_because_of_a_tenure_whose_release_was_confirmed_before() {
    let moment = Duration::from_millis(20);
    for (waited, wait) in [(moment, Duration::ZERO), (SECOND, moment), (SECOND, Duration::ZERO)] {
        assert!(!is_denied_by_the_past(waited, wait), "{waited:?} {wait:?}");
    }
}
