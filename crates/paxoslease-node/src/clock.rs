//! The clocks of a node: the one that measures leases, and the wall clock, from which ballots are
//! counted without a record (R5). Detects pauses of threads.
//!
//! Deliberately lacks sleeping and timers: loops block in their own way and say until when.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use paxoslease_clock::Clock;
#[cfg(test)]
pub(crate) use paxoslease_clock::TimeSource;
use paxoslease_core::{Ballot, Instant};

/// R5: the counter at which ballots begin without a record: the wall clock in ms << 10.
pub(crate) fn wall_counter() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "R5 asks for the wall clock")]
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wall_counter_at(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
}

/// The same for any wall clock.
pub(crate) fn wall_counter_at(millis: u64) -> u64 {
    millis.saturating_mul(1 << 10).min(Ballot::COUNTER_LIMIT)
}

/// A1: the highest counter that a peer may send. It follows from the wall clock at this node's
/// start and the time since then, never from messages, so that no number of messages can use the
/// counters up.
///
/// A cell issues about a million ballots a second at most, and R5's counter advances by as many:
/// the bound moves as fast as an honest cell can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CounterBound {
    at_start: u64,
    started_at: Instant,
}

impl CounterBound {
    /// How far counters may be ahead of the wall clock. Peers whose clocks are wrong by decades can
    /// still take part, and a hostile peer leaves three quarters of the counters unused.
    const MARGIN_MILLIS: u64 = 50 * 31_557_600_000;
    /// When this was written: a wall clock that shows an earlier time is wrong.
    const WRITTEN_MILLIS: u64 = 1_767_225_600_000;
    /// How far counters may be ahead of this node's own counter at its start, if that is beyond the
    /// wall clock and the margin already.
    const AHEAD_OF_OWN_MILLIS: u64 = 24 * 3_600_000;

    /// For a node that starts now with this counter, by a wall clock that shows `wall_counter`.
    pub(crate) fn new(now: Instant, wall_counter: u64, own_counter: u64) -> Self {
        let by_clock = wall_counter.max(wall_counter_at(Self::WRITTEN_MILLIS));
        let by_clock = by_clock.saturating_add(wall_counter_at(Self::MARGIN_MILLIS));
        // Not if it is merely close: this node's bound would be far beyond its peers' bounds.
        let at_start = if own_counter > by_clock {
            own_counter.saturating_add(wall_counter_at(Self::AHEAD_OF_OWN_MILLIS))
        } else {
            by_clock
        };
        Self { at_start, started_at: now }
    }

    pub(crate) fn at(&self, now: Instant) -> u64 {
        let millis = u64::try_from(now.since(self.started_at).as_millis()).unwrap_or(u64::MAX);
        self.at_start.saturating_add(wall_counter_at(millis))
    }
}

/// Detects that a loop did not run when it should have: the process was stopped, the machine was
/// suspended or overloaded, or one turn of the loop took too long.
///
/// A loop computes when it wants to run again from the reading at the beginning of its turn. So a
/// long turn counts as late, with no second reading of the clock.
#[derive(Debug, Default)]
pub(crate) struct PauseDetector {
    back_at: Instant,
    due_at: Option<Instant>,
}

impl PauseDetector {
    /// Shorter delays are ignored.
    const THRESHOLD: Duration = Duration::from_millis(100);

    /// Before blocking: the time when the loop wants to run again. A time before the turn began
    /// means "at once".
    pub(crate) fn expect_back_by(&mut self, at: Instant) {
        self.due_at = Some(at.max(self.back_at));
    }

    /// After blocking: by how much the loop is late, if that is above the threshold.
    pub(crate) fn back(&mut self, now: Instant) -> Option<Duration> {
        self.back_at = now;
        let late = now.since(self.due_at.take()?);
        (late > Self::THRESHOLD).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(millis))
    }

    #[test]
    fn a_counter_below_the_bound_does_not_move_it() {
        let (now, wall) = (at(0), wall_counter_at(CounterBound::WRITTEN_MILLIS));
        let bound = CounterBound::new(now, wall, 0).at(now);
        assert_eq!(CounterBound::new(now, wall, bound).at(now), bound);
        assert!(CounterBound::new(now, wall, bound + 1).at(now) > bound + 1);
    }

    #[test]
    fn the_wall_counter_is_plausible_and_within_the_limit() {
        let written = 1_790_000_000_000 << 10;
        assert!((written..=Ballot::COUNTER_LIMIT).contains(&wall_counter()));
    }

    #[test]
    fn the_bound_on_counters_allows_clocks_wrong_by_decades() {
        const YEAR: u64 = 31_557_600_000;
        let year = |year: u64| wall_counter_at((year - 1970) * YEAR);
        let bound = |wall, own| CounterBound::new(at(0), wall, own).at(at(0));
        assert!(bound(year(1970), 0) > year(2075), "a clock that was never set");
        assert!(bound(year(2070), 0) > year(2119), "a release that is old");
        assert!(bound(year(2027), 0) < year(2078));
        assert!(bound(year(2027), year(2150)) > year(2150), "its own record is beyond the bound");
        assert!(bound(year(2027), year(2150)) < year(2151));
        assert_eq!(bound(u64::MAX, u64::MAX), u64::MAX, "the core cuts it to the limit");
    }

    #[test]
    fn the_bound_on_counters_moves_as_fast_as_the_wall_clock() {
        let bound = CounterBound::new(at(7), wall_counter(), 0);
        assert_eq!(bound.at(at(7 + 1000)) - bound.at(at(7)), 1000 << 10);
        assert_eq!(bound.at(at(0)), bound.at(at(7)), "never below where it began");
    }

    #[test]
    fn only_a_loop_that_runs_later_than_it_wanted_was_paused() {
        // When the turn began, when the loop wants to run again, when it does, and the pause.
        for (what, began, wanted, runs, pause) in [
            ("nothing was expected yet", 0, None, 5, None),
            ("woken by input", 5, Some(50), 20, None),
            ("late by the threshold", 5, Some(50), 150, None),
            ("late by more", 5, Some(50), 151, Some(101)),
            ("a long turn, although input waits", 1000, Some(1010), 6000, Some(4990)),
            ("already overdue when the turn began", 1000, Some(0), 1001, None),
        ] {
            let mut detector = PauseDetector::default();
            detector.back(at(began));
            if let Some(wanted) = wanted {
                detector.expect_back_by(at(wanted));
            }
            assert_eq!(detector.back(at(runs)), pause.map(Duration::from_millis), "{what}");
            assert_eq!(detector.back(at(9000)), None, "{what}: it is reported once");
        }
    }
}
