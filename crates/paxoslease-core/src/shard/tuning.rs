//! What a node measures and a shard uses to save time. Losing any of it does no harm.

use core::time::Duration;

use crate::Shard;

impl Shard {
    /// Sets the longest measured round trip to another member. A hint: rounds get a few of them.
    pub fn set_round_trip(&mut self, longest: Duration) {
        self.proposer.network_trip = longest;
    }

    /// Sets the longest measured round trip to any node, member or not. A hint: a freed name is
    /// reserved for waiting nodes a few times as long.
    pub fn set_turn_trip(&mut self, longest: Duration) {
        self.proposer.turn_trip = longest;
    }

    /// Sets the longest time until every message arrives whose sender did not know a Release here.
    /// A hint: a released name is reclaimed a few times as long after its Release. Until this is
    /// called, that takes `reclaim_after`.
    pub fn set_reclaim_trip(&mut self, longest: Duration) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.set_reclaim_trip(longest);
        }
    }

    /// Loads the index for names that will be requested next, given as bytes. Saves time in a large
    /// table; changes nothing.
    pub fn prefetch<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) {
        if let Some(acceptor) = &self.acceptor
            && acceptor.table().is_large()
        {
            acceptor.table().prefetch(names);
        }
    }
}
