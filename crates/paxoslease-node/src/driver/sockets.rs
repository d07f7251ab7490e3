//! What a driver needs of a network: connections it may dial, write to and close. The event loop
//! brings real sockets, a simulated world its own.

use paxoslease_core::NodeId;

/// A connection, as its owner numbers it. Numbers of closed connections are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub(crate) usize);

impl ConnId {
    /// The number, small as long as connections are few: good for indexing.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

pub(crate) trait Sockets {
    /// Begins to connect. Ends in [`super::Driver::connected`] or [`super::Driver::closed`], not
    /// before this returns.
    fn dial(&mut self, peer: NodeId, address: &str) -> ConnId;

    /// Sends as much as there is room for, and says how much that was. For the rest there will be
    /// a [`super::Driver::writable`]. A connection found broken is closed by and by.
    fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize;

    /// Closes a connection; no [`super::Driver::closed`] follows.
    fn close(&mut self, conn: ConnId);

    /// Whether whoever is at the other end may call itself that node.
    fn is_node(&self, conn: ConnId, node: NodeId) -> bool;

    /// Gives a connection that turned out to be for another shard to that shard, with all that was
    /// received and not consumed.
    fn hand_over(&mut self, conn: ConnId, shard: u16);
}
