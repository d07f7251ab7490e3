//! The ends of standing leases in one acceptor, beside its table (S1 to S4), and when this node
//! renews them (S5).
//!
//! A name has an entry only while its lease stands. All times are in two ordered sets, so that the
//! next one is found by one comparison and nothing stale is kept.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::rules::{Rule, Rules};
use crate::storage::Slot;
use crate::{Ballot, Cell, Config, Instant, Lasts, MemberSet, Standing, Tenure};

/// The time between two renewals of leases that move to a new set.
const MOVE_SPACING: Duration = Duration::from_micros(100);

/// The shortest time between two looks at a lease.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The end of a standing lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) tenure: Tenure,
    /// [`Instant::MAX`] for never. Until then the lease exists, whatever its record's own expiry.
    pub(crate) ends_at: Instant,
    /// When the record would expire if it did not stand: what a round or a renewal gave it last.
    pub(crate) record_ends_at: Instant,
    pub(crate) version: Ballot,
    /// Whether this acceptor received the operation itself. If not, a member told it the end, and
    /// the acceptor only renews: another operation may have set a later end (S2).
    pub(crate) is_voted: bool,
    /// When this node looks at the lease next; [`Instant::MAX`] if its record outlives its end.
    renew_at: Instant,
    /// `record_ends_at` when that was set. If it has moved, another member has renewed.
    seen: Instant,
    /// Another member has an older end, so this node has to tell it the newer one soon.
    is_urgent: bool,
    /// C10: the acceptors of the new set that told this node that they store this end.
    moved_to: MemberSet,
    /// C10: whether a majority of the new set has told so.
    is_moved: bool,
}

/// A Stand, without its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stand {
    pub(crate) tenure: Tenure,
    pub(crate) version: Ballot,
    pub(crate) lasts: Lasts,
    pub(crate) is_relayed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Entries {
    by_slot: BTreeMap<Slot, Entry>,
    ends: BTreeSet<(Instant, Slot)>,
    renewals: BTreeSet<(Instant, Slot)>,
    /// The first of `ends`; [`Instant::MAX`] if there is none. Every input compares it with now.
    end_next_at: Instant,
    /// The first of `ends` and `renewals`; [`Instant::MAX`] if there is none.
    wake_next_at: Instant,
    /// C10: whether this node has to see every lease stored by the new set.
    is_moving: bool,
    /// C10: the leases whose ends were relayed in this joint epoch, by the versions of the ends.
    relayed: BTreeMap<Ballot, Slot>,
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            by_slot: BTreeMap::new(),
            ends: BTreeSet::new(),
            renewals: BTreeSet::new(),
            end_next_at: Instant::MAX,
            wake_next_at: Instant::MAX,
            is_moving: false,
            relayed: BTreeMap::new(),
        }
    }
}

impl Entries {
    /// At the start of a node, which may be in a joint epoch (C10).
    pub(crate) fn new(config: &Config) -> Self {
        Self { is_moving: has_to_move(config), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_slot.len()
    }

    pub(crate) fn get(&self, slot: Slot, tenure: Tenure) -> Option<&Entry> {
        self.by_slot.get(&slot).filter(|entry| entry.tenure == tenure)
    }

    #[cfg(feature = "digest")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Slot, &Entry)> {
        self.by_slot.iter()
    }

    /// S1: stores an end, unless a newer one is stored. Returns the version that is stored then,
    /// and until when the lease exists. Without an end, that was `expires_at`.
    pub(crate) fn stand(
        &mut self,
        config: &Config,
        now: Instant,
        slot: Slot,
        expires_at: Instant,
        stand: Stand,
    ) -> (Ballot, Instant) {
        let Stand { tenure, version, lasts, is_relayed } = stand;
        let stored = self.get(slot, tenure).copied();
        let follows = config.rules.on(Rule::StandFollowsVersion);
        if let Some(stored) = stored.filter(|stored| follows && version <= stored.version) {
            if version < stored.version && is_relayed {
                self.spread_soon(config, now, slot);
            }
            return (stored.version, stored.exists_until());
        }
        let entry = Entry {
            tenure,
            ends_at: lasts.ends_at(now),
            record_ends_at: stored.map_or(expires_at, |stored| stored.record_ends_at),
            version,
            is_voted: !is_relayed,
            renew_at: Instant::MAX,
            seen: expires_at,
            is_urgent: false,
            moved_to: MemberSet::EMPTY,
            is_moved: false,
        };
        self.put(slot, entry);
        // The first renewal comes early, so that a member that missed the grant is healed soon.
        self.arm(config, now, slot, if stored.is_some() { 2 } else { 8 });
        if self.is_moving {
            self.spread_soon(config, now, slot);
        }
        (version, entry.exists_until())
    }

