//! The stable record: the two numbers that must survive a crash (R1, R2), and when they may move.
//!
//! The disk is the caller's: [`Ceilings`] says what to write and hears what was written. Nothing
//! above a durable ceiling is issued, promised or accepted. One write is under way at a time.

use core::time::Duration;

use crate::rules::{Rule, Rules};
use crate::{Instant, Ttl};

/// What a node keeps on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// No ballot with a counter above this was ever issued or promised.
    pub ballot_ceiling: u64,
    /// No lease longer than this was ever accepted; `None` when none was.
    pub lease_ceiling: Option<Ttl>,
}

/// How many ballots are reserved at a time: a second or two of the heaviest load, and one second
/// of the wall clock that R5 counts by, so that restarts do not outrun it.
pub const BALLOT_BLOCK: u64 = 1 << 20;

/// What is on disk, what is on its way there, and what should be next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ceilings {
    rules: Rules,
    stable: bool,
    durable: Record,
    writing: Option<Record>,
    wanted: Record,
    /// What the node started with: as if accepted then, so that it stays for a window more.
    inherited: Option<Ttl>,
    /// The longest ttl accepted since `window_at`.
    longest: Option<Ttl>,
    /// The longest ttl of the last window that had any.
    used: Option<Ttl>,
    window_at: Instant,
}

impl Ceilings {
    /// With a disk, starting from what it holds. Everything accepted before may still be out, so
    /// the old ceiling counts as just used.
    pub(crate) fn stable(rules: Rules, now: Instant, record: Record) -> Self {
        let inherited =
            if rules.on(Rule::LeaseCeilingKeptInQuarantine) { record.lease_ceiling } else { None };
        Self {
            rules,
            stable: true,
            durable: record,
            writing: None,
            wanted: record,
            inherited,
            longest: None,
            used: None,
            window_at: now,
        }
    }

    /// Without a disk nothing is recorded and nothing waits (R5).
    pub(crate) fn none(now: Instant) -> Self {
        let record = Record::default();
        Self {
            rules: Rules::ALL,
            stable: false,
            durable: record,
            writing: None,
            wanted: record,
            inherited: None,
            longest: None,
            used: None,
            window_at: now,
        }
    }

    /// R1: whether a ballot with this counter may be issued or promised now. If not, it asks for
    /// a higher ceiling; well before that it asks ahead of need.
    pub(crate) fn admits_counter(&mut self, counter: u64) -> bool {
        if !self.stable {
            return true;
        }
        if counter.saturating_add(BALLOT_BLOCK / 2) > self.wanted.ballot_ceiling {
            self.wanted.ballot_ceiling = counter.saturating_add(BALLOT_BLOCK);
        }
        counter <= self.durable.ballot_ceiling || !self.rules.on(Rule::BallotWaitsForDisk)
    }

    /// R1: whether a ballot with this counter may be issued now. Asks for nothing.
    pub(crate) const fn has_room_for(&self, counter: u64) -> bool {
        !self.stable || counter <= self.durable.ballot_ceiling
    }

    /// R2: whether a lease this long may be accepted now. If not, it asks for a higher ceiling.
    pub(crate) fn admits_ttl(&mut self, ttl: Ttl) -> bool {
        if !self.stable {
            return true;
        }
        self.wanted.lease_ceiling = self.wanted.lease_ceiling.max(Some(ttl));
        self.covers_ttl(ttl)
    }

    /// Whether a lease this long may be accepted now, and goes on to be. Asks for nothing.
    pub(crate) fn covers_ttl(&self, ttl: Ttl) -> bool {
        // A ceiling on its way down is in force already, one on its way up not yet.
        let written = self.writing.map_or(self.durable.lease_ceiling, |record| {
            record.lease_ceiling.min(self.durable.lease_ceiling)
        });
        !self.stable
            || Some(ttl) <= written.min(self.wanted.lease_ceiling)
            || !self.rules.on(Rule::TtlWaitsForDisk)
    }

    /// A lease this long was accepted.
    pub(crate) fn accepted(&mut self, ttl: Ttl) {
        self.longest = self.longest.max(Some(ttl));
    }

    /// R2: lowers the lease ceiling to what is in use once it has been out of use as long as it is,
    /// and never while quarantined (leases from before the crash may still be out).
    pub(crate) fn turn_window(&mut self, now: Instant, quarantined: bool) {
        if !self.stable {
            return;
        }
        let mut window = self.wanted.lease_ceiling.map_or(Duration::ZERO, Ttl::as_duration);
        if quarantined {
            if self.rules.on(Rule::LeaseCeilingKeptInQuarantine) {
                return;
            }
            window = Duration::ZERO;
        }
        if window.is_zero() && self.wanted.lease_ceiling.is_none()
            || now < self.window_at.after(window)
        {
            return;
        }
        // Whatever is still out was accepted within this window: it was as long as the ceiling.
        // An idle window keeps what was in use before, or the next lease would wait for the disk.
        self.used = self.longest.take().or(self.used);
        self.wanted.lease_ceiling = self.used.max(self.inherited.take());
        self.window_at = now;
    }

    /// What to write next, if anything; to be confirmed by [`Self::written`].
    pub(crate) fn poll_write(&mut self) -> Option<Record> {
        if !self.stable || self.writing.is_some() || self.wanted == self.durable {
            return None;
        }
        self.writing = Some(self.wanted);
        self.writing
    }

