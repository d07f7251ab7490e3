//! What a restarted node may do.

use std::time::Duration;

use paxoslease_core::{Cell, Drift, NodeId, Ttl};
use paxoslease_sim::{ClientId, Clock, PaxosLease, Process, Setup, World};

const SECOND: Duration = Duration::from_secs(1);
const MAX_LEASE: Duration = Duration::from_secs(60);

/// Three nodes, and a client that holds a lease of ten seconds.
fn held() -> (World<PaxosLease>, ClientId) {
    let nodes = [1, 2, 3].map(|id| NodeId::new(id).expect("an id"));
    let max_lease = Ttl::from_duration(MAX_LEASE).expect("in bounds");
    let cell = Cell::new(&nodes, max_lease, Drift::NONE).expect("valid");
    let mut world = World::new(PaxosLease::default(), Setup::quiet(cell));
    let holder = world.add_client(Clock::perfect(), 0, None);
    world.acquire(holder, 1, 10 * SECOND, Duration::ZERO);
    world.run_for(SECOND);
    assert!(world.believes(holder));
    (world, holder)
}

fn quarantine(world: &World<PaxosLease>, node: u16) -> Duration {
    let now = paxoslease_core::Instant::from_nanos(world.now().0);
    let until = world.process(node).and_then(|process| process.quarantine_until(now));
    until.map_or(Duration::ZERO, |until| until.since(now))
}

fn has_lease(world: &World<PaxosLease>, node: u16) -> bool {
    world.view(node, 0).is_some_and(|view| view.accepted.is_some())
}

#[test]
fn a_crashed_node_is_silent_for_its_longest_accepted_ttl() {
    let (mut world, _) = held();
    world.crash(3);
    world.start(3);
    assert_eq!(quarantine(&world, 3), 10 * SECOND);
    assert!(!has_lease(&world, 3));
}

#[test]
fn a_snapshot_restores_leases_at_once_and_only_once() {
    let (mut world, _) = held();
    world.stop(3);
    assert!(world.disk(3).is_some_and(|disk| disk.snapshot.is_some()));
    world.start(3);
    assert!(world.disk(3).is_some_and(|disk| disk.snapshot.is_none()));
    assert_eq!(quarantine(&world, 3), Duration::ZERO);
    assert!(has_lease(&world, 3));
    world.crash(3);
    world.start(3);
    assert_eq!(quarantine(&world, 3), 10 * SECOND);
}

#[test]
fn a_node_stopped_in_quarantine_is_quarantined_again() {
    let (mut world, _) = held();
    world.crash(3);
    world.start(3);
    world.run_for(5 * SECOND);
    world.stop(3);
    assert!(world.disk(3).is_some_and(|disk| disk.snapshot.is_none()));
    world.start(3);
    assert_eq!(quarantine(&world, 3), 10 * SECOND);
}

#[test]
fn a_node_that_lost_its_disk_is_silent_for_max_lease() {
    let (mut world, holder) = held();
    world.crash(3);
    world.lose_disk(3);
    world.start(3);
    assert_eq!(quarantine(&world, 3), MAX_LEASE);
    let waiter = world.add_client(Clock::perfect(), 0, None);
    world.acquire(waiter, 1, 10 * SECOND, 30 * SECOND);
    world.run_for(12 * SECOND);
    assert!(world.believes(waiter), "clients are served by the others meanwhile");
    assert!(world.tenure(waiter) > world.tenure(holder));
    assert_eq!(world.violations(), []);
}

#[test]
fn a_lease_survives_a_rolling_restart() {
    let (mut world, holder) = held();
    for node in 1..=3 {
        world.crash(node);
        world.start(node);
        for _ in 0..15 {
            world.renew(holder, node % 3 + 1, 10 * SECOND);
            world.run_for(SECOND);
            assert!(world.believes(holder), "node {node} came back");
        }
        assert!(has_lease(&world, node), "node {node} was healed");
    }
    assert_eq!(world.grants(holder), 1);
    assert_eq!(world.violations(), []);
}
