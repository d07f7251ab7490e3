//! What users of a node rely on, with real nodes on loopback sockets.

mod cell;

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use paxoslease_node::block_on;
use paxoslease_node::{
    AcquireError, AskError, Change, LeaseGuard, LeaseState, Node, ReleaseError, Role,
};

const TTL: Duration = Duration::from_secs(5);

fn one_shard(config: paxoslease_node::Config) -> paxoslease_node::Config {
    config.shards(1)
}

#[test]
fn a_lease_is_held_by_one_and_moves_on_release() {
    let cell = cell::start(3, one_shard);
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
fn a_waiter_is_granted_when_the_holder_lets_go_without_a_word() {
    let cell = cell::start(3, one_shard);
    let lease = cell.nodes[0].acquire("x", TTL).blocking().expect("granted");
    let node = cell.nodes[1].clone();
    let waiter = std::thread::spawn(move || node.acquire("x", TTL).blocking());
    while block_on(cell.nodes[1].status()).expect("runs").waiters == 0 {
        std::thread::yield_now();
    }
    let fence = lease.fence();
    drop(lease);
    let next = waiter.join().expect("no panic").expect("granted");
    assert!(next.is_held() && next.fence() > fence);
}

#[test]
fn names_are_spread_over_shards_that_connect_to_their_likes() {
    let cell = cell::start(3, |config| config.shards(3));
    let acquired = (0..50).map(|number| {
        let name = format!("jobs/{number}");
        cell.nodes[number % 3].acquire(&name, TTL).blocking().expect("granted")
    });
    let leases: Vec<LeaseGuard> = acquired.collect();
    let status = block_on(cell.nodes[0].status()).expect("runs");
    assert!(status.ready && status.peers.iter().all(|peer| peer.up), "{status:?}");
    // A majority has each; the third may still be on its way.
    assert!(status.leases <= 50 && leases.iter().all(LeaseGuard::is_held));
}

#[test]
fn a_proposer_takes_leases_without_a_vote() {
    let cell = cell::start(3, |config| config.shards(2));
    let config = cell::config(&cell.addresses, 7).role(Role::Proposer).shards(2);
    let proposer = Node::start_blocking(config).expect("starts");
    block_on(proposer.ready()).expect("reaches a majority");
    let lease = proposer.acquire("x", TTL).blocking().expect("granted");
    assert!(cell.nodes[0].try_acquire("x", TTL).blocking().is_err());
    lease.release_blocking().expect("released");
    assert!(cell.nodes[0].try_acquire("x", TTL).blocking().is_ok());
    let status = block_on(proposer.status()).expect("runs");
    assert_eq!((status.role, status.leases), (Role::Proposer, 0));
}

#[test]
fn an_acquire_whose_future_is_dropped_leaves_nothing_behind() {
    let cell = cell::start(3, one_shard);
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
    // Whatever the dropped futures had got, a patient asker gets it.
    let lease = cell.nodes[1].acquire("x", TTL).blocking().expect("granted");
    assert!(lease.is_held());
}

#[test]
fn bad_wishes_are_refused_with_their_reason() {
    let cell = cell::start(1, one_shard);
    let node = &cell.nodes[0];
    let refuse = |name: &str, ttl| node.try_acquire(name, ttl).blocking().expect_err("refused");
    assert!(matches!(refuse("", TTL), AcquireError::Ask(AskError::Name(_))));
    let long = "n".repeat(513);
    assert!(matches!(refuse(&long, TTL), AcquireError::Ask(AskError::Name(_))));
    assert!(matches!(refuse("x", Duration::from_millis(49)), AcquireError::Ttl(_)));
    let too_long = refuse("x", Duration::from_secs(61)).to_string();
    assert!(too_long.contains("max_lease of 60s"), "{too_long}");
    let holder = "h".repeat(257);
    let refused = node.try_acquire("x", TTL).holder(&holder).blocking().expect_err("refused");
    assert!(matches!(refused, AcquireError::Holder(_)));
}

#[test]
fn without_a_majority_nothing_is_granted_and_what_is_held_is_lost_in_time() {
    let cell = cell::start(3, one_shard);
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
    assert!(!block_on(cell.nodes[0].status()).expect("runs").ready);
}

#[test]
fn a_guard_renews_itself_for_as_long_as_it_lives() {
    let cell = cell::start(3, one_shard);
    let ttl = Duration::from_secs(1);
    let lease = cell.nodes[0].acquire("x", ttl).blocking().expect("granted");
    let node = &cell.nodes[1];
    let wait = 3 * ttl;
    let refused = node.acquire("x", TTL).wait(wait).blocking().expect_err("held all along");
    assert!(
        matches!(refused, AcquireError::Held { holder: Some(by), .. } if by.fence == lease.fence())
    );
    assert!(lease.is_held());
}

#[test]
fn a_watcher_sees_leases_come_and_go() {
    let cell = cell::start(3, one_shard);
    let mut watch = cell.nodes[1].watch("jobs/");
    // Answered after the watch was begun, in the same queue.
    block_on(cell.nodes[1].status()).expect("runs");
    let ignored = cell.nodes[0].acquire("other", TTL).blocking().expect("granted");
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
fn a_node_that_leaves_hands_over_and_turns_away() {
    let cell = cell::start(3, one_shard);
    let lease = cell.nodes[0].acquire("x", TTL).blocking().expect("granted");
    let held = cell.nodes[1].acquire("y", TTL).blocking().expect("granted");
    let node = cell.nodes[0].clone();
    let waiter = std::thread::spawn(move || node.acquire("y", TTL).blocking());
    while block_on(cell.nodes[0].status()).expect("runs").waiters == 0 {
        std::thread::yield_now();
    }
    cell.nodes[0].shutdown_blocking();
    assert_eq!(lease.state(), LeaseState::Lost);
    assert_eq!(
        waiter.join().expect("no panic").expect_err("turned away"),
        AskError::Stopped.into()
    );
    let stopped = cell.nodes[0].try_acquire("z", TTL).blocking().expect_err("stopped");
    assert_eq!(stopped, AskError::Stopped.into());
    let taken = cell.nodes[1].try_acquire("x", TTL).blocking().expect("handed over");
    assert!(taken.fence() > lease.fence() && held.is_held());
    // A second one finds nothing left to do.
    cell.nodes[0].shutdown_blocking();
}

#[test]
fn a_node_that_leaves_hands_over_all_it_holds() {
    let cell = cell::start(3, one_shard);
    let names: Vec<String> = (0..20_000).map(|number| format!("n{number}")).collect();
    let take = |name: &String| cell.nodes[0].acquire(name, TTL).blocking().expect("granted");
    let leases: Vec<LeaseGuard> = names.iter().map(take).collect();
    cell.nodes[0].shutdown_blocking();
    assert!(leases.iter().all(|lease| lease.state() == LeaseState::Lost));
    for name in &names {
        drop(cell.nodes[1].try_acquire(name, TTL).blocking().expect("handed over"));
    }
}

#[test]
fn a_start_that_nobody_waits_for_leaves_nothing_running() {
    let folder = std::env::temp_dir().join(format!("paxoslease-left-{}", std::process::id()));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let config = paxoslease_node::Config::new("test", 1).peer(1, &address).data_dir(&folder);
    {
        let mut starting = pin!(Node::start_on(config.clone(), listener));
        let mut context = Context::from_waker(Waker::noop());
        assert!(starting.as_mut().poll(&mut context).is_pending(), "a thread does it");
    }
    // The folder and the port are free again, sooner or later.
    let node = loop {
        match Node::start_blocking(config.clone()) {
            Ok(node) => break node,
            Err(
                paxoslease_node::StartError::Stable(_) | paxoslease_node::StartError::Listen { .. },
            ) => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    };
    node.shutdown_blocking();
    std::fs::remove_dir_all(&folder).expect("nobody uses it");
}

#[test]
fn handles_and_futures_can_go_anywhere() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn movable<T: Send>(_: &T) {}
    anywhere::<Node>();
    anywhere::<LeaseGuard>();
    anywhere::<paxoslease_node::Watch>();
    anywhere::<AcquireError>();
    anywhere::<paxoslease_node::StartError>();
    let cell = cell::start(1, one_shard);
    let acquiring = cell.nodes[0].acquire("x", TTL).into_future();
    movable(&acquiring);
    movable(&cell.nodes[0].shutdown());
    movable(&cell.nodes[0].status());
    let lease = block_on(acquiring).expect("granted");
    movable(&lease.lost());
    movable(&lease.release());
}
