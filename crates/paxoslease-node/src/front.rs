//! What a daemon builds on: a front-end that serves its clients on the shards' own threads.
//!
//! A front-end takes leases for holders elsewhere, and so does [`Remote`](crate::Remote) from any
//! other thread. There are no guards here: the holder keeps `(name, fence, deadline)`, counts its
//! own time, and may renew or release through any node. A front-end is sans-io like everything else
//! on these threads: bytes, answers and hints come in through [`FrontEnd`], requests and bytes
//! go out through the [`ShardHandle`]. The node does not know the protocol of the clients.

mod shard_handle;
mod waiting;

use std::net::TcpListener;
use std::sync::Arc;

pub use paxoslease_core::{
    CommandError, Drift, Holder, Instant, Label, Lasts, LiveLease, Name, Permits, Sighting, Tenure,
    Ttl,
};
pub use paxoslease_holder::Filter;

pub use crate::driver::{ConnId, Connections};
pub use crate::log_throttle::LogThrottle;
pub use crate::request::{
    Answer, CowLabel, Cursor, Hint, NotKept, PageMax, REQUEST_IDS_MAX, Request,
};
pub use crate::tls::ClientCertificates;
pub(crate) use shard_handle::Outgoing;
pub use shard_handle::{ClientSockets, ShardHandle};
pub(crate) use waiting::Waiting;

/// What a node is given to serve clients.
pub struct Service {
    /// Where clients connect, if they can.
    pub clients: Option<TcpListener>,
    /// `None` if clients connect in clear. TLS needs [`Config::tls`](crate::Config::tls).
    pub client_tls: Option<ClientCertificates>,
    /// Makes the front-end of a shard, for each shard once.
    pub front: Box<dyn FnMut(u16) -> Box<dyn FrontEnd> + Send>,
    /// The recorder for the metrics of this node, in place of that of the process, so that several
    /// nodes of one process can have separate metrics.
    pub recorder: Option<Arc<dyn metrics::Recorder + Send + Sync>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({:?})", self.clients)
    }
}

/// Serves clients on one shard's thread. It must not block.
///
/// In one turn of the thread, the front-end is first told what was received, closed or found
/// writable. Then its requests are answered, until there are no new ones. Then comes
/// [`Self::flush`]. A front-end that collects bytes until then writes once per connection and turn.
/// If a flush leads to further answers, these and another flush follow in the same turn.
pub trait FrontEnd: Send {
    /// A client connected.
    fn accepted(&mut self, _shard: &mut ShardHandle<'_>, _conn: ConnId) {}

    /// Bytes of a client arrived. Returns how many were consumed. The rest is shown again with the
    /// bytes that follow, or once [`ClientSockets::resume`] was called.
    fn received(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId, bytes: &[u8]) -> usize;

    /// There is room again for bytes that [`Connections::send`] did not take.
    fn writable(&mut self, _shard: &mut ShardHandle<'_>, _conn: ConnId) {}

    /// The client of a connection that is held will send nothing more: it closed its side, or it is
    /// gone. Only a write can tell which. Earlier bytes are shown once the connection is resumed,
    /// and [`Self::ended`] follows.
    fn ending(&mut self, _shard: &mut ShardHandle<'_>, _conn: ConnId) {}

    /// The client of a connection that is held with read-ahead has filled the buffer. Its end can
    /// no longer be noticed.
    fn read_ahead_full(&mut self, _shard: &mut ShardHandle<'_>, _conn: ConnId) {}

    /// The client will send nothing more: it closed its side of the connection, or it is gone. All
    /// its bytes were shown. Unless this is overridden, the connection is closed.
    fn ended(&mut self, shard: &mut ShardHandle<'_>, conn: ConnId) {
        shard.sockets.close(conn);
        self.closed(shard, conn);
    }

    /// The client is gone; not called after [`Connections::close`]. The number may be used again.
    fn closed(&mut self, _shard: &mut ShardHandle<'_>, _conn: ConnId) {}

    /// The answer to the request with this number. There is exactly one for each.
    fn answered(&mut self, shard: &mut ShardHandle<'_>, id: u64, answer: Answer);

    /// A change of a lease, of any shard; only after [`ShardHandle::watch`].
    fn hinted(&mut self, _shard: &mut ShardHandle<'_>, _hint: &Hint) {}

    /// Called when [`Self::next_at`] has come, and in every other turn of the thread.
    fn tick(&mut self, _shard: &mut ShardHandle<'_>) {}

    /// All events of this turn were told: the moment to send.
    fn flush(&mut self, _shard: &mut ShardHandle<'_>) {}

    /// When [`Self::tick`] has something to do, if nothing else happens.
    fn next_at(&self) -> Option<Instant> {
        None
    }

    /// The node stops: no more clients connect, and nothing is granted. Withdraw the requests that
    /// wait, tell the clients, close them. Called once.
    fn leave(&mut self, _shard: &mut ShardHandle<'_>) {}

    /// Whether all clients were told, after [`Self::leave`].
    fn is_done(&self) -> bool {
        true
    }

    /// The bytes for a client that does not use TLS although it must, before it is disconnected.
    fn not_tls(&self) -> &'static [u8] {
        b""
    }
}
