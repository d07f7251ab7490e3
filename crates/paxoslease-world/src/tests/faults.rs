//! One fault at a time, and the promises that must hold in spite of it.

use std::cell::RefCell;
use std::io::ErrorKind;

use super::*;
use paxoslease_core::{Message, Reply, Request};
use paxoslease_holder::{AskError, LeaseState, ReleaseError};
use paxoslease_wire::{FrameKind, FrameReader, split_frame};

impl Simulation {
    /// Acquires at a host, lets something go wrong, and releases.
    fn hold_and_release(
        &mut self,
        host: usize,
        fault: impl FnOnce(&mut Self),
    ) -> Result<(), ReleaseError> {
        let (client, guard) = self.hold(host);
        fault(self);
        self.judge().gives_up(client);
        // The task that waits for the loss has the guard too.
        self.end_tasks_of(host);
        let guard = Rc::into_inner(guard).expect("the judge and the task dropped it");
        self.run(host, guard.release())
    }
}

#[test]
fn a_confirmed_release_frees_the_name_at_once() {
    let mut cell = cell(&Setup::new(1, 3));
    for round in 0..10 {
        assert_eq!(cell.hold_and_release(round % 3, |_| ()), Ok(()));
        let next = cell.take((round + 1) % 3, Duration::ZERO).expect("free at once");
        cell.end_tasks_of((round + 1) % 3);
        drop(next);
        cell.run_for(TTL);
    }
    cell.assert_sound();
}

#[test]
fn an_isolated_holder_learns_of_its_loss_before_the_next_grant() {
    let mut cell = cell(&Setup::new(2, 3));
    let (_, guard) = cell.hold(0);
    cell.isolate(0);
    cell.run_for(TTL * 2 / 3 + Duration::from_millis(300));
    assert_eq!(guard.state(), LeaseState::Jeopardy);
    let next = cell.take(1, Duration::MAX).expect("the others are a majority");
    assert_eq!(guard.state(), LeaseState::Lost);
    assert!(next.fence() > guard.fence());
    cell.heal();
    cell.run_for(SECOND * 3);
    assert!(next.is_held());
    cell.assert_sound();
}

#[test]
fn an_isolated_waiter_asks_again_once_it_is_connected() {
    let long = Duration::from_secs(50);
    let mut cell = cell(&Setup { max_lease: long, ..Setup::new(13, 3) });
    let holder = cell.node(0);
    let guard = cell.run(0, async move { holder.acquire("long", long).await }).expect("granted");
    let (waiter, next) = (cell.node(2), Rc::new(RefCell::new(None)));
    let slot = Rc::clone(&next);
    cell.spawn(2, async move {
        let granted = waiter.acquire("long", long).wait(Duration::MAX).await;
        *slot.borrow_mut() = Some(granted.expect("it waits"));
    });
    cell.run_for(SECOND);
    cell.isolate(2);
    let fence = guard.fence();
    assert_eq!(cell.run(0, guard.release()), Ok(()));
    // Until both sides have given up their connections, which would have brought the news.
    cell.run_for(SECOND * 5);
    assert!(next.borrow().is_none(), "it has no majority");
    cell.heal();
    assert!(cell.run_while(SECOND * 2, |_| next.borrow().is_none()), "it does not ask again");
    assert!(next.borrow().as_ref().is_some_and(|next| next.fence() > fence));
    cell.assert_sound();
}

#[test]
fn a_link_blocked_one_way_is_closed_and_costs_no_lease() {
    let mut cell = cell(&Setup::new(3, 3));
    let (_, guard) = cell.hold(0);
    cell.block(0, 1);
    let node = cell.node(1);
    let first = || node.status_shown().expect("it runs").peers.swap_remove(0);
    assert!(cell.run_while(SECOND * 3, |_| first().up), "it was not noticed");
    assert_eq!((first().node, first().problem.as_deref()), (1, Some("it fell silent")));
    cell.run_for(TTL * 3);
    assert!(guard.is_held());
    cell.heal();
    cell.run_for(SECOND * 2);
    assert!(cell.status(1).peers.iter().all(|peer| peer.up));
    cell.assert_sound();
}

#[test]
fn a_holder_paused_beyond_its_lease_wakes_up_without_it() {
    let mut cell = cell(&Setup::new(4, 3));
    let (_, guard) = cell.hold(2);
    cell.pause(2);
    let next = cell.take(0, Duration::MAX).expect("the pause is longer than the lease");
    cell.run_for(TTL);
    cell.resume(2);
    assert!(!guard.is_held() && next.fence() > guard.fence());
    cell.run_for(SECOND);
    assert_eq!(cell.judge().losses, 1, "the task that waited for the loss was told");
    assert!(next.is_held());
    cell.assert_sound();
}

