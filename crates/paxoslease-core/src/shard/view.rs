//! Read access to a shard: for status pages, metrics and checkers, and the snapshot of a clean stop
//! (R4). Nothing here changes the shard.

use core::time::Duration;

use super::Shard;
use crate::outbox::LiveLease;
use crate::protocol::acceptor::{Acceptor, SnapshotLease, remaining};
use crate::protocol::proposer::RoundCounts;
use crate::protocol::record::Record;
use crate::protocol::register::Register;
use crate::protocol::round::Round;
use crate::queueing::waiting::WaitedName;
use crate::storage::Slot;
use crate::{Ballot, Config, Instant, Name, Refusal};

impl Shard {
    /// The settings that the shard was started with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The live lease of a name in this node's acceptor. A hint: other acceptors may differ.
    #[must_use]
    pub fn lease(&self, now: Instant, name: Name<'_>) -> Option<LiveLease> {
        self.acceptor.as_ref()?.lease(now, name)
    }

    /// Slots in the acceptor's table, vacant ones included. A lease keeps its slot, so a walk over
    /// all slots sees every lease that lasts exactly once, and may miss others.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.acceptor.as_ref().map_or(0, |acceptor| acceptor.table().slot_count())
    }

    /// The live lease in a slot, if its name is `wanted`. Other leases are not copied. A round of
    /// this node is no lease before a majority accepted it.
    pub fn lease_in(
        &self,
        now: Instant,
        slot: u32,
        wanted: impl FnOnce(Name<'_>) -> bool,
    ) -> Option<LiveLease> {
        let (acceptor, slot) = (self.acceptor.as_ref()?, Slot::new(slot));
        let is_wanted = wanted(acceptor.table().get(slot)?.label.name());
        let lease = is_wanted.then(|| acceptor.lease_at(now, slot)).flatten();
        lease.filter(|lease| !self.proposer.is_undecided(lease.seen.tenure))
    }

    /// The register of a name in the acceptor.
    #[must_use]
    pub fn register(&self, name: Name<'_>) -> Option<Register> {
        let table = self.acceptor.as_ref()?.table();
        table.find(name).map(|slot| table.entry(slot).register)
    }

    /// E1: whether the record of a name is dated, for checkers.
    #[must_use]
    pub fn is_dated(&self, name: Name<'_>) -> bool {
        let Some(acceptor) = &self.acceptor else { return false };
        acceptor.table().find(name).is_some_and(|slot| acceptor.table().is_dated(slot))
    }

    /// The floor of the acceptor (A7, R1); `None` in a node that only proposes.
    #[must_use]
    pub fn floor(&self) -> Option<Ballot> {
        self.acceptor.as_ref().map(Acceptor::floor)
    }

    /// How long the acceptor stays in quarantine (A0); zero if it is not, or this node is no
    /// member.
    #[must_use]
    pub fn quarantine_remaining(&self, now: Instant) -> Duration {
        self.own.map_or(Duration::ZERO, |_| self.quarantine_as_member(now))
    }

    /// How long the acceptor would stay in quarantine if this node became a member now (C8).
    #[must_use]
    pub fn quarantine_as_member(&self, now: Instant) -> Duration {
        let until = self.acceptor.as_ref().map_or(self.started.1, Acceptor::quarantine_until);
        until.since(now)
    }

    /// The requests that wait for answers of acceptors.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.proposer.in_flight()
    }

    /// The rounds in flight, in no order.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.proposer.rounds()
    }

    /// Acquires that have no answer yet.
    #[must_use]
    pub const fn waiters(&self) -> usize {
        self.proposer.contenders.waiter_count()
    }

    /// The names that requests here wait for, in no order.
    pub fn waited_names(&self) -> impl Iterator<Item = WaitedName<'_>> {
        self.proposer.waited_names()
    }

    /// Whether the acceptor has no room for another name.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.acceptor.as_ref().is_some_and(|acceptor| acceptor.is_full(&self.config))
    }

    /// Names in the acceptor, idle ones included.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.acceptor.as_ref().map_or(0, |acceptor| acceptor.table().len())
    }

    /// Heap bytes of the acceptor's table.
    #[must_use]
    pub fn acceptor_bytes(&self) -> usize {
        self.acceptor.as_ref().map_or(0, |acceptor| acceptor.table().heap_bytes())
    }

    /// The last record that was confirmed to be on disk, or the one the node started with.
    #[must_use]
    pub const fn record(&self) -> Record {
        self.ceilings.durable()
    }

    /// Rounds begun since the start.
    #[must_use]
    pub const fn round_counts(&self) -> RoundCounts {
        self.proposer.counts()
    }

    /// Messages dropped since the start for one reason.
    #[must_use]
    pub const fn dropped(&self, refusal: Refusal) -> u64 {
        self.drops[refusal as usize]
    }
}

/// The live leases that a clean stop leaves for the next start (R4). To be used once.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) acceptor: Acceptor,
    pub(super) now: Instant,
    pub(super) epoch: u32,
}

impl Snapshot {
    /// E4: the epoch of the shard. In another epoch, the snapshot is void.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The live leases.
    pub fn leases(&self) -> impl Iterator<Item = SnapshotLease<'_>> {
        let table = self.acceptor.table();
        (0..table.slot_count()).filter_map(move |slot| {
            let entry = table.get(Slot::new(slot))?;
            let slot = Slot::new(slot);
            let live = entry.register.live(self.now)?;
            Some(SnapshotLease {
                name: entry.label.name(),
                holder: entry.label.holder(),
                tenure: live.tenure,
                remaining: remaining(self.now, live),
                is_dated: self.acceptor.table.is_dated(slot),
            })
        })
    }
}
