//! The cost of operations between nodes, in messages and time.

use std::time::Duration;

use paxoslease_core::{Cell, Drift, NodeId, Ttl};
use paxoslease_sim::{Clock, PaxosLease, Setup, World};

const TTL: Duration = Duration::from_secs(10);
const ROUND_TRIP: Duration = Duration::from_millis(2);

fn quiet(members: u16) -> World<PaxosLease> {
    let nodes: Vec<NodeId> = (1..=members).map(|id| NodeId::new(id).expect("an id")).collect();
    let max_lease = Ttl::from_millis(60_000).expect("not zero");
    let cell = Cell::new(&nodes, max_lease, Drift::NONE).expect("valid");
    let mut world = World::new(PaxosLease::default(), Setup::quiet(cell));
    // The first acquire of a ttl waits for the disks; measure later ones.
    let client = world.add_client(Clock::perfect(), 0, None);
    world.acquire(client, 1, TTL, Duration::ZERO);
    world.run_for(Duration::from_secs(1));
    world.release(client, 1);
    world.run_for(Duration::from_secs(1));
    world
}

/// The client has its answer after one round trip, and each other member got one message and sent
/// one.
fn assert_one_round_trip(
    world: &mut World<PaxosLease>,
    members: u16,
    act: impl FnOnce(&mut World<PaxosLease>),
    busy: impl Fn(&World<PaxosLease>) -> bool,
) {
    let (sent, started_at) = (world.counts().messages, world.now());
    act(world);
    assert!(world.run_while(Duration::from_secs(1), busy), "it ends");
    let took = Duration::from_nanos(world.now().0 - started_at.0);
    assert!(took < ROUND_TRIP + ROUND_TRIP / 2, "{members} members: {took:?}");
    world.run_for(Duration::from_secs(1));
    let messages = world.counts().messages - sent;
    assert_eq!(messages, 2 * (u64::from(members) - 1), "{members} members");
    assert_eq!(world.violations(), []);
}

#[test]
fn an_uncontended_acquire_takes_one_round_trip() {
    for members in 1..=9 {
        let mut world = quiet(members);
        let client = world.add_client(Clock::perfect(), 0, None);
        let act = |world: &mut World<_>| world.acquire(client, 1, TTL, Duration::ZERO);
        assert_one_round_trip(&mut world, members, act, |world| !world.believes(client));
    }
}

#[test]
fn a_renewal_takes_one_round_trip() {
    for members in 1..=9 {
        let mut world = quiet(members);
        let client = world.add_client(Clock::perfect(), 0, None);
        world.acquire(client, 1, TTL, Duration::ZERO);
        world.run_for(Duration::from_secs(1));
        let renewals = world.counts().renewals;
        let act = |world: &mut World<_>| world.renew(client, members.min(2), TTL);
        let busy = |world: &World<_>| world.counts().renewals == renewals;
        assert_one_round_trip(&mut world, members, act, busy);
    }
}
