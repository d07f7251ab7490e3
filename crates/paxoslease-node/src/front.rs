//! What a daemon builds on: a front-end that serves its clients on the shards' own threads, and
//! [`Remote`], which asks for leases from any other thread.
//!
//! Both take leases for holders elsewhere, so there are no guards here: the holder keeps
//! `(name, fence, deadline)`, counts its own time (T2), and may renew or release through any node.
//! A front-end is sans-io like everything else on these threads: bytes, answers and hints come in
//! through [`FrontEnd`], questions and bytes go out through the [`Desk`]. Which protocol the bytes
//! are in is the front-end's business alone.

mod asks;
mod desk;
mod remote;
mod seldom;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

pub use paxoslease_core::{CommandError, Drift, Holder, Instant, Label, Name, Sighting};
pub use paxoslease_holder::Filter;

pub use crate::driver::ConnId;
pub use crate::tls::ClientCertificates;
pub use asks::{ASKS_MAX, Cursor, PageMax};
pub(crate) use asks::{Ask, Kind, Letter, Outgoing, Post, Routed};
pub use desk::Desk;
pub(crate) use remote::Waiting;
pub use remote::{Asking, Remote};
pub use seldom::Seldom;

/// What a node is given to serve clients.
pub struct Service {
    /// Where clients connect, if they can.
    pub clients: Option<TcpListener>,
    /// `None` if clients connect in clear. TLS needs [`Config::tls`](crate::Config::tls).
    pub client_tls: Option<ClientCertificates>,
    /// Makes the front-end of a shard, for each shard once.
    pub front: Box<dyn FnMut(u16) -> Box<dyn FrontEnd> + Send>,
    /// Where the metrics of this node go, whatever recorder the process has: several nodes of one
    /// process keep theirs apart so.
    pub recorder: Option<Arc<dyn metrics::Recorder + Send + Sync>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({:?})", self.clients)
    }
}

/// Serves clients on one shard's thread. It must not block.
///
/// One turn of the thread: whatever was received, closed or found writable is told; then what was
/// asked is answered, until nothing new was asked; then [`Self::flush`], once. So whoever collects
/// bytes until then writes once per connection and turn.
pub trait FrontEnd: Send {
    /// A client connected.
    fn accepted(&mut self, desk: &mut Desk<'_>, conn: ConnId);

    /// Bytes of a client arrived. Says how many were consumed; the rest is shown again with what
    /// follows, or once [`Desk::resume`] was called.
    fn received(&mut self, desk: &mut Desk<'_>, conn: ConnId, bytes: &[u8]) -> usize;

    /// There is room again for bytes that [`Desk::send`] did not take.
    fn writable(&mut self, desk: &mut Desk<'_>, conn: ConnId);

    /// The client of a connection that is held will send nothing more: it closed its side, or is
    /// gone, which cannot be told apart before something is sent. What it sent before is shown once
    /// the connection is resumed, then comes [`Self::ended`].
    fn ending(&mut self, _desk: &mut Desk<'_>, _conn: ConnId) {}

    /// The client of a connection held by [`Desk::hold_in_sight`] has sent so much meanwhile that
    /// its end could not be noticed any more.
    fn out_of_sight(&mut self, _desk: &mut Desk<'_>, _conn: ConnId) {}

    /// The client has sent nothing more: it closed its side of the connection, or is gone. What it
    /// sent before was shown. Unless this is overridden, it is as good as gone.
    fn ended(&mut self, desk: &mut Desk<'_>, conn: ConnId) {
        desk.close(conn);
        self.closed(desk, conn);
    }

    /// The client is gone; not called after [`Desk::close`]. The number may be used again.
    fn closed(&mut self, desk: &mut Desk<'_>, conn: ConnId);

    /// The answer to what was asked under this number. There is exactly one for each.
    fn answered(&mut self, desk: &mut Desk<'_>, ask: u64, answer: Answer);

    /// Something that watchers may want to know, of any shard; only after [`Desk::watch`].
    fn hinted(&mut self, desk: &mut Desk<'_>, hint: &Hint);

    /// Called when [`Self::next_at`] has come, and whenever the thread turns anyway.
    fn tick(&mut self, desk: &mut Desk<'_>);

    /// Everything of this turn was told: the moment to send.
    fn flush(&mut self, desk: &mut Desk<'_>);

    /// When [`Self::tick`] has something to do, if nothing else happens.
    fn next_at(&self) -> Option<Instant>;

    /// The node stops: no more clients will come, and nothing new is granted. Take back what
    /// waits, tell the clients, close them. Called once.
    fn leave(&mut self, desk: &mut Desk<'_>);

    /// Whether there is nothing left to tell anybody, after [`Self::leave`].
    fn is_done(&self) -> bool;

    /// What to say to a client that does not speak TLS where it must, before it is sent away.
    fn not_tls(&self) -> &'static [u8] {
        b""
    }
}

/// What came of a question.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// An acquire succeeded.
    Granted {
        /// The tenure's fence.
        fence: u64,
        /// How long others are excluded, from the start of the winning round.
        ttl: Duration,
        /// How long the request was kept waiting before that round began: never more than it
        /// really was, and what T2 of a holder elsewhere needs.
        waited: Duration,
    },
    /// An acquire was refused, and waiting for it is over: a majority reported this holder.
    Held(Sighting),
    /// A renewal succeeded.
    Renewed {
        /// How long others are excluded, from the start of the winning round.
        ttl: Duration,
    },
    /// A renewal found the tenure over, for good.
    NotHeld,
    /// A release is done.
    Released {
        /// Whether any acceptor still had it.
        held: bool,
        /// Whether a majority confirmed. If not, the lease is over when its ttl is.
        confirmed: bool,
    },
    /// What a quorum said of a name: a hint.
    Inspected(Option<Sighting>),
    /// Leases this node has seen: a hint.
    Listed {
        /// Those found.
        leases: Vec<Sighting>,
        /// Where to go on; `None` at the end.
        next: Option<Cursor>,
    },
    /// No majority answered in time. Nothing was changed that outlives the ttl.
    NoQuorum,
    /// The acquire was taken back by [`Desk::abandon`]; nothing is held.
    Abandoned,
    /// The ttl is out of bounds; nothing was changed.
    Ttl(paxoslease_core::TtlError),
    /// The shard is at one of its limits; nothing was changed.
    Busy(CommandError),
    /// So many lists wait in the shard already, its limit; nothing was changed.
    TooManyLists(usize),
    /// No majority answered, and this node keeps as many names as its limits allow. Nothing was
    /// changed that outlives the ttl.
    Full,
    /// The node stops; nothing was changed.
    Stopping,
}

/// Something that was seen to happen: good for showing, never for deciding.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Hint {
    /// A lease began.
    Held(Sighting),
    /// A lease was given back.
    Freed(Label),
    /// A lease ran out, a second or two ago, and nobody took the name since.
    Expired {
        /// The name, and who held it.
        label: Label,
        /// The tenure that is over.
        fence: u64,
    },
}
