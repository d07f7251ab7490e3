//! What users of a node rely on, with real nodes on loopback sockets.

mod cell;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use cell::{Cell, TTL, listen, status, take, until};
use paxoslease_node::{
    AcquireError, AskError, Change, Config, LeaseGuard, LeaseState, Node, ReleaseError, Role,
    StartError, Watch, block_on,
};

fn three() -> Cell {
    cell::start(3, |config| config.shards(1))
}

/// A thread that waits for a name which another node holds.
fn waiter(node: &Node, name: &'static str) -> JoinHandle<Result<LeaseGuard, AcquireError>> {
    let waiting = node.clone();
    let waiter = std::thread::spawn(move || waiting.acquire(name, TTL).blocking());
    until("the request waits", || status(node).waiters == 1);
    waiter
}

#[test]
fn a_lease_is_held_by_one_and_moves_on_release() {
    let cell = three();
    block_on(async {
        let lease = cell.nodes[0].acquire("master", TTL).holder("one").await.expect("granted");
        assert!(lease.is_held() && lease.remaining() <= TTL);
        assert_eq!((lease.name(), lease.holder()), ("master", "one"));
        assert_eq!(lease.state(), LeaseState::Held);
        let refused = cell.nodes[1].try_acquire("master", TTL).await.expect_err("held");
        assert!(
            matches!(refused, AcquireError::Held { holder: Some(ref by), .. } if by.holder == "one")
        );
        let seen = cell.nodes[2].inspect("master").await.expect("a quorum").expect("held");
        assert_eq!((seen.fence, seen.holder.as_str()), (lease.fence(), "one"));
        let fence = lease.fence();
        lease.release().await.expect("released");
        let next = cell.nodes[2].acquire("master", TTL).await.expect("free");
        assert!(next.fence() > fence);
    });
}

#[test]
fn a_waiter_is_granted_when_the_guard_of_the_holder_is_dropped() {
    let cell = three();
    let lease = take(&cell.nodes[0], "x");
    let waiter = waiter(&cell.nodes[1], "x");
    let fence = lease.fence();
    drop(lease);
    let next = waiter.join().expect("no panic").expect("granted");
    assert!(next.is_held() && next.fence() > fence);
}

#[test]
fn names_are_spread_over_shards_that_connect_to_each_other() {
    let cell = cell::start(3, |config| config.shards(3));
    let acquired = (0..50).map(|number| take(&cell.nodes[number % 3], &format!("jobs/{number}")));
    let leases: Vec<LeaseGuard> = acquired.collect();
    let status = status(&cell.nodes[0]);
    assert!(status.ready && status.peers.iter().all(|peer| peer.up), "{status:?}");
    // A majority has each lease; the messages to the third may still be on their way.
    assert!(status.leases <= 50 && leases.iter().all(LeaseGuard::is_held));
}

#[test]
fn a_proposer_takes_leases_without_a_vote() {
    let cell = cell::start(3, |config| config.shards(2));
    let proposer = Node::start_blocking(cell.proposer(7).shards(2)).expect("starts");
    block_on(proposer.ready()).expect("reaches a majority");
    let lease = take(&proposer, "x");
    assert!(cell.nodes[0].try_acquire("x", TTL).blocking().is_err());
    lease.release_blocking().expect("released");
    assert!(cell.nodes[0].try_acquire("x", TTL).blocking().is_ok());
    let status = status(&proposer);
    assert_eq!((status.role, status.leases), (Role::Proposer, 0));
}

#[test]
fn an_acquire_whose_future_is_dropped_leaves_nothing_behind() {
    let cell = three();
    for polls in 1..4 {
        let mut acquiring = pin!(cell.nodes[0].acquire("x", TTL).into_future());
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            if let Poll::Ready(granted) = acquiring.as_mut().poll(&mut context) {
                assert!(granted.is_ok());
                break;
            }
        }
    }
    // A lease that a dropped future was granted goes to the next client that waits.
    assert!(take(&cell.nodes[1], "x").is_held());
}

#[test]
fn invalid_requests_are_refused_with_their_reason() {
    let cell = cell::start(1, |config| config.shards(1));
    let node = &cell.nodes[0];
    let refuse = |name: &str, ttl| node.try_acquire(name, ttl).blocking().expect_err("refused");
    for name in ["", &"n".repeat(513)] {
        assert!(matches!(refuse(name, TTL), AcquireError::Ask(AskError::Name(_))));
    }
    assert!(matches!(refuse("x", Duration::from_millis(49)), AcquireError::Ttl(_)));
    let too_long = refuse("x", Duration::from_secs(61)).to_string();
    assert!(too_long.contains("max_lease of 60s"), "{too_long}");
    let holder = "h".repeat(257);
    let refused = node.try_acquire("x", TTL).holder(&holder).blocking().expect_err("refused");
    assert!(matches!(refused, AcquireError::Holder(_)));
}

#[test]
fn without_a_majority_nothing_is_granted_and_leases_are_lost() {
    let cell = three();
    let ttl = Duration::from_millis(600);
    let lease = cell.nodes[0].acquire("x", ttl).blocking().expect("granted");
    cell.nodes[1].shutdown_blocking();
    cell.nodes[2].shutdown_blocking();
    block_on(async {
        assert_ne!(lease.state_other(LeaseState::Held).await, LeaseState::Held);
        lease.lost().await;
        assert!(!lease.is_held() && lease.remaining().is_zero());
        let refused = cell.nodes[0].try_acquire("y", TTL).await.expect_err("no majority");
        assert_eq!(refused, AskError::NO_MAJORITY.into());
        assert!(matches!(lease.release().await, Err(ReleaseError::NotHeld { .. })));
    });
    assert!(!status(&cell.nodes[0]).ready);
}

