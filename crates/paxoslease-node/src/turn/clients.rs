//! The front-end of one shard's thread, and what goes to and fro between it, its shard, the other
//! shards, and callers on other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use paxoslease_core::Instant;

use super::{Mailboxes, Post, ShardSockets, Turn};
use crate::front::{FrontEnd, Outgoing, Waiting};
use crate::request::{Answer, Hint, ReplyTo};

pub(crate) struct Clients<S> {
    /// `None` in an embedded node.
    pub(super) front: Option<Box<dyn FrontEnd>>,
    pub(super) outgoing: Outgoing,
    mailboxes: Mailboxes<S>,
    /// The callers on other threads that wait for answers of this node.
    waiting: Arc<Waiting>,
    /// Lends its memory to answers on their way.
    answers: Vec<(ReplyTo, Answer)>,
    own: u16,
    /// Whether the front-end was told that the node stops. It accepts no more clients then.
    pub(crate) left: bool,
    done: bool,
    /// How many front-ends of this node have not yet told their clients that it stops.
    undone: Arc<AtomicUsize>,
}

impl<S> Clients<S> {
    /// The clients of shard `own`.
    pub(crate) fn new(
        own: u16,
        front: Option<Box<dyn FrontEnd>>,
        mailboxes: Mailboxes<S>,
        waiting: Arc<Waiting>,
        undone: Arc<AtomicUsize>,
    ) -> Self {
        // A node without front-ends has no client to tell.
        undone.fetch_add(usize::from(front.is_some()), Ordering::AcqRel);
        Self {
            front,
            outgoing: Outgoing::new(mailboxes.len()),
            mailboxes,
            waiting,
            answers: Vec::new(),
            own,
            left: false,
            done: false,
            undone,
        }
    }

    pub(crate) fn next_at(&self) -> Instant {
        self.front.as_ref().and_then(|front| front.next_at()).unwrap_or(Instant::MAX)
    }

    /// Whether the front-ends of all shards have told their clients, after the node was told to
    /// leave.
    ///
    /// The shards leave together. A shard that left before the others would leave acquires of
    /// their clients unanswered. It would also leave grants that no client heard of to their ttl,
    /// which the others would have it take back (P8). A shard leaves the others behind once the
    /// node stops to wait for its last releases. That is harmless: its clients were told at once
    /// that the node stops, its pending requests end with its own deadline, and a grant that it
    /// did not hear of ends with its ttl.
    pub(crate) fn are_done(&mut self) -> bool {
        let Some(front) = &self.front else { return true };
        if !self.left {
            return false;
        }
        if !self.done && front.is_done() {
            self.done = true;
            if self.undone.fetch_sub(1, Ordering::AcqRel) == 1 {
                for mailbox in &self.mailboxes {
                    // A shard that did not wait any longer is gone.
                    let _left = mailbox.post(Post::Done);
                }
            }
        }
        self.undone.load(Ordering::Acquire) == 0
    }
}

impl<S: ShardSockets> Turn<'_, S> {
    /// Lets the front-end do what is due. When the node stops, the front-end is told first.
    pub(super) fn tick_clients(&mut self) {
        if self.driver.is_leaving() && !std::mem::replace(&mut self.clients.left, true) {
            self.front(|front, shard| front.leave(shard));
        }
        self.front(|front, shard| front.tick(shard));
    }

    /// Acts on what happened in the shard and hands out answers, until no new request is answered.
    pub(super) fn act_until_quiet(&mut self) {
        loop {
            self.driver.act(self.now);
            let mut answers = std::mem::take(&mut self.clients.answers);
            self.driver.take_answers(&mut answers);
            let is_quiet = answers.is_empty();
            answers.drain(..).for_each(|(to, answer)| self.reply(to, answer));
            self.clients.answers = answers;
            if is_quiet {
                break;
            }
        }
        let (origins, hints) = self.driver.take_hints();
        for origin in origins {
            if origin == self.clients.own {
                self.hinted(&hints);
            } else if let Some(theirs) = self.clients.outgoing.hints.get_mut(usize::from(origin)) {
                theirs.extend(hints.iter().cloned());
            }
        }
    }

    fn reply(&mut self, to: ReplyTo, answer: Answer) {
        if to.origin == self.clients.own {
            self.front(|front, shard| front.answered(shard, to.id, answer));
        } else if to.origin == ReplyTo::REMOTE {
            if let Some((label, tenure)) = self.clients.waiting.answer(to.id, answer) {
                self.driver.give_back(self.now, label.name(), tenure);
            }
        } else if let Some(answers) = self.clients.outgoing.answers.get_mut(usize::from(to.origin))
        {
            answers.push((to.id, answer));
        }
    }

    pub(super) fn hinted(&mut self, hints: &[Hint]) {
        for hint in hints {
            self.front(|front, shard| front.hinted(shard, hint));
        }
    }

    /// Sends to clients, and posts what is for other shards. What is posted to a shard that left is
    /// lost, except for requests: those are refused.
    pub(super) fn flush_clients(&mut self) {
        self.front(|front, shard| front.flush(shard));
        let Clients { outgoing, own, mailboxes, .. } = &mut *self.clients;
        for (shard, command) in self.driver.posts() {
            // A shard that left changes over no more, and the node stops.
            let _left = mailboxes[usize::from(shard)].post(Post::Command(command));
        }
        let watch = outgoing.watch.take();
        for (shard, mailbox) in mailboxes.iter().enumerate() {
            if shard == usize::from(*own) {
                continue;
            }
            if let Some(on) = watch {
                let _left = mailbox.post(Post::Watch { origin: *own, on });
            }
            let requests = std::mem::take(&mut outgoing.requests[shard]);
            if !requests.is_empty()
                && let Err(Post::Requests(requests)) = mailbox.post(Post::Requests(requests))
            {
                // This shard leaves too, and waits for no answer for longer than its own deadline.
                // See `are_done`.
                for (from, _) in requests.iter().filter(|(_, request)| request.wants_answer()) {
                    self.driver.refuse(*from, Answer::Stopping);
                }
            }
            let answers = std::mem::take(&mut outgoing.answers[shard]);
            if !answers.is_empty() {
                let _left = mailbox.post(Post::Answers(answers));
            }
            let hints = std::mem::take(&mut outgoing.hints[shard]);
            if !hints.is_empty() {
                let _left = mailbox.post(Post::Hints(hints));
            }
        }
    }
}
