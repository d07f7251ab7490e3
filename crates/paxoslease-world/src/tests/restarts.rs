//! Nodes that go and come back: with and without what they knew.

use super::*;

#[test]
fn a_rolling_restart_with_snapshots_loses_no_lease_and_keeps_no_quarantine() {
    let mut cell = cell(&Setup { proposers: 1, shards: 2, ..Setup::new(11, 3) });
    let (_, guard) = cell.hold(3);
    for _ in 0..3 {
        for host in 0..3 {
            cell.stop(host);
            cell.run_for(SECOND / 4);
            cell.start(host);
            assert_eq!(cell.status(host).quarantine_remaining, Duration::ZERO);
            cell.run_for(SECOND / 2);
        }
    }
    assert!(guard.is_held());
    assert_eq!(cell.judge().losses, 0);
    cell.assert_sound();
}

#[test]
fn after_a_crash_a_node_is_silent_for_the_longest_lease_it_may_have_forgotten() {
    let mut cell = cell(&Setup { proposers: 1, ..Setup::new(12, 3) });
    let (_, guard) = cell.hold(3);
    cell.kill(0, Presence::Refusing);
    cell.start(0);
    let quarantine = cell.status(0).quarantine_remaining;
    assert!(quarantine > TTL - SECOND / 100 && quarantine < TTL * 2, "{quarantine:?}");
    cell.run_for(TTL * 2);
    assert_eq!(cell.status(0).quarantine_remaining, Duration::ZERO);
    assert!(guard.is_held(), "a majority stayed up");
    cell.assert_sound();
}

#[test]
fn when_all_crash_at_once_the_lease_is_kept_until_its_time_is_over() {
    let mut cell = cell(&Setup { proposers: 2, ..Setup::new(13, 3) });
    let (_, guard) = cell.hold(3);
    for host in 0..3 {
        cell.kill(host, Presence::Silent);
    }
    (0..3).for_each(|host| cell.start(host));
    let mut next = None;
    for _ in 0..10 {
        next = next.or_else(|| cell.take(4, Duration::MAX).ok());
    }
    let next = next.expect("quarantines end");
    assert!(!guard.is_held() && next.fence() > guard.fence());
    cell.assert_sound();
}

#[test]
fn a_node_shut_down_hands_its_leases_over_at_once() {
    let mut cell = cell(&Setup::new(14, 3));
    let (_, guard) = cell.hold(0);
    let fence = guard.fence();
    drop(guard);
    cell.stop(0);
    let next = cell.take(1, Duration::ZERO).expect("given back, so free");
    assert!(next.fence() > fence);
    cell.assert_sound();
}
