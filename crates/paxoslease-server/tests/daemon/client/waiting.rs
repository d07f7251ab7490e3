//! Waiting: given up, moved, and with time that counts from the end of the wait (T2).

use std::time::Duration;

use paxoslease_client::LeaseGuard;
use paxoslease_node::block_on;

use super::{TTL, begun, client};
use crate::harness::{Cell, PATIENCE};

#[test]
fn a_lease_that_is_granted_as_its_waiter_gives_up_is_free_again() {
    let cell = Cell::three();
    let (holder, other) = (client(&cell, 0), client(&cell, 1));
    for round in 0..50 {
        // If the last round had left the lease behind, this would fail before its ttl ends.
        let wish = holder.acquire("x", TTL).wait(PATIENCE);
        let held: LeaseGuard = wish.blocking().expect("free again");
        let waits = begun(other.acquire("x", TTL));
        cell[1].wait_for_waiters("x", 1);
        drop(held);
        // Sooner and later, so that either the grant or the end of the wait may be first.
        (0..round % 5).for_each(|_| drop(other.status_blocking()));
        drop(waits);
    }
}

#[test]
fn a_lease_that_was_waited_for_counts_from_the_end_of_the_wait() {
    let cell = Cell::three();
    let (holder, waiter) = (client(&cell, 0), client(&cell, 2));
    let held = holder.acquire("x", TTL).blocking().expect("granted");
    let ttl = Duration::from_secs(1);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.acquire("x", ttl).detached().blocking());
        cell[2].wait_for_waiters("x", 1);
        // The second lease of this name begins when the first one, which is not renewed, ends.
        let longer = ttl + ttl / 10;
        holder.try_acquire("clock", longer).detached().blocking().expect("granted");
        drop(holder.acquire("clock", TTL).blocking().expect("granted"));
        held.release_blocking().expect("confirmed");
        let grant = waits.join().expect("no panic").expect("granted");
        assert!(grant.waited() > ttl, "{:?}", grant.waited());
        assert!(grant.remaining() <= ttl, "{:?}", grant.remaining());
        assert!(grant.ttl() == ttl && grant.is_held(), "it lasts although the wait was longer");
        let next = holder.acquire("x", TTL).blocking().expect("granted");
        assert!(!grant.is_held(), "and is over before another client has it");
        assert!(next.fence() > grant.fence());
    });
}

#[test]
fn waiters_of_a_node_that_stops_wait_at_another() {
    let mut cell = Cell::three();
    let (holder, waiter) = (client(&cell, 2), client(&cell, 0));
    let held = holder.acquire("x", TTL).blocking().expect("granted");
    let waits = begun(waiter.acquire("x", TTL));
    cell[0].wait_for_waiters("x", 1);
    cell.0.remove(0).server.shutdown();
    // The index of the next daemon is 0 now.
    cell[0].wait_for_waiters("x", 1);
    let fence = held.fence();
    held.release_blocking().expect("confirmed");
    assert!(block_on(waits).expect("granted").fence() > fence);
}