    /// S4: a renewal by the holder itself promises it more time than the end that is stored.
    #[cold]
    pub(crate) fn renewed(&mut self, slot: Slot, tenure: Tenure, until: Instant) {
        if let Some(entry) = self.get(slot, tenure).copied() {
            let ends_at = entry.ends_at.max(until);
            let record_ends_at = entry.record_ends_at.max(until);
            self.put(slot, Entry { ends_at, record_ends_at, ..entry });
        }
    }

    /// S3: the tenure in a slot has been replaced by another one.
    #[cold]
    pub(crate) fn replaced(&mut self, rules: Rules, slot: Slot, by: Option<Tenure>) {
        let is_other = |entry: &Entry| Some(entry.tenure) != by;
        if rules.on(Rule::StandEndsWithTenure) && self.by_slot.get(&slot).is_some_and(is_other) {
            self.remove(slot);
        }
    }

    /// Forgets the entry of a slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(entry) = self.by_slot.remove(&slot) {
            self.ends.remove(&(entry.ends_at, slot));
            self.renewals.remove(&(entry.renew_at, slot));
            self.note_next();
        }
    }

    fn note_next(&mut self) {
        let first =
            |times: &BTreeSet<(Instant, Slot)>| times.first().map_or(Instant::MAX, |(at, _)| *at);
        self.end_next_at = first(&self.ends);
        self.wake_next_at = self.end_next_at.min(first(&self.renewals));
    }

    /// S2: the next lease whose end has come.
    pub(crate) fn pop_ended(&mut self, now: Instant) -> Option<(Slot, Entry)> {
        let (at, slot) = *self.ends.first()?;
        if now < at {
            return None;
        }
        let entry = *self.by_slot.get(&slot).expect("it has a time, so it has an entry");
        self.remove(slot);
        Some((slot, entry))
    }

    /// Whether an end has come.
    #[inline]
    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        self.end_next_at <= now
    }

    /// The next lease that this node has to look at. It is looked at once more only after
    /// [`Self::arm`].
    pub(crate) fn pop_renewal(&mut self, now: Instant) -> Option<(Slot, Entry)> {
        let (at, slot) = *self.renewals.first()?;
        if now < at {
            return None;
        }
        self.renewals.pop_first();
        self.note_next();
        let entry = self.by_slot.get_mut(&slot).expect("it has a time, so it has an entry");
        entry.renew_at = Instant::MAX;
        Some((slot, *entry))
    }

    /// When [`Self::pop_ended`] or [`Self::pop_renewal`] returns something; [`Instant::MAX`] for
    /// never.
    pub(crate) const fn next_at(&self) -> Instant {
        self.wake_next_at
    }

    /// S5: looks at the lease again when about a `part`th of its record's time has passed. Members
    /// with a lower place do so earlier, and the others then find that the record was renewed.
    pub(crate) fn arm(&mut self, config: &Config, now: Instant, slot: Slot, part: u32) {
        let Some(entry) = self.by_slot.get(&slot) else { return };
        let left = entry.record_ends_at.since(now);
        let jitter = jitter(entry.tenure, left / 64);
        let after = left / part + left / 32 * place(config) + jitter;
        self.arm_at(slot, now.after(after.max(PAUSE_MIN)));
    }

    /// S5: looks at the lease again after this time. Nothing is to be done if its record outlives
    /// its end.
    pub(crate) fn arm_at(&mut self, slot: Slot, at: Instant) {
        if let Some(entry) = self.by_slot.get(&slot).copied() {
            let is_covered = entry.ends_at <= entry.record_ends_at && !self.must_move(&entry);
            let renew_at = if is_covered { Instant::MAX } else { at };
            let (seen, is_urgent) = (entry.record_ends_at, false);
            self.put(slot, Entry { renew_at, seen, is_urgent, ..entry });
        }
    }

    fn spread_soon(&mut self, config: &Config, now: Instant, slot: Slot) {
        if let Some(entry) = self.by_slot.get(&slot).copied() {
            let at = now.after(config.attempt_timeout_min * place(config));
            let renew_at = entry.renew_at.min(at);
            self.put(slot, Entry { renew_at, is_urgent: true, ..entry });
        }
    }

    /// C10: an epoch begins. In a joint one, a member of the old set renews every lease soon and
    /// relays its end.
    pub(crate) fn begin_epoch(&mut self, config: &Config, now: Instant) {
        self.is_moving = has_to_move(config);
        self.relayed.clear();
        let slots: Vec<Slot> = self.by_slot.keys().copied().collect();
        let mut at = now;
        for slot in slots {
            if let Some(entry) = self.by_slot.get_mut(&slot) {
                (entry.moved_to, entry.is_moved) = (MemberSet::EMPTY, false);
            }
            if self.is_moving {
                self.spread_soon(config, at, slot);
                at = at.after(MOVE_SPACING);
            }
        }
    }

    /// C10: whether a lease has to be renewed and its end relayed, even if a peer renewed it.
    pub(crate) const fn must_move(&self, entry: &Entry) -> bool {
        self.is_moving && !entry.is_moved
    }

    /// C10: the end of a lease was relayed to the new set.
    pub(crate) fn relayed(&mut self, slot: Slot, version: Ballot) {
        self.relayed.insert(version, slot);
    }

    /// C10: these acceptors store the end with this version.
    pub(crate) fn moved(&mut self, cell: &Cell, version: Ballot, members: MemberSet) {
        let slot = self.relayed.get(&version);
        if let Some(entry) = slot.and_then(|slot| self.by_slot.get_mut(slot))
            && entry.version == version
        {
            entry.moved_to = entry.moved_to.with(members);
            entry.is_moved = cell.is_stored_by(entry.moved_to);
        }
    }

    /// C10: the leases that the new set may not store.
    pub(crate) fn unmoved(&self) -> usize {
        self.by_slot.values().filter(|entry| self.must_move(entry)).count()
    }

    fn put(&mut self, slot: Slot, entry: Entry) {
        self.remove(slot);
        if entry.is_voted && entry.ends_at < Instant::MAX {
            self.ends.insert((entry.ends_at, slot));
        }
        if entry.renew_at < Instant::MAX {
            self.renewals.insert((entry.renew_at, slot));
        }
        self.by_slot.insert(slot, entry);
        self.note_next();
    }
}