    /// The record asked for is on disk. Returns whether it was the one under way.
    pub(crate) fn written(&mut self, record: Record) -> bool {
        if self.writing != Some(record) {
            return false;
        }
        self.writing = None;
        self.durable = record;
        true
    }

    /// What is surely on disk.
    pub(crate) const fn durable(&self) -> Record {
        self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(millis: u32) -> Ttl {
        Ttl::from_millis(millis).expect("not zero")
    }
    fn at(millis: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(millis))
    }
    fn settled(ceilings: &mut Ceilings) -> Record {
        while let Some(record) = ceilings.poll_write() {
            assert!(ceilings.written(record));
        }
        ceilings.durable()
    }

    #[test]
    fn nothing_above_a_ceiling_is_admitted_before_it_is_durable() {
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), Record::default());
        assert!(!ceilings.admits_counter(1));
        assert!(!ceilings.admits_ttl(ttl(100)));
        let record = ceilings.poll_write().expect("a write is wanted");
        assert_eq!(ceilings.poll_write(), None, "one at a time");
        assert!(!ceilings.admits_counter(1) && !ceilings.admits_ttl(ttl(100)));
        assert!(ceilings.written(record));
        assert!(ceilings.admits_counter(1) && ceilings.admits_ttl(ttl(100)));
        assert!(!ceilings.admits_ttl(ttl(101)));
    }

    #[test]
    fn ballots_are_reserved_ahead_of_need() {
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), Record::default());
        ceilings.admits_counter(1);
        settled(&mut ceilings);
        let half = BALLOT_BLOCK / 2 + 2;
        assert!(ceilings.admits_counter(half), "still below the ceiling");
        assert!(ceilings.poll_write().is_some(), "and already asking for the next block");
    }

    #[test]
    fn the_lease_ceiling_falls_only_after_it_was_unused_for_as_long_as_it_is() {
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), Record::default());
        ceilings.admits_ttl(ttl(1000));
        settled(&mut ceilings);
        ceilings.accepted(ttl(1000));
        let mut lowered_at = None;
        for millis in (0..5000).step_by(10) {
            ceilings.accepted(ttl(50));
            ceilings.turn_window(at(millis), false);
            if settled(&mut ceilings).lease_ceiling < Some(ttl(1000)) {
                lowered_at.get_or_insert(millis);
            }
        }
        let lowered_at = lowered_at.expect("lowered in the end");
        assert!(lowered_at >= 1000, "not while the long lease could live: {lowered_at}");
        assert_eq!(settled(&mut ceilings).lease_ceiling, Some(ttl(50)));
    }

    #[test]
    fn the_lease_ceiling_never_falls_during_quarantine() {
        let record = Record { ballot_ceiling: 9, lease_ceiling: Some(ttl(1000)) };
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), record);
        for millis in (0..9000).step_by(10) {
            ceilings.turn_window(at(millis), true);
        }
        assert_eq!(settled(&mut ceilings).lease_ceiling, Some(ttl(1000)));
    }

    #[test]
    fn a_ceiling_on_its_way_down_is_already_in_force() {
        let record = Record { ballot_ceiling: u64::MAX, lease_ceiling: Some(ttl(1000)) };
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), record);
        ceilings.turn_window(at(1000), false);
        ceilings.accepted(ttl(50));
        ceilings.turn_window(at(2000), false);
        let lower = ceilings.poll_write().expect("a lower ceiling");
        assert_eq!(lower.lease_ceiling, Some(ttl(50)));
        assert!(!ceilings.admits_ttl(ttl(1000)), "the disk may say 50 at any moment");
        assert!(ceilings.written(lower));
        assert!(!ceilings.admits_ttl(ttl(1000)));
        settled(&mut ceilings);
        assert!(ceilings.admits_ttl(ttl(1000)));
    }

    #[test]
    fn an_idle_spell_leaves_nothing_for_the_disk_to_do() {
        let record = Record { ballot_ceiling: u64::MAX, lease_ceiling: Some(ttl(1000)) };
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), record);
        ceilings.accepted(ttl(1000));
        for millis in (0..9000).step_by(10) {
            ceilings.turn_window(at(millis), false);
            assert_eq!(ceilings.poll_write(), None);
        }
        assert!(ceilings.admits_ttl(ttl(1000)), "the next lease need not wait for it");
    }

    #[test]
    fn an_inherited_ceiling_that_is_never_used_goes_away() {
        let record = Record { ballot_ceiling: u64::MAX, lease_ceiling: Some(ttl(1000)) };
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), record);
        for millis in (0..2000).step_by(10) {
            ceilings.turn_window(at(millis), false);
            assert_eq!(ceilings.poll_write(), None, "restored leases may live for so long");
        }
        ceilings.turn_window(at(2000), false);
        assert_eq!(settled(&mut ceilings).lease_ceiling, None);
    }

    #[test]
    fn a_confirmation_of_another_write_is_ignored() {
        let mut ceilings = Ceilings::stable(Rules::ALL, at(0), Record::default());
        ceilings.admits_counter(1);
        ceilings.poll_write();
        assert!(!ceilings.written(Record { ballot_ceiling: u64::MAX, lease_ceiling: None }));
        assert!(!ceilings.admits_counter(1));
    }
}
