//! Nodes that stop or crash, and start again with or without a snapshot.

use super::*;

#[test]
fn a_rolling_restart_with_snapshots_needs_no_quarantine() {
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
fn a_quarantine_covers_the_longest_forgotten_lease() {
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
fn a_lease_outlives_a_crash_of_all_members() {
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
fn a_node_that_stops_releases_its_leases_at_once() {
    let mut cell = cell(&Setup::new(14, 3));
    let (_, guard) = cell.hold(0);
    let fence = guard.fence();
    drop(guard);
    cell.stop(0);
    let next = cell.take(1, Duration::ZERO).expect("released, so free");
    assert!(next.fence() > fence);
    cell.assert_sound();
}