impl Entry {
    /// What is left until the end; `None` when nothing is.
    pub(crate) fn left(&self, now: Instant) -> Option<Standing> {
        let version = self.version;
        Lasts::until(self.ends_at, now).map(|lasts| Standing { lasts, version })
    }

    /// Whether this node has to renew now: no other member has, since it last looked.
    pub(crate) fn is_due(&self) -> bool {
        self.is_urgent || self.record_ends_at <= self.seen
    }

    /// Until when the lease exists, unless it is ended by S2.
    pub(crate) fn exists_until(&self) -> Instant {
        self.record_ends_at.max(self.ends_at)
    }
}

/// C10: whether this node has to see every lease stored by the new set.
fn has_to_move(config: &Config) -> bool {
    let own = config.cell.member(config.node).filter(|_| config.rules.on(Rule::StandingLeasesMove));
    config.cell.is_joint() && own.is_some_and(|own| config.cell.old_set().contains(own))
}

/// How many members have a lower id than this node.
fn place(config: &Config) -> u32 {
    let before = config.cell.members().iter().take_while(|member| **member < config.node);
    before.count() as u32
}

/// Spreads the renewals of leases that began together.
fn jitter(tenure: Tenure, below: Duration) -> Duration {
    let mixed = tenure.fence().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
    below * mixed as u32 / 64
}
