//! When names leave an acceptor's table (A7): released ones after a few round trips, other idle
//! ones when a sweep finds them for the second time.
//!
//! The moment is a matter of speed and memory only. Whenever an entry goes, its promise is folded
//! into the floor.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::protocol::acceptor::Acceptor;
use crate::rules::Rule;
use crate::storage::Slot;
use crate::storage::table::PREFETCH_BATCH;
use crate::{Ballot, Config, Instant, Label, Tenure};

/// A released name is reclaimed after this many round trips. By then every proposal whose sender
/// did not know the ballots this name has seen has arrived.
const RECLAIM_ROUND_TRIPS: u32 = 4;
/// The shortest such time: a round trip may take longer than the ones measured.
const RECLAIM_MIN: Duration = Duration::from_millis(5);

/// The most released names that wait for that; the sweep finds the others.
const RELEASED_MAX: usize = 1 << 18;

/// Slots to sweep for every name that is added, so that expired names leave as fast as new ones
/// come: a pass is over before the number of names has grown by half.
const SWEPT_PER_NAME: u32 = 4;

/// A name that was released. As long as the entry still has this promise, nothing happened since.
#[derive(Clone, Copy, Debug)]
struct ReleasedName {
    slot: Slot,
    promised: Ballot,
    at: Instant,
}

/// The names that leave soon, and how far the sweep has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaiming {
    /// Names to reclaim soon, in order of time.
    released: VecDeque<ReleasedName>,
    /// How long they are kept; `None` while round trips are unknown.
    delay: Option<Duration>,
    sweep_next: u32,
    /// Slots to sweep because names were added that were not released yet.
    owed: u32,
    /// When the last slot was swept.
    swept_at: Instant,
}

impl Acceptor {
    /// The name in this slot can be reclaimed soon.
    pub(crate) fn note_released(&mut self, now: Instant, slot: Slot) {
        if self.reclaiming.released.len() < RELEASED_MAX {
            let promised = self.table.entry(slot).register.promised;
            self.reclaiming.released.push_back(ReleasedName { slot, promised, at: now });
        }
    }

    /// A name was added that was not released yet.
    pub(crate) fn note_added(&mut self) {
        self.reclaiming.owed = self.reclaiming.owed.saturating_add(SWEPT_PER_NAME);
    }

    #[cfg(feature = "digest")]
    pub(crate) const fn sweep_state(&self) -> (u32, Instant) {
        (self.reclaiming.sweep_next, self.reclaiming.swept_at)
    }

    /// Reclaims released names after a few round trips as long as this one.
    pub(crate) fn set_reclaim_trip(&mut self, round_trip: Duration) {
        self.reclaiming.delay =
            Some(round_trip.saturating_mul(RECLAIM_ROUND_TRIPS).max(RECLAIM_MIN));
    }

    /// A7: reclaims names that were released a few round trips ago, and looks at `slots_max` slots
    /// for other idle names. Calls `expired` once for each lease that ran out.
    pub(crate) fn sweep(
        &mut self,
        config: &Config,
        now: Instant,
        slots_max: u32,
        expired: impl FnMut(&Label, Tenure),
    ) {
        self.ended.forget_old(now);
        self.sweep_released(config, now, slots_max);
        let looked_at = self.sweep_slots(config, now, slots_max, expired);
        self.reclaiming.owed = self.reclaiming.owed.saturating_sub(looked_at);
    }

    /// Like [`Self::sweep`], but looks at no more slots than [`Self::owed`] asks for.
    pub(crate) fn sweep_owed(
        &mut self,
        config: &Config,
        now: Instant,
        slots_max: u32,
        expired: impl FnMut(&Label, Tenure),
    ) {
        self.sweep_released(config, now, slots_max);
        let slots = self.reclaiming.owed.min(slots_max);
        self.reclaiming.owed -= self.sweep_slots(config, now, slots, expired);
    }

