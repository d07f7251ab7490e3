//! A member that missed something comes back, and then another member goes. A majority runs all the
//! time, and serves.

use std::cell::RefCell;

use paxoslease_core::Name;

use super::*;
use paxoslease_holder::AcquireError;
use paxoslease_node::front::{Answer, Request};

const LONG: Duration = Duration::from_secs(30);

fn long_cell(seed: u64) -> Simulation {
    cell(&Setup { max_lease: LONG, proposers: 2, ..Setup::new(seed, 3) })
}

impl Simulation {
    #[track_caller]
    fn release(&mut self, host: usize, guard: LeaseGuard) {
        assert_eq!(self.run(host, guard.release()), Ok(()));
    }

    /// The node of a host is granted the name soon, although a member has died.
    #[track_caller]
    fn assert_free_without(&mut self, dead: usize, asker: usize) {
        self.kill(dead, Presence::Silent);
        let waited = self.time_to_take(asker);
        assert!(waited < SECOND, "asked by host {asker}: {waited:?}");
        self.assert_sound();
    }
}

#[test]
fn a_release_that_a_stopped_member_missed_frees_the_name() {
    for asker in [0, 2, 3] {
        let mut cell = long_cell(31);
        let guard = cell.lease(0, LONG);
        cell.stop(2);
        cell.release(0, guard);
        cell.start(2);
        cell.run_for(SECOND);
        cell.assert_free_without(1, asker);
    }
}

#[test]
fn a_release_that_an_isolated_member_missed_frees_the_name() {
    for asker in [0, 2, 3] {
        let mut cell = long_cell(32);
        let guard = cell.lease(0, LONG);
        cell.isolate(2);
        cell.run_for(SECOND * 3);
        cell.release(0, guard);
        cell.heal();
        cell.run_for(SECOND * 2);
        cell.assert_free_without(1, asker);
    }
}

/// A member that is away still stores a released lease of half a minute when the next lease begins.
/// Then every member is restarted in turn. Host 4 has gone after its release, so it does not repeat
/// the release.
#[test]
fn a_rolling_restart_keeps_a_lease_after_a_missed_release() {
    for releaser in [0, 4] {
        let mut cell = long_cell(33);
        let before = cell.lease(releaser, LONG);
        cell.stop(2);
        cell.release(releaser, before);
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
        let kept = guard.is_held() && cell.judge().losses == 0;
        assert!(kept, "released by host {releaser}: lost with two of three up");
        cell.assert_sound();
    }
}

#[test]
fn a_heal_after_a_confirmed_release_excludes_no_client() {
    let mut cell = long_cell(34);
    // Host 2 misses the grant.
    cell.world.network.swallowed.insert((0, 2));
    let guard = cell.lease(0, LONG);
    cell.heal();
    // Host 1 renews for the holder, and its Heal to host 2 is late.
    cell.block(1, 2);
    let (remote, fence) = (cell.node(1).remote(), guard.fence());
    let renewed = cell.run(1, async move {
        let lease = Name::new(MASTER).expect("a name").into();
        remote.ask(Request::Renew { lease, fence, ttl: LONG }).await
    });
    assert!(matches!(renewed, Answer::Renewed { .. }), "{renewed:?}");
    cell.run_for(Duration::from_millis(300));
    cell.release(0, guard);
    cell.run_for(Duration::from_millis(200));
    cell.heal();
    cell.run_for(SECOND);
    cell.assert_free_without(0, 1);
}

#[test]
fn a_waiter_that_misses_its_wake_up_asks_again_soon() {
    for host in [2, 3] {
        let mut cell = long_cell(35);
        let guard = cell.lease(0, LONG);
        let (waiter, next) = (cell.node(host), Rc::new(RefCell::new(None)));
        let slot = Rc::clone(&next);
        cell.spawn(host, async move {
            *slot.borrow_mut() = Some(waiter.acquire(MASTER, LONG).await.expect("it waits"));
        });
        cell.run_for(SECOND);
        cell.world.network.swallowed.extend((0..3).map(|member| (member, host)));
        let released_at = cell.world.now();
        cell.release(0, guard);
        cell.run_for(Duration::from_millis(50));
        cell.heal();
        cell.run_while(SECOND * 50, |_| next.borrow().is_none());
        cell.assert_sound();
        let slept = Duration::from_nanos(cell.world.now() - released_at);
        assert!(slept < SECOND * 5, "host {host}: {slept:?} of half a minute");
    }
}

/// Whether a node that missed a release denies a request because of it. Another client has waited
/// at the node for `waited`.
fn is_denied_by_the_past(waited: Duration, wait: Duration) -> bool {
    let mut cell = long_cell(36);
    let guard = cell.lease(0, LONG);
    let waiter = cell.node(2);
    cell.spawn(2, async move { drop(waiter.acquire(MASTER, LONG).await) });
    cell.run_for(waited);
    let fence = guard.fence();
    cell.world.network.swallowed.extend([(0, 2), (1, 2)]);
    cell.release(0, guard);
    cell.heal();
    let node = cell.node(2);
    let answer = cell.run(2, async move { node.acquire(MASTER, TTL).wait(wait).await });
    cell.assert_sound();
    matches!(answer, Err(AcquireError::Held { holder: Some(by), .. }) if by.fence == fence)
}

#[test]
fn no_client_is_denied_because_of_a_released_tenure() {
    let moment = Duration::from_millis(20);
    for (waited, wait) in [(moment, Duration::ZERO), (SECOND, moment), (SECOND, Duration::ZERO)] {
        assert!(!is_denied_by_the_past(waited, wait), "{waited:?} {wait:?}");
    }
}
