//! Leases for remote holders, through the handle that daemons use.

use paxoslease_holder::block_on;
use paxoslease_node::front::{Answer, Cursor, Filter, Holder, Name, PageMax, Request};
use paxoslease_node::{Asking, Remote};

use super::*;
use crate::TestCell;

const TTL: Duration = Duration::from_secs(10);

fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("a name")
}

fn acquire(remote: &Remote, what: &str, holder: &str, wait: Duration) -> Asking {
    let lease = (name(what), Holder::new(holder).expect("a holder")).into();
    remote.ask(Request::acquire(lease, TTL, wait))
}

fn take(remote: &Remote, what: &str) -> u64 {
    let answer = block_on(acquire(remote, what, "me", Duration::ZERO));
    let Answer::Granted { tenure, ttl, waited, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((ttl.as_duration(), waited), (TTL, Duration::ZERO));
    tenure.fence()
}

fn renew(remote: &Remote, what: &str, fence: u64) -> Answer {
    block_on(remote.ask(Request::Renew { lease: name(what).into(), fence, ttl: TTL }))
}

fn release(remote: &Remote, what: &str, fence: u64) -> Answer {
    block_on(remote.ask(Request::Release { lease: name(what).into(), fence, is_durable: false }))
}

fn inspect(remote: &Remote, what: &str) -> Answer {
    block_on(remote.ask(Request::Inspect { lease: name(what).into() }))
}

fn list(remote: &Remote, cursor: Cursor, prefix: &str) -> Answer {
    let (prefix, max) = (prefix.into(), PageMax::leases(7));
    block_on(remote.ask(Request::List { cursor, prefix, filter: Filter::ALL, max }))
}

#[test]
fn a_tenure_is_renewed_and_released_through_any_node() {
    let cell = TestCell::new(3);
    let remotes = [1, 2, 3].map(|id| cell.node(id).remote());
    let fence = take(&remotes[0], "x");
    let renewed = renew(&remotes[1], "x", fence);
    assert!(matches!(renewed, Answer::Renewed { ttl, .. } if ttl.as_duration() == TTL));
    let Answer::Held(by) = block_on(acquire(&remotes[2], "x", "", Duration::ZERO)) else {
        panic!("it is held")
    };
    assert_eq!((by.tenure.fence(), by.label.holder().to_string()), (fence, "me".to_owned()));
    let Answer::Inspected(Some(seen)) = inspect(&remotes[2], "x") else { panic!("it is held") };
    assert_eq!(seen.tenure.fence(), fence);
    let released = Answer::Released { held: Some(true), confirmed: true };
    assert_eq!(release(&remotes[2], "x", fence), released);
    assert_eq!(renew(&remotes[0], "x", fence), Answer::NotHeld);
    assert!(take(&remotes[1], "x") > fence);
}

#[test]
fn a_caller_that_stops_waiting_leaves_the_queue() {
    let cell = TestCell::new(3);
    let remote = cell.node(1).remote();
    let fence = take(&remote, "x");
    let waits = acquire(&remote, "x", "", Duration::from_secs(60));
    // The shard queues the acquire before it answers the next request.
    inspect(&remote, "x");
    assert_eq!(block_on(cell.node(1).status()).expect("it runs").waiters, 1);
    drop(waits);
    inspect(&remote, "x");
    assert_eq!(block_on(cell.node(1).status()).expect("it runs").waiters, 0);
    release(&remote, "x", fence);
    assert!(take(&cell.node(2).remote(), "x") > fence, "no client took it meanwhile");
}

#[test]
fn a_grant_that_no_caller_looked_at_is_released() {
    let cell = TestCell::new(3);
    let remote = cell.node(1).remote();
    let unseen = acquire(&remote, "x", "", Duration::ZERO);
    take(&remote, "y");
    inspect(&remote, "x");
    drop(unseen);
    inspect(&remote, "x");
    take(&cell.node(2).remote(), "x");
}

#[test]
fn no_caller_waits_for_a_node_that_is_gone() {
    let cell = TestCell::new(3);
    let (first, second) = (cell.node(1).remote(), cell.node(2).remote());
    take(&second, "x");
    let waits = acquire(&first, "x", "", Duration::from_secs(60));
    cell.kill(1);
    assert_eq!(block_on(waits), Answer::Stopping);
    assert_eq!(inspect(&first, "x"), Answer::Stopping);
    // An empty list would say that nothing is held.
    assert_eq!(list(&first, Cursor::START, ""), Answer::Stopping);
}

#[test]
fn a_lease_granted_to_a_caller_that_has_left_is_released() {
    let mut cell = cell(&Setup { max_lease: TTL, ..Setup::new(31, 1) });
    let remote = cell.node(0).remote();
    drop(acquire(&remote, "x", "", Duration::ZERO));
    cell.run_for(Duration::from_millis(1));
    let next = acquire(&remote, "x", "", Duration::ZERO);
    let answer = cell.run(0, next);
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
}
