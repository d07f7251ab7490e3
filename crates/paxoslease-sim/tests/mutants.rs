//! Tests of the checks: with one rule of the protocol switched off, the simulator must find harm.
//!
//! The exhaustive checker covers the rules that only long exchanges among three acceptors break.
//! Clocks, disks and clients are covered here.

use std::time::Duration;

use paxoslease_core::{Cell, Drift, NodeId, Rule, Rules, Ttl};
use paxoslease_sim::{
    Check, ClientId, Clock, Faults, Options, PaxosLease, Setup, Violation, World, run_with,
};

/// The first violation found with one of the seeds.
fn harm(rule: Rule) -> Option<Violation> {
    let algorithm = PaxosLease { rules: Rules::without(rule), ..PaxosLease::default() };
    let profiles = [Faults::Hostile, Faults::Swarm, Faults::Crashes];
    let runs = (0..150).flat_map(|seed| profiles.map(|faults| (seed, faults)));
    runs.into_iter().find_map(|(seed, faults)| {
        let options = Options { faults, ..Options::default() };
        run_with(algorithm, seed, &options).violations.into_iter().next()
    })
}

fn must_be_caught(rules: &[Rule]) {
    for rule in rules {
        assert!(harm(*rule).is_some(), "nothing found without {rule:?}");
    }
}

#[test]
fn acceptors_without_a_rule_are_caught() {
    must_be_caught(&[
        Rule::ProposeRefusesForeign,
        Rule::ProposeRaisesPromised,
        Rule::RenewKeepsLater,
        Rule::ReleaseMatchesTenure,
        Rule::ReclaimFoldsIntoFloor,
        Rule::RenewTtlIsBounded,
    ]);
}

#[test]
fn proposers_without_a_rule_are_caught() {
    must_be_caught(&[
        Rule::AcceptsAreDistinct,
        Rule::VoidBeforeUndo,
        Rule::HealOnlyAfterMajority,
        Rule::FailedRenewalIsNotUndone,
        Rule::AbandonReleasesFreshOnly,
        Rule::RenewalHasFreshBallot,
        Rule::QuorumIsMajority,
    ]);
}

#[test]
fn holders_without_a_rule_are_caught() {
    must_be_caught(&[
        Rule::ReleaseDropsBeliefFirst,
        Rule::ReleasedTenureIsNeverUsed,
        Rule::BeliefKeepsDriftMargin,
        Rule::WaitedIsShrunkByDrift,
    ]);
}

#[test]
fn restarts_without_a_rule_are_caught() {
    must_be_caught(&[
        Rule::QuarantineCoversLongestTtl,
        Rule::LeaseCeilingCountsRenewals,
        Rule::LeaseCeilingKeptInQuarantine,
        Rule::SnapshotIsUsedOnce,
        Rule::NoSnapshotFromQuarantine,
        Rule::CounterStartsAtCeiling,
        Rule::FloorStartsAtCeiling,
    ]);
}

const PPM: i32 = 20_000;
const SECOND: Duration = Duration::from_secs(1);

/// Three nodes whose clocks run as fast as the cell allows.
fn fast_cell(rules: Rules) -> World<PaxosLease> {
    let nodes = [1, 2, 3].map(|id| NodeId::new(id).expect("an id"));
    let granule = Duration::from_nanos(1);
    let drift = Drift::new(PPM as u32, granule).expect("in bounds");
    let cell = Cell::new(&nodes, Ttl::from_millis(60_000).expect("not zero"), drift);
    let clocks = vec![Clock::new(7 * SECOND, PPM, granule); 3];
    let setup = Setup { clocks, ..Setup::quiet(cell.expect("valid")) };
    World::new(PaxosLease { rules, ..PaxosLease::default() }, setup)
}

fn client(world: &mut World<PaxosLease>, ppm: i32) -> ClientId {
    world.add_client(Clock::new(SECOND, ppm, Duration::from_nanos(1)), 0, None)
}

/// A client whose clock runs as slowly as the cell allows.
fn slow_client(world: &mut World<PaxosLease>) -> ClientId {
    client(world, -PPM)
}

/// A slow holder and fast acceptors; another client waits until the lease expires.
fn expiry(rules: Rules, holder_ppm: i32) -> World<PaxosLease> {
    let mut world = fast_cell(rules);
    let (holder, waiter) = (client(&mut world, holder_ppm), slow_client(&mut world));
    world.acquire(holder, 1, 10 * SECOND, Duration::ZERO);
    world.run_for(SECOND);
    assert!(world.believes(holder));
    world.acquire(waiter, 2, 10 * SECOND, 30 * SECOND);
    world.run_for(12 * SECOND);
    assert!(world.believes(waiter) && !world.believes(holder));
    world
}

/// A slow client waits long at a fast node and is granted a short lease; another client waits for
/// its end.
fn long_wait(rules: Rules) -> World<PaxosLease> {
    let mut world = fast_cell(rules);
    let first = slow_client(&mut world);
    let (second, third) = (slow_client(&mut world), slow_client(&mut world));
    world.acquire(first, 1, 40 * SECOND, Duration::ZERO);
    world.run_for(SECOND / 10);
    world.acquire(second, 1, SECOND, 60 * SECOND);
    world.run_for(20 * SECOND);
    world.release(first, 1);
    world.run_for(SECOND / 10);
    assert_eq!(world.grants(second), 1);
    world.acquire(third, 2, SECOND, 60 * SECOND);
    world.run_for(SECOND + SECOND / 20);
    assert_eq!(world.grants(third), 1);
    world
}

fn has_two_holders(world: &World<PaxosLease>) -> bool {
    world.violations().iter().any(|violation| violation.check == Check::OneHolder)
}

#[test]
fn without_the_drift_margin_two_hold_when_a_lease_expires() {
    assert_eq!(expiry(Rules::ALL, -PPM).violations(), []);
    assert!(has_two_holders(&expiry(Rules::without(Rule::BeliefKeepsDriftMargin), -PPM)));
}

#[test]
fn without_shrinking_the_wait_two_hold_after_a_long_one() {
    assert_eq!(long_wait(Rules::ALL).violations(), []);
    assert!(has_two_holders(&long_wait(Rules::without(Rule::WaitedIsShrunkByDrift))));
}

#[test]
fn clocks_beyond_the_drift_bound_cause_violations() {
    // The checks can fail for clocks too: this one drifts three times as much as the cell allows.
    assert!(has_two_holders(&expiry(Rules::ALL, -3 * PPM)));
}

#[test]
fn durable_leases_without_a_rule_are_caught() {
    must_be_caught(&[Rule::HeldRefusesPropose, Rule::StoreObeysPromise, Rule::DropNeedsMajority]);
}
