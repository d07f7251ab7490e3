//! The stable record: the two numbers that must survive a crash (R1, R2), and when they may move.
//!
//! The caller owns the disk: [`Ceilings`] says what to write and is told what was written. Nothing
//! above a durable ceiling is issued, promised or accepted. One write is in progress at a time.

use core::time::Duration;

use crate::rules::{Rule, Rules};
use crate::{Ballot, Instant, Ttl};

/// The numbers that a node keeps on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// No ballot with a higher counter was ever issued or promised.
    pub ballot_ceiling: u64,
    /// No longer lease may be live; `None` if no lease may be.
    pub lease_ceiling: Option<Ttl>,
}

impl Record {
    /// W2: the `ballot_ceiling` that is written with a configuration. So no ballot above its floor
    /// has to wait for the disk.
    #[must_use]
    pub const fn above(floor: Ballot) -> u64 {
        floor.counter().saturating_add(BALLOT_BLOCK)
    }
}

/// Ballots that are reserved at a time: a second or two of the heaviest load, and one second of
/// the wall clock that R5 counts by, so that restarts do not overtake that clock.
pub const BALLOT_BLOCK: u64 = 1 << 20;

/// The records that are on disk, being written, and wanted next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ceilings {
    rules: Rules,
    stable: bool,
    durable: Record,
    writing: Option<Record>,
    wanted: Record,
    /// The ceiling that the node started with; it stays for one more window.
    inherited: Option<Ttl>,
    /// The longest ttl accepted since `window_at`.
    longest: Option<Ttl>,
    /// The longest ttl of the last window in which any was accepted.
    used: Option<Ttl>,
    window_at: Instant,
}

impl Ceilings {
    /// With a disk, starting from its record. Leases accepted before may still be live, so the old
    /// ceiling counts as just used.
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

    /// Without a disk, nothing is recorded and nothing waits (R5).
    pub(crate) fn none(now: Instant) -> Self {
        Self { stable: false, ..Self::stable(Rules::ALL, now, Record::default()) }
    }

    /// R1: whether a ballot with this counter may be issued or promised now. Asks for a higher
    /// ceiling if not, and also well before that.
    pub(crate) fn admits_counter(&mut self, counter: u64) -> bool {
        if !self.stable {
            return true;
        }
        if counter.saturating_add(BALLOT_BLOCK / 2) > self.wanted.ballot_ceiling {
            self.wanted.ballot_ceiling = counter.saturating_add(BALLOT_BLOCK);
        }
        counter <= self.durable.ballot_ceiling || !self.rules.on(Rule::BallotWaitsForDisk)
    }

    /// R1: whether a ballot with this counter may be issued now. Asks for no ceiling.
    pub(crate) const fn has_room_for(&self, counter: u64) -> bool {
        !self.stable || counter <= self.durable.ballot_ceiling
    }

    /// R2: whether a lease this long may be accepted now. Asks for a higher ceiling if not.
    pub(crate) fn admits_ttl(&mut self, ttl: Ttl) -> bool {
        if !self.stable {
            return true;
        }
        self.wanted.lease_ceiling = self.wanted.lease_ceiling.max(Some(ttl));
        self.covers_ttl(ttl)
    }

    /// R2: whether a lease this long may be accepted, now and after the write in progress. Asks for
    /// no ceiling.
    pub(crate) fn covers_ttl(&self, ttl: Ttl) -> bool {
        // A lower ceiling applies while it is being written, a higher one only afterwards.
        let written = self.writing.map_or(self.durable.lease_ceiling, |record| {
            record.lease_ceiling.min(self.durable.lease_ceiling)
        });
        !self.stable
            || Some(ttl) <= written.min(self.wanted.lease_ceiling)
            || !self.rules.on(Rule::TtlWaitsForDisk)
    }

    /// Notes that a lease this long was accepted.
    pub(crate) fn accepted(&mut self, ttl: Ttl) {
        self.longest = self.longest.max(Some(ttl));
    }

    /// R2: lowers the lease ceiling to the longest ttl in use, once no lease as long as the ceiling
    /// was accepted for as long as the ceiling. Never lowers it in quarantine, because leases from
    /// before the crash may still be live.
    pub(crate) fn advance_window(&mut self, now: Instant, quarantined: bool) {
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
        // The window was as long as the ceiling, so every live lease was accepted within it. After
        // an idle window the ceiling stays, or the next lease would have to wait for the disk.
        self.used = self.longest.take().or(self.used);
        self.wanted.lease_ceiling = self.used.max(self.inherited.take());
        self.window_at = now;
    }

    /// The record to write next, to be confirmed by [`Self::written`].
    pub(crate) fn poll_write(&mut self) -> Option<Record> {
        if !self.stable || self.writing.is_some() || self.wanted == self.durable {
            return None;
        }
        self.writing = Some(self.wanted);
        self.writing
    }

    /// The record is on disk. Returns whether it was the one being written.
    pub(crate) fn written(&mut self, record: Record) -> bool {
        if self.writing != Some(record) {
            return false;
        }
        self.writing = None;
        let ballot_ceiling = record.ballot_ceiling.max(self.durable.ballot_ceiling);
        self.durable = Record { ballot_ceiling, ..record };
        true
    }

    /// W2: this ballot ceiling is on disk already. The disk never gets a lower one.
    pub(crate) fn raised(&mut self, ballot_ceiling: u64) {
        for record in [&mut self.durable, &mut self.wanted] {
            record.ballot_ceiling = record.ballot_ceiling.max(ballot_ceiling);
        }
    }

    /// The last record that was confirmed to be on disk.
    pub(crate) const fn durable(&self) -> Record {
        self.durable
    }
}