#[test]
fn a_full_disk_is_reported_and_a_majority_serves_without_it() {
    let mut cell = cell(&Setup::new(5, 3));
    cell.world.files(0).expect("it has a disk").set_fault(Some(ErrorKind::StorageFull));
    // The first lease is longer than any before: the ceiling must be raised first (R2).
    let (client, guard) = cell.hold(1);
    cell.run_for(SECOND);
    assert!(cell.status(0).disk_problem.is_some());
    cell.world.files(0).expect("it has a disk").set_fault(None);
    cell.run_for(SECOND);
    assert_eq!(cell.status(0).disk_problem, None);
    assert!(guard.is_held());
    cell.judge().gives_up(client);
    drop(guard);
    cell.assert_sound();
}

#[test]
fn a_peer_dead_on_one_side_is_noticed_well_before_a_lease_ends() {
    let mut cell = cell(&Setup::new(6, 3));
    let (_, guard) = cell.hold(0);
    for pipe in cell.world.network.pipes() {
        cell.world.network.cut(pipe, [true, false]);
    }
    cell.run_for(SECOND * 3 / 2);
    assert!((0..3).all(|host| cell.status(host).peers.iter().all(|peer| peer.up)));
    cell.run_for(TTL * 2);
    assert!(guard.is_held());
    cell.assert_sound();
}

#[test]
fn the_lease_of_a_killed_node_is_free_when_its_time_is_over() {
    for presence in [Presence::Refusing, Presence::Silent] {
        let mut cell = cell(&Setup::new(7, 3));
        let (_, guard) = cell.hold(0);
        let fence = guard.fence();
        drop(guard);
        cell.kill(0, presence);
        let asked_at = cell.world.now();
        let next = cell.take(1, Duration::MAX).expect("two of three are left");
        let waited = Duration::from_nanos(cell.world.now() - asked_at);
        assert!(next.fence() > fence && waited < TTL + SECOND / 2, "{waited:?}");
        cell.assert_sound();
    }
}

#[test]
fn messages_for_a_dead_connection_are_not_sent_over_the_next() {
    let mut cell = cell(&Setup::new(8, 3));
    cell.isolate(2);
    let node = cell.node(2);
    let refused = cell.run(2, async move { node.try_acquire("stale", TTL).await });
    assert!(refused.is_err());
    cell.world.network.conditions.dial_failure = 1000;
    // Long enough for both sides to notice.
    cell.run_for(SECOND * 2);
    cell.heal();
    cell.world.network.conditions.dial_failure = 0;
    let before: Vec<_> = cell.world.network.pipes();
    let mut stale = 0;
    let until = cell.world.now() + 3 * SECOND.as_nanos() as u64;
    let mut fresh = std::collections::BTreeMap::<_, Vec<u8>>::new();
    while cell.world.now() < until {
        cell.world.step();
        for (end, _, bytes) in cell.world.network.tap.as_mut().map(std::mem::take).expect("tapped")
        {
            if !before.contains(&end.pipe) {
                fresh.entry(end).or_default().extend(bytes);
            }
        }
    }
    assert!(!fresh.is_empty(), "it connected anew");
    for bytes in fresh.values() {
        let mut rest = bytes.as_slice();
        while let Ok(Some((frame, after))) = split_frame(rest) {
            rest = after;
            if FrameKind::of(frame) == Ok(FrameKind::Messages) {
                // A node repeats unconfirmed releases to acceptors that were away.
                let messages = FrameReader::new(frame).expect("a frame").flatten();
                stale += messages.filter(|message| !is_release(message)).count();
            }
        }
    }
    assert_eq!(stale, 0, "no client has asked since");
}

fn is_release(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::Request(Request::Release { .. }) | Message::Reply(Reply::Released { .. })
    )
}

#[test]
fn an_unconfirmed_release_still_ends_the_lease() {
    let mut cell = cell(&Setup::new(9, 3));
    let released = cell.hold_and_release(0, |cell| cell.isolate(0));
    assert_eq!(released, Err(ReleaseError::Unconfirmed(AskError::NO_MAJORITY)));
    cell.take(1, Duration::MAX).expect("free when its time is over");
    cell.assert_sound();
}
