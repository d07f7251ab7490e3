//! Members that are far apart: leases are granted and kept at every round trip up to 300 ms.

use super::*;

const TRIPS_MILLIS: [u64; 9] = [1, 20, 50, 60, 80, 104, 150, 200, 300];
const LONG: Duration = Duration::from_secs(10);

/// Messages with this round trip, a tenth of it jitter.
fn apart(trip: Duration) -> Conditions {
    Conditions { delay: (trip * 9 / 20, trip * 11 / 20), ..Conditions::PERFECT }
}

/// Two writes in a hundred, and all that follow them, arrive as late as a retransmission.
fn lossy(trip: Duration) -> Conditions {
    Conditions { spike: (20, (trip + Duration::from_millis(200)) * 2), ..apart(trip) }
}

fn far(seed: u64) -> Setup {
    Setup { max_lease: LONG, ..Setup::new(seed, 3) }
}

/// A lone holder keeps a lease of ten seconds for a minute after the conditions changed.
fn assert_kept(conditions: Conditions) {
    let mut cell = cell(&far(71));
    let guard = cell.lease(0, LONG);
    let changed_at = cell.world.now();
    cell.world.network.conditions = conditions.clone();
    cell.run_while(SECOND * 60, |_| guard.is_held());
    cell.assert_sound();
    let kept = Duration::from_nanos(cell.world.now() - changed_at);
    assert!(kept >= SECOND * 59, "{conditions:?}: lost after {kept:?}");
}

#[test]
fn a_lone_holder_keeps_its_lease_at_every_round_trip() {
    TRIPS_MILLIS.map(Duration::from_millis).into_iter().for_each(|trip| assert_kept(apart(trip)));
}

#[test]
fn a_lone_holder_keeps_its_lease_where_much_comes_late() {
    [50, 150, 300].map(Duration::from_millis).into_iter().for_each(|trip| assert_kept(lossy(trip)));
}

#[test]
fn a_free_name_is_granted_within_a_few_round_trips() {
    for trip in TRIPS_MILLIS.map(Duration::from_millis) {
        let mut cell = cell_in(&far(72), apart(trip));
        for round in 0..6 {
            let (node, name) = (cell.node(round % 3), format!("jobs/{round}"));
            let asked_at = cell.world.now();
            let granted = cell.run(0, async move { node.try_acquire(&name, LONG).await });
            let waited = Duration::from_nanos(cell.world.now() - asked_at);
            assert!(granted.is_ok(), "round trip {trip:?}: {granted:?} after {waited:?}");
            assert!(waited <= trip * 3, "round trip {trip:?}: {waited:?}");
        }
        cell.assert_sound();
    }
}

fn share(conditions: Conditions) -> Sharing {
    let mut cell = cell_in(&far(73), conditions);
    // A split vote takes some round trips to resolve, and the first holder renews meanwhile.
    let sharing = cell.share_after(SECOND * 15, &[0, 1, 2], Workers::GREEDY, SECOND * 60);
    cell.assert_sound();
    sharing
}

#[test]
fn three_contenders_take_turns_at_every_round_trip() {
    for trip in TRIPS_MILLIS.map(Duration::from_millis) {
        let sharing = share(apart(trip));
        // A hand-over takes eight round trips on average at most.
        let least = (SECOND * 60).div_duration_f64(trip * 8 + Duration::from_millis(20)) as u64;
        let grants = &sharing.grants;
        assert!(sharing.hand_overs() >= least, "round trip {trip:?}: {grants:?}, want {least}");
        assert_fair(&sharing, trip);
    }
}

#[test]
fn three_contenders_make_progress_where_much_comes_late() {
    let trip = Duration::from_millis(300);
    let sharing = share(lossy(trip));
    let grants = &sharing.grants;
    assert!(sharing.hand_overs() >= 10 && grants.iter().all(|count| *count > 0), "{grants:?}");
}
