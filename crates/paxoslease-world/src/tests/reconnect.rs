//! What is sent over the next connection after one has died.

use super::*;
use paxoslease_core::{Message, Reply, Request};
use paxoslease_wire::{FrameKind, FrameReader, split_frame};

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
