//! Many waiters for one name: each has its turn once, and none is woken in vain.

use crate::harness::{Cell, Client, fence, until};

const NODES: usize = 3;
const WAITERS: usize = 100;
/// What one hand-over may cost the whole cell, twice what it does on a busy machine. Messages are
/// counted where they leave and where they arrive. If all waiters were woken, there would be
/// hundreds; if all nodes tried at once, there would be a round of each.
const MESSAGES_MAX: f64 = 60.0;
const ROUNDS_MAX: f64 = 2.5;

/// Waits for the turn of this client, releases the lease, and returns its fence.
fn take_turn(waiter: &mut Client) -> u64 {
    let fence = fence(&waiter.next());
    waiter.release("x", fence);
    fence
}

#[test]
fn a_hundred_waiters_have_their_turn_in_order_without_a_herd() {
    let cell = Cell::three();
    let mut holder = cell[0].client();
    let first = holder.acquire("x");
    let mut waiters = Vec::new();
    for n in 0..WAITERS {
        let (node, place) = (n % NODES, n / NODES);
        let mut waiter = cell[node].client();
        waiter.send("LEASE.ACQUIRE x 60000 WAIT 60000");
        cell[node].wait_for_waiters("x", place as u64 + 1);
        waiters.push((node, place, waiter));
    }
    let mut turns: Vec<(u64, usize, usize)> = std::thread::scope(|scope| {
        let turns: Vec<_> = waiters
            .iter_mut()
            .map(|(node, place, waiter)| scope.spawn(move || (take_turn(waiter), *node, *place)))
            .collect();
        holder.release("x", first);
        turns.into_iter().map(|turn| turn.join().expect("had its turn")).collect()
    });
    // Fences grow with every tenure, so they tell the order.
    turns.sort_unstable();
    for node in 0..NODES {
        let places = turns.iter().filter(|turn| turn.1 == node).map(|turn| turn.2);
        let asked = (0..WAITERS).filter(|n| n % NODES == node).count();
        assert_eq!(places.collect::<Vec<_>>(), (0..asked).collect::<Vec<_>>(), "of node {node}");
    }

    let sum = |series: &str| (0..NODES).map(|node| cell[node].metric(series)).sum::<f64>();
    let grants = WAITERS as f64 + 1.0;
    let granted = "paxoslease_acquires_total{result=\"granted\"}";
    until("all grants are counted", || sum(granted) >= grants);
    assert_eq!(sum(granted), grants, "exactly once");
    let messages = sum("paxoslease_messages_total") / grants;
    let rounds = sum("paxoslease_rounds_total") / grants;
    assert!(messages <= MESSAGES_MAX, "{messages} messages for a hand-over");
    assert!(rounds <= ROUNDS_MAX, "{rounds} rounds for a hand-over");
}
