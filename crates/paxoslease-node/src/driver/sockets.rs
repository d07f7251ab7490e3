//! The network of a driver: connections that it may dial, write to and close. The event loop
//! implements it by real sockets, the simulated world by its own.

use paxoslease_core::NodeId;
use paxoslease_holder::Role;

/// The number of a connection. Numbers of closed connections are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ConnId(pub(crate) usize);

impl ConnId {
    /// The number. It is small as long as connections are few, so it can be an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Connections, to peers or to clients.
pub trait Connections {
    /// Sends as much as there is room for, and returns how much that was. When there is room for
    /// the rest, the connection is reported as writable. A broken connection is closed later.
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize;

    /// Closes a connection; its end is not reported.
    fn close(&mut self, conn: ConnId);
}

/// Connections to peers, as a driver needs them.
pub(crate) trait Sockets: Connections {
    /// Begins to connect. A call of [`super::Driver::connected`] or [`super::Driver::closed`]
    /// follows, not before this returns.
    fn dial(&mut self, peer: NodeId, address: &str) -> ConnId;

    /// Whether the other end has proven to be that node in this role.
    fn is_node(&self, conn: ConnId, node: NodeId, role: Role) -> bool;

    /// Gives a connection that is for another shard to that shard, with all bytes that were
    /// received and not consumed.
    fn hand_over(&mut self, conn: ConnId, shard: u16);
}
