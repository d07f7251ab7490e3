//! One turn of a shard's thread: its phases in order, and what they work on.
//!
//! Knows no sockets, threads or disks of its own: `event_loop` brings real ones, and a
//! simulated world its own.

mod clients;

use paxoslease_core::Instant;

pub(crate) use clients::Clients;

use crate::command::Command;
use crate::driver::{ConnId, Driver, Sockets};
use crate::front::{ClientSockets, FrontEnd, ShardHandle};
use crate::mailbox::Mailbox;
use crate::request::{Answer, Hint, ReplyTo, Request};

/// What is posted to a shard's thread; `S` is for its sockets. Requests come from the front-end of
/// another shard, and answers for this one have the numbers of its requests. A watch says whether
/// the front-end of that shard wants hints. Done: the front-ends of all shards have told their
/// clients that the node stops.
pub(crate) enum Post<S> {
    Command(Command),
    Requests(Vec<(ReplyTo, Request<'static>)>),
    Answers(Vec<(u64, Answer)>),
    Hints(Vec<Hint>),
    Watch { origin: u16, on: bool },
    Done,
    Sockets(S),
}

/// The mailboxes of a node's shards, in order.
pub(crate) type Mailboxes<S> = Vec<std::sync::Arc<Mailbox<Post<S>>>>;

/// The connections of one shard's thread, to peers and to clients.
pub(crate) trait ShardSockets: Sockets + ClientSockets + Sized {
    /// What other threads post to these sockets.
    type Post;

    /// Tells the driver and the front-end what was received, and what began or ended.
    fn deliver(turn: &mut Turn<'_, Self>);

    /// Takes what another thread posted to these sockets.
    fn take(turn: &mut Turn<'_, Self>, post: Self::Post);

    /// Reports the connections that broke while something was sent. Returns whether there were any.
    fn reap_broken(turn: &mut Turn<'_, Self>) -> bool;
}

/// The party at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ConnKind {
    #[default]
    Peer,
    Client,
    /// A client that the front-end has closed. Only the rest of its TLS bytes is still sent.
    Leaving,
}

/// What the handlers of one turn work on, at one reading of the clock.
pub(crate) struct Turn<'a, S: ShardSockets> {
    pub(crate) now: Instant,
    pub(crate) driver: &'a mut Driver,
    pub(crate) sockets: &'a mut S,
    pub(crate) clients: &'a mut Clients<S::Post>,
}

impl<S: ShardSockets> Turn<'_, S> {
    /// Works off what was received, posted and due. The caller then makes the driver's records
    /// durable and wakes its callers.
    pub(crate) fn run(&mut self, posts: &mut Vec<Post<S::Post>>) {
        S::deliver(self);
        posts.drain(..).for_each(|post| self.take(post));
        self.driver.tick(self.sockets, self.now);
        self.tick_clients();
        loop {
            self.act_until_quiet();
            self.driver.flush(self.sockets, self.now);
            self.flush_clients();
            // Sessions that end while they are flushed withdraw requests, and those are answered.
            if !S::reap_broken(self) && !self.driver.has_answers() {
                break;
            }
        }
    }

    fn take(&mut self, post: Post<S::Post>) {
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
            // `Clients::are_done` looks at it when the turn is over.
            Post::Done => {}
            Post::Sockets(post) => S::take(self, post),
        }
    }

    /// Calls the front-end, if there is one.
    pub(crate) fn front<R>(
        &mut self,
        call: impl FnOnce(&mut dyn FrontEnd, &mut ShardHandle<'_>) -> R,
    ) -> Option<R> {
        let Clients { front, outgoing, .. } = &mut *self.clients;
        let (now, driver, sockets) = (self.now, &mut *self.driver, &mut *self.sockets);
        let mut shard = ShardHandle { now, driver, sockets, outgoing };
        front.as_mut().map(|front| call(front.as_mut(), &mut shard))
    }

    pub(crate) fn accepted(&mut self, kind: ConnKind, id: ConnId) {
        match kind {
            ConnKind::Peer => self.driver.accepted(self.sockets, self.now, id),
            ConnKind::Client => drop(self.front(|front, shard| front.accepted(shard, id))),
            ConnKind::Leaving => {}
        }
    }

    pub(crate) fn writable(&mut self, kind: ConnKind, id: ConnId) {
        match kind {
            ConnKind::Peer => self.driver.writable(self.sockets, id),
            ConnKind::Client => drop(self.front(|front, shard| front.writable(shard, id))),
            ConnKind::Leaving => {}
        }
    }

    /// Shows received bytes. Returns how many were consumed.
    pub(crate) fn received(&mut self, kind: ConnKind, id: ConnId, bytes: &[u8]) -> usize {
        let consumed = match kind {
            ConnKind::Peer => Some(self.driver.received(self.sockets, self.now, id, bytes)),
            ConnKind::Client => self.front(|front, shard| front.received(shard, id, bytes)),
            ConnKind::Leaving => None,
        };
        consumed.unwrap_or(bytes.len())
    }

    pub(crate) fn closed(&mut self, kind: ConnKind, id: ConnId, why: &str) {
        match kind {
            ConnKind::Peer => self.driver.closed(self.now, id, why),
            ConnKind::Client => drop(self.front(|front, shard| front.closed(shard, id))),
            ConnKind::Leaving => {}
        }
    }
}
