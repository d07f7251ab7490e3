//! One turn of a shard's thread: its phases in order, and what they work on.

use paxoslease_core::Instant;

use super::conn::ConnKind;
use super::{Clients, Conns, Disk, Post};
use crate::driver::{ConnId, Driver};
use crate::front::{FrontEnd, ShardHandle};

/// What the handlers of one turn work on, at one reading of the clock.
pub(super) struct Turn<'a> {
    pub(super) now: Instant,
    pub(super) driver: &'a mut Driver,
    pub(super) conns: &'a mut Conns,
    pub(super) clients: &'a mut Clients,
    pub(super) disk: &'a Disk,
}

impl Turn<'_> {
    /// Works off what was received, posted and due.
    pub(super) fn run(&mut self, posts: &mut Vec<Post>) {
        self.deliver();
        posts.drain(..).for_each(|post| self.take(post));
        self.driver.tick(self.conns, self.now);
        self.tick_clients();
        loop {
            self.act_until_quiet();
            self.driver.flush(self.conns);
            self.flush_clients();
            // Sessions that end while they are flushed withdraw requests, and those are answered.
            if !self.reap_broken() && !self.driver.has_answers() {
                break;
            }
        }
        self.wake();
    }

    /// Asks the disk for what must be durable, and wakes whoever waits.
    fn wake(&mut self) {
        while let Some(record) = self.driver.next_record() {
            if let Some((writer, shard)) = self.disk {
                writer.ask(*shard, record);
            }
        }
        let mut woken = false;
        for waker in self.driver.wakers() {
            waker.wake();
            woken = true;
        }
        if woken {
            // The woken threads of this core go first: what they ask joins the next batch.
            std::thread::yield_now();
        }
    }

    fn take(&mut self, post: Post) {
        match post {
            Post::Command(command) => self.driver.command(self.now, command),
            Post::Requests(requests) => {
                for (from, request) in requests {
                    self.driver.request(self.now, from, request);
                }
            }
            Post::Answers(answers) => {
                for (id, answer) in answers {
                    self.front(|front, shard| front.answered(shard, id, answer));
                }
            }
            Post::Hints(hints) => self.hinted(&hints),
            Post::Watch { origin, on } => self.driver.hint(origin, on),
            // Looked at when the turn is over.
            Post::Done => {}
            Post::Client(stream) => self.conns.accepted_client(stream),
            Post::Adopt { stream, unread } => self.adopt(stream, unread),
            Post::Resolved { lookup, outcome } => self.conns.looked_up(lookup, outcome),
        }
    }

    /// Calls the front-end, if there is one.
    pub(super) fn front<R>(
        &mut self,
        call: impl FnOnce(&mut dyn FrontEnd, &mut ShardHandle<'_>) -> R,
    ) -> Option<R> {
        let Clients { front, outgoing, .. } = &mut *self.clients;
        let (now, driver, sockets) = (self.now, &mut *self.driver, &mut *self.conns);
        let mut shard = ShardHandle { now, driver, sockets, outgoing };
        front.as_mut().map(|front| call(front.as_mut(), &mut shard))
    }

    pub(super) fn accepted(&mut self, kind: ConnKind, id: ConnId) {
        match kind {
            ConnKind::Peer => self.driver.accepted(self.conns, self.now, id),
            ConnKind::Client => drop(self.front(|front, shard| front.accepted(shard, id))),
            ConnKind::Leaving => {}
        }
    }

    pub(super) fn closed(&mut self, kind: ConnKind, id: ConnId, why: &str) {
        match kind {
            ConnKind::Peer => self.driver.closed(self.now, id, why),
            ConnKind::Client => drop(self.front(|front, shard| front.closed(shard, id))),
            ConnKind::Leaving => {}
        }
    }
}
