//! One turn of a shard's thread: its phases in order, and what they work on.

use paxoslease_core::Instant;

use super::conn::Kind;
use super::{Clients, Conns, Post};
use crate::driver::{ConnId, Driver};
use crate::front::{FrontEnd, ShardHandle};

/// What the handlers of one turn work on, at one reading of the clock.
pub(super) struct Turn<'a> {
    pub(super) now: Instant,
    pub(super) driver: &'a mut Driver,
    pub(super) conns: &'a mut Conns,
    pub(super) clients: &'a mut Clients,
}

impl Turn<'_> {
    /// Works off what was received, posted and due. The caller wakes whoever waits afterwards.
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

    pub(super) fn accepted(&mut self, kind: Kind, id: ConnId) {
        match kind {
            Kind::Peer => self.driver.accepted(self.conns, self.now, id),
            Kind::Client => drop(self.front(|front, shard| front.accepted(shard, id))),
            Kind::Leaving => {}
        }
    }

    /// Returns how many of the bytes were consumed.
    pub(super) fn received(&mut self, kind: Kind, id: ConnId, bytes: &[u8]) -> usize {
        let consumed = match kind {
            Kind::Peer => Some(self.driver.received(self.conns, self.now, id, bytes)),
            Kind::Client => self.front(|front, shard| front.received(shard, id, bytes)),
            Kind::Leaving => None,
        };
        consumed.unwrap_or(bytes.len())
    }

    pub(super) fn writable(&mut self, kind: Kind, id: ConnId) {
        match kind {
            Kind::Peer => self.driver.writable(self.conns, id),
            Kind::Client => drop(self.front(|front, shard| front.writable(shard, id))),
            Kind::Leaving => {}
        }
    }

    pub(super) fn closed(&mut self, kind: Kind, id: ConnId, why: &str) {
        match kind {
            Kind::Peer => self.driver.closed(self.now, id, why),
            Kind::Client => drop(self.front(|front, shard| front.closed(shard, id))),
            Kind::Leaving => {}
        }
    }
}
