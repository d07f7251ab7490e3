//! Where a front-end asks for leases and sends its bytes, while it is being told something.

use std::time::Duration;

use paxoslease_core::{Holder, Instant, Name};
use paxoslease_wire::ShardId;

use super::{Ask, Cursor, Filter, Letter, Outgoing, PageMax, Routed};
use crate::driver::{ConnId, Driver, Sockets as _};
use crate::event_loop::Conns;
use paxoslease_holder::Status;

/// A front-end's way to the shards and to its clients.
///
/// Whatever is asked has a number of the front-end's choice, below [`super::ASKS_MAX`] and not in
/// use, and exactly one [`super::FrontEnd::answered`] later, never before the call returns.
pub struct Desk<'a> {
    pub(crate) now: Instant,
    pub(crate) driver: &'a mut Driver,
    pub(crate) conns: &'a mut Conns,
    pub(crate) outgoing: &'a mut Outgoing,
}

impl Desk<'_> {
    /// The clock, read once per turn, after everything of this turn was received.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Asks for a lease: [`super::Answer::Granted`] or [`super::Answer::Held`].
    pub fn acquire(
        &mut self,
        ask: u64,
        name: Name<'_>,
        holder: Holder<'_>,
        ttl: Duration,
        wait: Duration,
    ) {
        self.ask(name, ask, Ask::Acquire { name, holder, ttl, wait });
    }

    /// As [`Self::acquire`] without a wait, by who asks again if it must wait: what becomes of an
    /// acquire is counted once, so only a grant is counted here.
    pub fn try_acquire(&mut self, ask: u64, name: Name<'_>, holder: Holder<'_>, ttl: Duration) {
        self.ask(name, ask, Ask::Try { name, holder, ttl });
    }

    /// P8: takes an acquire back. Its answer is [`super::Answer::Abandoned`], unless another is on
    /// its way already; what was granted all the same is to be released.
    pub fn abandon(&mut self, ask: u64, name: Name<'_>) {
        self.ask(name, ask, Ask::Abandon { name });
    }

    /// Prolongs a tenure: [`super::Answer::Renewed`] or [`super::Answer::NotHeld`].
    pub fn renew(&mut self, ask: u64, name: Name<'_>, fence: u64, ttl: Duration) {
        self.ask(name, ask, Ask::Renew { name, fence, ttl });
    }

    /// P6: ends a tenure whose holder has stopped believing: [`super::Answer::Released`].
    pub fn release(&mut self, ask: u64, name: Name<'_>, fence: u64) {
        self.ask(name, ask, Ask::Release { name, fence });
    }

    /// Asks a quorum who holds a name: [`super::Answer::Inspected`].
    pub fn inspect(&mut self, ask: u64, name: Name<'_>) {
        self.ask(name, ask, Ask::Inspect { name });
    }

    /// Lists leases of names that begin with `prefix` and may be shown, up to `max` of them and
    /// maybe none although there are more: [`super::Answer::Listed`]. Only what this node votes on.
    pub fn list(
        &mut self,
        ask: u64,
        cursor: Cursor,
        (prefix, filter): (&str, &Filter),
        max: PageMax,
    ) {
        self.put(cursor.shard, ask, Ask::List { slot: cursor.slot, prefix, filter, max });
    }

    /// Whether to tell [`super::FrontEnd::hinted`] of what happens to leases, in all shards.
    pub fn watch(&mut self, on: bool) {
        self.driver.hint(self.driver.shard_index(), on);
        self.outgoing.watch = Some(on);
    }

    /// Says which names, as their bytes, will be asked for next. Saves waiting for memory where
    /// there are very many leases, and is not even looked at where there are few, or where most
    /// names are another shard's.
    pub fn foresee<'a>(&self, names: impl IntoIterator<Item = &'a [u8]>) {
        if self.driver.shard_count() == 1 {
            self.driver.foresee(names);
        }
    }

    /// How this node sees itself and its cell: a hint, at most half a second old.
    #[must_use]
    pub fn status(&self) -> Status {
        self.driver.node_status(self.now)
    }

    /// How long this node has run.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.driver.uptime(self.now)
    }

    /// Sends as much as there is room for, and says how much that was. For the rest there will be
    /// a [`super::FrontEnd::writable`]. A connection found broken is closed by and by.
    pub fn send(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        self.conns.send(conn, bytes)
    }

    /// Closes a connection; no [`super::FrontEnd::closed`] follows.
    pub fn close(&mut self, conn: ConnId) {
        self.conns.close(conn);
    }

    /// Shows nothing more from a connection until [`Self::resume`].
    pub fn hold(&mut self, conn: ConnId) {
        self.conns.hold(conn, false);
    }

    /// As [`Self::hold`], but still reads, as far as there is room. The end of a connection comes
    /// behind all that was sent, and a full buffer keeps it from being noticed: when it comes to
    /// that, there is a [`super::FrontEnd::out_of_sight`].
    pub fn hold_in_sight(&mut self, conn: ConnId) {
        self.conns.hold(conn, true);
    }

    /// Shows on, beginning with what was received and not consumed.
    pub fn resume(&mut self, conn: ConnId) {
        self.conns.resume(conn);
    }

    /// Where a client is connected from, for people to read.
    #[must_use]
    pub fn address(&self, conn: ConnId) -> Option<std::net::SocketAddr> {
        self.conns.address(conn)
    }

    fn ask(&mut self, name: Name<'_>, ask: u64, question: Ask<'_>) {
        let shard = ShardId::of(name, self.driver.shard_count());
        self.put(shard.index(), ask, question);
    }

    fn put(&mut self, shard: u16, ask: u64, question: Ask<'_>) {
        let from = Routed { origin: self.driver.shard_index(), ask };
        if shard == from.origin {
            self.driver.ask(self.now, from, question);
        } else if let Some(letters) = self.outgoing.letters.get_mut(usize::from(shard)) {
            letters.push(Letter::new(from, question));
        } else {
            self.driver.nothing_to_list(from);
        }
    }
}
