//! The clocks of a node: the one that leases are measured by, and the wall clock that ballots are
//! counted from where nothing better is left (R5).
//!
//! Owns the notice that a thread was paused. Deliberately lacks sleeping and timers: loops block in
//! their own way and say when they meant to be back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use paxoslease_clock::Clock;
#[cfg(test)]
pub(crate) use paxoslease_clock::TimeSource;
use paxoslease_core::{Ballot, Instant};

/// R5: where ballots begin when no record says how far they went: the wall clock in ms << 10.
pub(crate) fn wall_counter() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "R5 asks for the wall clock")]
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wall_counter_at(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
}

/// The same for any wall clock.
pub(crate) fn wall_counter_at(millis: u64) -> u64 {
    millis.saturating_mul(1 << 10).min(Ballot::COUNTER_LIMIT)
}

/// A1: how far a peer's counter may be. From the wall clock at this node's start and the time since
/// then, never from what peers said, so that no number of messages can use the counters up.
///
/// A cell issues about a million ballots a second at most, and R5's counter advances by as many:
/// the bound moves as fast as an honest cell can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CounterBound {
    at_start: u64,
    started_at: Instant,
}

impl CounterBound {
    /// How far counters may be ahead of the wall clock. Peers whose clocks are wrong by decades
    /// can still take part, and a peer that lies leaves three quarters of the space unused.
    const MARGIN_MILLIS: u64 = 50 * 31_557_600_000;
    /// When this was written: a wall clock that shows less is wrong.
    const WRITTEN_MILLIS: u64 = 1_767_225_600_000;
    /// How far counters may be ahead of this node's own at its start, if that is beyond the wall
    /// clock and the margin already.
    const AHEAD_OF_OWN_MILLIS: u64 = 24 * 3_600_000;

    /// For a node that starts now with this counter, by a wall clock that shows `wall_counter`.
    pub(crate) fn new(now: Instant, wall_counter: u64, own_counter: u64) -> Self {
        let by_clock = wall_counter.max(wall_counter_at(Self::WRITTEN_MILLIS));
        let by_clock = by_clock.saturating_add(wall_counter_at(Self::MARGIN_MILLIS));
        // Not if it is merely close: this node's bound would be far beyond those of its peers.
        let at_start = if own_counter > by_clock {
            own_counter.saturating_add(wall_counter_at(Self::AHEAD_OF_OWN_MILLIS))
        } else {
            by_clock
        };
        Self { at_start, started_at: now }
    }

    /// The bound now.
    pub(crate) fn at(&self, now: Instant) -> u64 {
        let millis = u64::try_from(now.since(self.started_at).as_millis()).unwrap_or(u64::MAX);
        self.at_start.saturating_add(wall_counter_at(millis))
    }
}

/// Notices that a loop did not run when it should have: the process was stopped, the machine
/// suspended or overloaded, or one turn of the loop took too long.
///
/// The instant a loop wants to be back by is computed from the reading its turn began with. So a
/// long turn counts as being late, with no second reading of the clock.
#[derive(Debug)]
pub(crate) struct PauseDetector {
    threshold: Duration,
    back_at: Instant,
    due_at: Option<Instant>,
}

impl Default for PauseDetector {
    fn default() -> Self {
        Self::new(Duration::from_millis(100))
    }
}

impl PauseDetector {
    /// One that forgives being late by up to `threshold`.
    pub(crate) const fn new(threshold: Duration) -> Self {
        Self { threshold, back_at: Instant::ZERO, due_at: None }
    }

    /// Before blocking: until when, at most. An instant before the turn began means "at once".
    pub(crate) fn expect_back_by(&mut self, at: Instant) {
        self.due_at = Some(at.max(self.back_at));
    }

    /// After blocking: by how much the loop is late, if that is worth a word.
    pub(crate) fn back(&mut self, now: Instant) -> Option<Duration> {
        self.back_at = now;
        let late = now.since(self.due_at.take()?);
        (late > self.threshold).then_some(late)
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
    fn the_wall_counter_is_after_this_was_written_and_within_what_acceptors_take() {
        let written = 1_790_000_000_000 << 10;
        assert!((written..=Ballot::COUNTER_LIMIT).contains(&wall_counter()));
    }

    #[test]
    fn the_bound_on_counters_takes_in_clocks_that_are_wrong_by_decades() {
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
    fn being_back_in_time_or_early_is_no_pause() {
        let mut detector = PauseDetector::default();
        assert_eq!(detector.back(at(5)), None, "nothing was expected yet");
        detector.expect_back_by(at(50));
        assert_eq!(detector.back(at(20)), None, "woken by input");
        detector.expect_back_by(at(50));
        assert_eq!(detector.back(at(150)), None, "at the threshold");
    }

    #[test]
    fn being_back_late_is_a_pause_as_long_as_the_lateness() {
        let mut detector = PauseDetector::default();
        detector.expect_back_by(at(50));
        assert_eq!(detector.back(at(151)), Some(Duration::from_millis(101)));
        assert_eq!(detector.back(at(900)), None, "and is reported once");
    }

    #[test]
    fn a_long_turn_is_a_pause_even_if_input_is_waiting() {
        let mut detector = PauseDetector::default();
        detector.back(at(1000));
        // The turn now takes five seconds; its next tick was computed when it began.
        detector.expect_back_by(at(1000 + 10));
        assert_eq!(detector.back(at(6000)), Some(Duration::from_millis(4990)));
    }

    #[test]
    fn a_timer_that_was_overdue_when_the_turn_began_is_no_pause() {
        let mut detector = PauseDetector::default();
        detector.back(at(1000));
        detector.expect_back_by(Instant::ZERO);
        assert_eq!(detector.back(at(1001)), None);
    }
}
