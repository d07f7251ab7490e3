//! What users of a node rely on, with real nodes on loopback sockets.

mod cell;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use cell::{Cell, TTL, listen, status, take, until};
use paxoslease_node::{
    AcquireError, AskError, Change, Config, LeaseGuard, LeaseState, Node, StartError, Watch,
    block_on,
};

fn three() -> Cell {
    cell::start(3, |config| config.shards(1))
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

/// Acquires many names at once, for so long that no lease expires in this test.
fn take_all(node: &Node, names: &[String]) -> Vec<LeaseGuard> {
    // On a busy machine, the time of a request may be over before the peers answer.
    let take = |name: &String| loop {
        match node.try_acquire(name, Duration::from_secs(60)).blocking() {
            Err(AcquireError::Ask(AskError::NoQuorum(_))) => {}
            taken => return taken,
        }
    };
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
