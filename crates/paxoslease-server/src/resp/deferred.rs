//! What goes on in the next turn, because the steps of a turn were used up: messages to
//! subscribers, operations of the Redis dialect, and answers that lead to such work.
//!
//! Messages keep their order, and have half of the steps. What else waits has its own order.

use std::sync::atomic::Ordering;

use paxoslease_node::Limit;
use paxoslease_node::front::{Answer, FrontEnd as _, Label, ShardHandle};

use super::pending::RequestId;
use super::{Sessions, Turn, redis};

/// Work that found the steps of a turn used up.
pub(super) enum Deferred {
    /// An operation of the Redis dialect that has not begun.
    Operation(redis::OperationId),
    /// The answer to a request of an operation, or a page of a list of keys.
    Answer(RequestId, Answer),
}

impl Sessions {
    /// A message was published.
    pub(super) fn noted(&mut self, shard: &mut ShardHandle<'_>, label: &Label) {
        if self.common.subscribers.is_empty() {
            return;
        }
        if self.common.notes.len() == redis::NOTES_MAX {
            return self.common.tally.limited(shard.now(), Limit::Watch, 1);
        }
        let note = redis::Note { label: label.clone(), session: 0, channel: 0 };
        self.common.notes.push_back(note);
        self.tell_notes(shard);
    }

    /// Tells messages to the subscribers of their channels, in order, as far as the steps of this
    /// turn go.
    fn tell_notes(&mut self, shard: &mut ShardHandle<'_>) {
        while !self.common.steps.are_half_spent()
            && let Some(mut note) = self.common.notes.pop_front()
        {
            let Some(subscriber) = self.common.subscribers.range(note.session..).next().copied()
            else {
                // All were told.
                continue;
            };
            if note.session != subscriber {
                note.session = subscriber;
                note.channel = 0;
            }
            let turn = &mut Turn { common: &mut self.common, shard };
            let is_told = match self.sessions.get_mut(subscriber) {
                Some(Some(session)) => session.message(turn, &mut note),
                Some(None) | None => true,
            };
            if is_told {
                note.session += 1;
                note.channel = 0;
            }
            self.common.notes.push_front(note);
        }
    }

    /// A turn has new steps: goes on with what waited for them.
    pub(super) fn go_on(&mut self, shard: &mut ShardHandle<'_>) {
        let used = self.common.steps.begin();
        self.common.server.turn_steps_max.fetch_max(used, Ordering::Relaxed);
        self.tell_notes(shard);
        // What is deferred again waits for the turn after this one.
        for _ in 0..self.common.deferred.len() {
            if self.common.steps.are_spent() {
                break;
            }
            match self.common.deferred.pop_front() {
                Some(Deferred::Operation(id)) => {
                    self.with_operation(shard, id, |session, turn| session.begin(turn, id));
                }
                Some(Deferred::Answer(id, answer)) => self.answered(shard, id as u64, answer),
                None => break,
            }
        }
    }
}
