//! The front-end of one shard's thread, and what goes to and fro between it, its shard, the other
//! shards, and callers on other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mio::net::TcpStream;
use paxoslease_core::Instant;

use super::turn::Turn;
use super::{Conns, Listener, Post};
use crate::front::{FrontEnd, Outgoing, Waiting};
use crate::request::{Answer, Hint, ReplyTo};

pub(crate) struct Clients {
    /// None in a node that is embedded.
    pub(super) front: Option<Box<dyn FrontEnd>>,
    /// Where clients connect, in the first shard.
    pub(super) listener: Option<Listener>,
    pub(super) outgoing: Outgoing,
    /// The callers on other threads that wait for answers of this node.
    waiting: Arc<Waiting>,
    /// Lends its memory to answers on their way.
    answers: Vec<(ReplyTo, Answer)>,
    own: u16,
    /// The shard that gets the next client.
    next_shard: usize,
    left: bool,
    done: bool,
    /// Front-ends of this node that have still something to tell their clients.
    undone: Arc<AtomicUsize>,
}

impl Clients {
    /// The clients of shard `own` of `shards`.
    pub(crate) fn new(
        own: u16,
        shards: usize,
        front: Option<Box<dyn FrontEnd>>,
        listener: Option<Listener>,
        waiting: Arc<Waiting>,
        undone: Arc<AtomicUsize>,
    ) -> Self {
        // A node without front-ends has nothing to tell.
        undone.fetch_add(usize::from(front.is_some()), Ordering::AcqRel);
        Self {
            front,
            listener,
            outgoing: Outgoing::new(shards),
            waiting,
            answers: Vec::new(),
            own,
            next_shard: 0,
            left: false,
            done: false,
            undone,
        }
    }

    /// Whether there is more to do without waiting.
    pub(super) fn unfinished(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::unfinished)
    }

    /// Accepts clients for all shards in turn, so that a few of them are spread evenly.
    pub(super) fn accept(&mut self, conns: &mut Conns) {
        let Some(listener) = &mut self.listener else { return };
        let (own, next_shard) = (usize::from(self.own), &mut self.next_shard);
        listener.accept(|stream: TcpStream| {
            let shard = *next_shard % conns.mailboxes.len();
            *next_shard += 1;
            if shard == own {
                conns.accepted_client(stream);
            } else {
                // A shard that left needs no clients.
                let _left = conns.mailboxes[shard].post(Post::Client(stream));
            }
        });
    }

    pub(super) fn next_at(&self) -> Instant {
        self.front.as_ref().and_then(|front| front.next_at()).unwrap_or(Instant::MAX)
    }

    /// Whether the front-ends of all shards have told everybody, after the node was told to leave.
    ///
    /// Shards go together: one that went before the others would leave acquires of their clients
    /// unanswered, and grants that nobody heard of, which they would have it take back (P8), to
    /// their ttl. A shard leaves the others behind once the node's patience with its last releases
    /// is over. That is harmless: its clients were told at once that the node stops, what it
    /// still waits for ends with its own patience, and a grant it did not hear of with its ttl.
    pub(super) fn are_done(&mut self, conns: &Conns) -> bool {
        let Some(front) = &self.front else { return true };
        if !self.left {
            return false;
        }
        if !self.done && front.is_done() {
            self.done = true;
            if self.undone.fetch_sub(1, Ordering::AcqRel) == 1 {
                for mailbox in &conns.mailboxes {
                    // A shard that lost its patience is gone.
                    let _left = mailbox.post(Post::Done);
                }
            }
        }
        self.undone.load(Ordering::Acquire) == 0
    }
}

impl Turn<'_> {
    /// Lets the front-end do what it is time for. Once the node stops, says good-bye first.
    pub(super) fn tick_clients(&mut self) {
        if self.driver.is_leaving() && !std::mem::replace(&mut self.clients.left, true) {
            self.clients.listener = None;
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
        let Clients { outgoing, own, .. } = &mut *self.clients;
        let watch = outgoing.watch.take();
        for (shard, mailbox) in self.conns.mailboxes.iter().enumerate() {
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
                // This shard leaves too, and waits for no answer for longer than its own patience.
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