#[test]
fn a_guard_renews_itself_for_as_long_as_it_lives() {
    let cell = three();
    let ttl = Duration::from_secs(1);
    let lease = cell.nodes[0].acquire("x", ttl).blocking().expect("granted");
    let waiting = cell.nodes[1].acquire("x", TTL).wait(3 * ttl);
    let refused = waiting.blocking().expect_err("held all along");
    assert!(
        matches!(refused, AcquireError::Held { holder: Some(by), .. } if by.fence == lease.fence())
    );
    assert!(lease.is_held());
}

#[test]
fn a_watcher_sees_leases_come_and_go() {
    let cell = three();
    let mut watch = cell.nodes[1].watch("jobs/");
    // The answer comes after the watch has begun, in the same queue.
    status(&cell.nodes[1]);
    let ignored = take(&cell.nodes[0], "other");
    let lease = cell.nodes[0].acquire("jobs/a", TTL).holder("me").blocking().expect("granted");
    let fence = lease.fence();
    lease.release_blocking().expect("released");
    match watch.next_blocking().expect("open") {
        Change::Held(seen) => {
            assert_eq!((seen.name.as_str(), seen.holder.as_str()), ("jobs/a", "me"));
            assert_eq!(seen.fence, fence);
        }
        change => panic!("{change:?}"),
    }
    assert_eq!(watch.next_blocking(), Some(Change::Freed { name: "jobs/a".to_owned() }));
    drop(ignored);
    cell.nodes[1].shutdown_blocking();
    while watch.next_blocking().is_some() {}
}

#[test]
fn a_node_that_stops_releases_its_lease_and_refuses_its_waiter() {
    let cell = three();
    let lease = take(&cell.nodes[0], "x");
    let held = take(&cell.nodes[1], "y");
    let waiter = waiter(&cell.nodes[0], "y");
    cell.nodes[0].shutdown_blocking();
    assert_eq!(lease.state(), LeaseState::Lost);
    let refused = waiter.join().expect("no panic").expect_err("stopped");
    assert_eq!(refused, AskError::Stopped.into());
    let stopped = cell.nodes[0].try_acquire("z", TTL).blocking().expect_err("stopped");
    assert_eq!(stopped, AskError::Stopped.into());
    let taken = cell.nodes[1].try_acquire("x", TTL).blocking().expect("released");
    assert!(taken.fence() > lease.fence() && held.is_held());
    // A second shutdown finds nothing left to do.
    cell.nodes[0].shutdown_blocking();
}

/// Acquires many names at once, for so long that no lease expires in this test.
fn take_all(node: &Node, names: &[String]) -> Vec<LeaseGuard> {
    let take = |name: &String| node.try_acquire(name, Duration::from_secs(60)).blocking();
    let take_some = |names: &[String]| names.iter().map(take).collect::<Result<Vec<_>, _>>();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            names.chunks(100).map(|names| scope.spawn(move || take_some(names))).collect();
        let taken = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        taken.flat_map(|leases| leases.expect("free")).collect()
    })
}

#[test]
fn a_node_that_stops_releases_all_its_leases() {
    let cell = three();
    // More than twice as many as a node releases at a time.
    let names: Vec<String> = (0..10_000).map(|number| format!("n{number}")).collect();
    let leases = take_all(&cell.nodes[0], &names);
    cell.nodes[0].shutdown_blocking();
    assert!(leases.iter().all(|lease| lease.state() == LeaseState::Lost));
    take_all(&cell.nodes[1], &names);
}

#[test]
fn a_start_whose_future_is_dropped_leaves_nothing_running() {
    let folder = std::env::temp_dir().join(format!("paxoslease-left-{}", std::process::id()));
    let (listener, address) = listen();
    let config = Config::new("test", 1).peer(1, &address).data_dir(&folder);
    {
        let mut starting = pin!(Node::start_on(config.clone(), listener));
        let mut context = Context::from_waker(Waker::noop());
        assert!(starting.as_mut().poll(&mut context).is_pending(), "a thread does it");
    }
    let mut started = None;
    until("the folder and the port are free again", || {
        started = match Node::start_blocking(config.clone()) {
            Ok(node) => Some(node),
            Err(StartError::Stable(_) | StartError::Listen { .. }) => None,
            Err(error) => panic!("{error}"),
        };
        started.is_some()
    });
    started.expect("it has started").shutdown_blocking();
    std::fs::remove_dir_all(&folder).expect("no process uses it");
}

#[test]
fn handles_and_futures_can_be_sent_to_other_threads() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn movable<T: Send>(_: &T) {}
    anywhere::<Node>();
    anywhere::<LeaseGuard>();
    anywhere::<Watch>();
    anywhere::<AcquireError>();
    anywhere::<StartError>();
    let cell = cell::start(1, |config| config.shards(1));
    let acquiring = cell.nodes[0].acquire("x", TTL).into_future();
    movable(&acquiring);
    movable(&cell.nodes[0].shutdown());
    movable(&cell.nodes[0].status());
    let lease = block_on(acquiring).expect("granted");
    movable(&lease.lost());
    movable(&lease.release());
}