    fn sweep_released(&mut self, config: &Config, now: Instant, names_max: u32) {
        let delay = config.reclaim_after.min(self.reclaiming.delay.unwrap_or(Duration::MAX));
        let is_due = |released: &ReleasedName| now >= released.at.after(delay);
        for place in 0..names_max as usize {
            if place.is_multiple_of(PREFETCH_BATCH) && self.table.is_large() {
                let due = self
                    .reclaiming
                    .released
                    .iter()
                    .take(PREFETCH_BATCH)
                    .take_while(|name| is_due(name));
                let entries = due.filter_map(|name| self.table.get(name.slot));
                self.table.prefetch(entries.map(|entry| entry.label.name().as_bytes()));
            }
            let Some(ReleasedName { slot, promised, .. }) =
                self.reclaiming.released.pop_front_if(|name| is_due(name))
            else {
                return;
            };
            let entry = self.table.get(slot).filter(|entry| entry.register.promised == promised);
            let is_idle = entry.is_some_and(|entry| entry.register.live(now).is_none());
            if is_idle && self.registers.get(slot).is_none() {
                self.reclaim(config, slot);
                self.reclaiming.owed = self.reclaiming.owed.saturating_sub(SWEPT_PER_NAME);
            }
        }
    }

    /// Reclaims entries that stayed idle for a whole pass. A pass begins `reclaim_after` after the
    /// last one ended. Returns how many slots were looked at.
    fn sweep_slots(
        &mut self,
        config: &Config,
        now: Instant,
        slots_max: u32,
        mut expired: impl FnMut(&Label, Tenure),
    ) -> u32 {
        for looked_at in 0..slots_max {
            if self.reclaiming.sweep_next >= self.table.slot_count() {
                if now < self.reclaiming.swept_at.after(config.reclaim_after) {
                    return looked_at;
                }
                self.reclaiming.sweep_next = 0;
                if self.table.is_empty() {
                    return looked_at;
                }
            }
            self.reclaiming.swept_at = now;
            let slot = Slot::new(self.reclaiming.sweep_next);
            self.reclaiming.sweep_next += 1;
            let Some(entry) = self.table.get(slot) else { continue };
            if entry.register.live(now).is_some() || self.registers.get(slot).is_some() {
                continue;
            }
            if !self.table.is_marked(slot) {
                if let Some(over) = entry.register.accepted {
                    expired(&entry.label, over.tenure);
                }
                self.table.mark(slot);
                continue;
            }
            self.reclaim(config, slot);
        }
        slots_max
    }

    /// A7: removes an entry and raises the floor to its promise.
    fn reclaim(&mut self, config: &Config, slot: Slot) {
        let entry = self.table.remove(slot);
        self.turns.remove(slot);
        if config.rules.on(Rule::ReclaimFoldsIntoFloor) {
            self.raise_floor(entry.register.promised);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::record::Ceilings;
    use crate::{Cell, Drift, Holder, Name, NodeId, ReleaseId, Request, Ttl};

    #[test]
    fn the_sweep_finds_released_names_beyond_the_bound() {
        let node = NodeId::new(1).unwrap();
        let ttl = Ttl::from_millis(10_000).unwrap();
        let cell = Cell::new(&[node], ttl, Drift::NONE).unwrap();
        let config = Config::new(node, cell, 1);
        let mut ceilings = Ceilings::none(Instant::ZERO);
        let mut acceptor = Acceptor::new(&config, Ballot::ZERO, Instant::ZERO, false);
        acceptor.set_reclaim_trip(Duration::ZERO);
        let gone =
            ReleasedName { slot: Slot::new(u32::MAX), promised: Ballot::ZERO, at: Instant::ZERO };
        acceptor.reclaiming.released.extend(core::iter::repeat_n(gone, RELEASED_MAX - 1));
        for (counter, text) in [(1, "listed"), (2, "unlisted")] {
            let (name, ballot) = (Name::new(text).unwrap(), Ballot::new(counter, node));
            let tenure = Tenure::of(ballot).unwrap();
            let propose = Request::Propose { name, ballot, ttl, holder: Holder::NONE };
            let id = ReleaseId::from_u64(counter);
            for request in [propose, Request::Release { name, tenure, id }] {
                let now = Instant::ZERO;
                acceptor.answer(&config, &mut ceilings, now, node, &request).expect("room");
            }
        }
        assert_eq!((acceptor.reclaiming.released.len(), acceptor.table.len()), (RELEASED_MAX, 2));
        let mut now = Instant::ZERO.after(RECLAIM_MIN);
        acceptor.sweep_released(&config, now, u32::MAX);
        assert_eq!((acceptor.reclaiming.released.len(), acceptor.table.len()), (0, 1));
        assert!(acceptor.table.find(Name::new("unlisted").unwrap()).is_some());
        for _ in 0..2 {
            acceptor.sweep(&config, now, 100, |_, _| panic!("it was released"));
            now = now.after(config.reclaim_after);
        }
        assert_eq!(acceptor.table.len(), 0);
    }
}
