//! Semaphores: never more holders than permits, through nodes and clients. Every permit is used.

use std::cell::RefCell;

use paxoslease_holder::block_on;

use super::*;
use crate::TestCell;

const PERMITS: usize = 3;

/// What the holders of permits saw.
#[derive(Default)]
struct Seen {
    holders: usize,
    holders_max: usize,
    /// By worker.
    grants: Vec<u64>,
}

fn setup(seed: u64) -> Setup {
    let names = (1..=PERMITS).map(|number| format!("gpu#{number}")).collect();
    Setup { clients: 2, proposers: 1, shards: 3, names, ..Setup::new(seed, 3) }
}

/// Spawns a worker that takes permits, holds them for a moment, and asks again.
fn spawn_worker(cell: &mut Simulation, host: usize, seen: &Rc<RefCell<Seen>>) {
    let (handle, judge, timer) = (cell.handle(host), cell.judge_handle(), cell.timer());
    let (client, seen) = (cell.next_task(), Rc::clone(seen));
    let worker = seen.borrow().grants.len();
    seen.borrow_mut().grants.push(0);
    cell.spawn(host, async move {
        loop {
            let permit = handle.acquire("gpu", TTL).permits(PERMITS as u64).await;
            let Ok(guard) = permit else { continue };
            let names = judge.borrow().names().to_vec();
            let place = names.iter().position(|name| name == guard.name());
            let place = place.expect("one of the permits");
            let guard = judge.borrow_mut().granted(client, host, place, guard);
            {
                let mut seen = seen.borrow_mut();
                seen.holders += 1;
                seen.holders_max = seen.holders_max.max(seen.holders);
                seen.grants[worker] += 1;
            }
            timer.sleep(Duration::from_millis(5 + 7 * worker as u64 % 40)).await;
            seen.borrow_mut().holders -= 1;
            drop(judge.borrow_mut().return_guard(client, guard));
        }
    });
}

#[test]
fn a_semaphore_never_has_more_holders_than_permits() {
    for seed in 81..85 {
        let setup = setup(seed);
        let (mut cell, seen) = (cell(&setup), Rc::<RefCell<Seen>>::default());
        for worker in 0..setup.hosts() * 3 {
            spawn_worker(&mut cell, worker % setup.hosts(), &seen);
        }
        cell.run_for(SECOND * 20);
        cell.assert_sound();
        let Seen { holders_max, grants, .. } = &*seen.borrow();
        assert_eq!(*holders_max, PERMITS, "all permits are used");
        let (all, least) = (grants.iter().sum::<u64>(), grants.iter().min().copied());
        assert!(least >= Some(all / (8 * grants.len() as u64)), "{grants:?}");
        // Each of 18 workers holds for 25 ms on average, and three hold at a time.
        assert!(all > 20 * 1000 / 25, "{grants:?}");
        (0..setup.hosts()).for_each(|host| cell.end_tasks_of(host));
        cell.run_for(TTL * 2);
        for host in 0..setup.nodes() {
            let status = cell.status(host);
            assert_eq!((status.waiters, status.guards), (0, 0), "{status:?}");
        }
    }
}

#[test]
fn a_permit_is_free_again_when_its_holder_dies() {
    let mut cell = cell(&setup(85));
    let hold = |cell: &mut Simulation, host: usize| {
        let handle = cell.handle(host);
        cell.run(host, async move { handle.acquire("gpu", TTL).permits(2).await })
    };
    let held: Vec<_> = [0, 4].map(|host| hold(&mut cell, host).expect("granted")).into();
    let handle = cell.handle(1);
    let denied =
        cell.run(1, async move { handle.acquire("gpu", TTL).permits(2).wait(SECOND / 10).await });
    assert!(matches!(denied, Err(AcquireError::Held { .. })), "{denied:?}");
    cell.kill(0, Presence::Refusing);
    let next = hold(&mut cell, 1).expect("after the ttl");
    assert_eq!(next.name(), held[0].name());
    assert!(next.fence() > held[0].fence());
    assert!(held[1].is_held());
}

/// Node 2 missed the grant of one permit and the release of the other. The permit that looks free
/// there takes a round, which lasts longer than the wait.
#[test]
fn a_permit_that_only_looks_held_is_granted_after_the_wait() {
    let trip = Duration::from_millis(50);
    let conditions = Conditions { delay: (trip / 2, trip / 2), ..Conditions::PERFECT };
    let mut cell = cell_in(&setup(86), conditions);
    let take = |cell: &mut Simulation, host: usize, wait: Duration| {
        let node = cell.node(host);
        let permit = async move { node.acquire("gpu", TTL * 2).permits(2).wait(wait).await };
        cell.run(host, permit)
    };
    let freed = take(&mut cell, 0, trip).expect("granted");
    cell.run_for(trip);
    cell.world.network.swallowed.insert((0, 1));
    let kept = take(&mut cell, 0, trip).expect("granted");
    let name = freed.name().to_owned();
    cell.run(0, freed.release()).expect("confirmed");
    cell.heal();
    let granted = take(&mut cell, 1, trip / 2).expect("it is free");
    assert_eq!(granted.name(), name);
    assert_ne!(kept.name(), name);
}

#[test]
fn a_waiter_gets_one_permit_and_waits_for_no_other() {
    for freed in [1, 2] {
        let cell = TestCell::new(1);
        let acquire = || cell.node(1).try_acquire("gpu", TTL).permits(2).blocking();
        let waiters = || block_on(cell.node(1).status()).expect("it runs").waiters;
        let mut held = vec![acquire().expect("granted"), acquire().expect("granted")];
        let node = cell.node(1);
        let waiter = std::thread::spawn(move || node.acquire("gpu", TTL).permits(2).blocking());
        let is_waiting = (0..1_000_000).any(|_| {
            std::thread::yield_now();
            waiters() == 2
        });
        assert!(is_waiting);
        // Both permits become free in the same turn of the node.
        cell.pause(1);
        held.truncate(2 - freed);
        cell.resume(1);
        let kept = waiter.join().expect("no panic").expect("granted");
        assert_eq!(waiters(), 0, "{freed}");
        match acquire() {
            Ok(other) => assert_ne!((other.name(), freed), (kept.name(), 1)),
            Err(error) => assert_eq!(freed, 1, "{error}"),
        }
    }
}

#[test]
fn a_wait_for_a_permit_outlasts_the_loss_of_a_majority() {
    let mut cell = cell(&setup(86));
    [1, 2].into_iter().for_each(|host| cell.pause(host));
    let (handle, name) = (cell.handle(0), Rc::<RefCell<Option<String>>>::default());
    let granted = Rc::clone(&name);
    cell.spawn(0, async move {
        let permit = handle.acquire("gpu", TTL).permits(2).wait(SECOND * 20).await;
        *granted.borrow_mut() = permit.ok().map(|guard| guard.name().to_owned());
    });
    cell.run_for(SECOND * 7);
    assert_eq!(*name.borrow(), None);
    [1, 2].into_iter().for_each(|host| cell.resume(host));
    cell.run_for(SECOND * 10);
    assert!(name.borrow().is_some());
}
