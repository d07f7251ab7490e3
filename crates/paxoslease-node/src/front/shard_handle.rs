//! How a front-end asks for leases and sends bytes, while it is told something.

use std::net::SocketAddr;
use std::time::Duration;

use paxoslease_core::{Holder, Instant, Name};
use paxoslease_holder::Status;

use crate::driver::{ConnId, Connections, Driver};
use crate::request::{Answer, Hint, ReplyTo, Request};

/// The connections of clients, as a front-end needs them. The event loop brings real sockets.
pub trait ClientSockets: Connections {
    /// Shows nothing more from a connection until [`Self::resume`].
    ///
    /// With `read_ahead`, the connection is still read, as far as there is room, so that its end is
    /// noticed. A full buffer hides the end: then [`super::FrontEnd::read_ahead_full`] is called.
    fn hold(&mut self, conn: ConnId, read_ahead: bool);

    /// Shows a connection again, beginning with what was received and not consumed.
    fn resume(&mut self, conn: ConnId);

    /// Where a client is connected from, for people to read.
    fn address(&self, conn: ConnId) -> Option<SocketAddr>;
}

/// A front-end's way to the shards and to its clients.
///
/// Each request has a number that the front-end chooses, below [`super::REQUEST_IDS_MAX`] and not
/// in use, and exactly one [`super::FrontEnd::answered`], never before [`Self::ask`] returns.
pub struct ShardHandle<'a> {
    pub(crate) now: Instant,
    pub(crate) driver: &'a mut Driver,
    /// The connections of the front-end's clients.
    pub sockets: &'a mut dyn ClientSockets,
    pub(crate) outgoing: &'a mut Outgoing,
}

/// What one shard has for the others, collected during a turn; by shard.
pub(crate) struct Outgoing {
    pub(crate) requests: Vec<Vec<(ReplyTo, Request<'static>)>>,
    pub(crate) answers: Vec<Vec<(u64, Answer)>>,
    pub(crate) hints: Vec<Vec<Hint>>,
    /// Whether this shard's front-end wants hints, if that has changed.
    pub(crate) watch: Option<bool>,
}

impl Outgoing {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            requests: (0..shards).map(|_| Vec::new()).collect(),
            answers: (0..shards).map(|_| Vec::new()).collect(),
            hints: (0..shards).map(|_| Vec::new()).collect(),
            watch: None,
        }
    }
}

impl ShardHandle<'_> {
    /// The clock, read once per turn, after everything of this turn was received.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Passes a request to the shard that serves it: to this thread's own shard at once, to another
    /// one when the turn ends.
    pub fn ask(&mut self, id: u64, request: Request<'_>) {
        let from = ReplyTo { origin: self.driver.shard_index(), id };
        let shard = request.shard(self.driver.shard_count());
        if shard == from.origin {
            self.driver.request(self.now, from, request);
        } else if let Some(requests) = self.outgoing.requests.get_mut(usize::from(shard)) {
            requests.push((from, request.into_owned()));
        } else {
            self.driver.refuse(from, Answer::END_OF_LIST);
        }
    }

    /// Tells a text to the clients that watch `name`, at this node and others: [`Hint::Note`]. At
    /// most once, and no decision may rely on it.
    pub fn note(&mut self, name: Name<'_>, text: Holder<'_>) {
        self.ask(0, Request::Note { lease: (name, text).into() });
    }

    /// Whether [`super::FrontEnd::hinted`] is told of changes to leases, in all shards.
    pub fn watch(&mut self, on: bool) {
        self.driver.hint(self.driver.shard_index(), on);
        self.outgoing.watch = Some(on);
    }

    /// Says which names, as bytes, are asked for next. Saves waits for memory where there are very
    /// many leases. Does nothing where there are few, or where most names are another shard's.
    pub fn prefetch<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) {
        if self.driver.shard_count() == 1 {
            self.driver.prefetch(names);
        }
    }

    /// How this node sees itself and its cell: a hint, at most half a second old.
    #[must_use]
    pub fn status(&self) -> Status {
        self.driver.node_status(self.now)
    }

    /// The epoch of the members. It grows when they change.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.driver.epoch()
    }

    /// The epoch, and where clients reach the members of that epoch, as far as this node knows: the
    /// members of both sets during a change. Cheaper than [`Self::status`].
    #[must_use]
    pub fn member_addresses(&self) -> (u32, Vec<&str>) {
        self.driver.member_addresses()
    }

    /// How long this node has run.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.driver.uptime(self.now)
    }
}
