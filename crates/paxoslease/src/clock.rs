//! The clocks of a node: the one that leases are measured by, and the wall clock that ballots are
//! counted from where nothing better is left (R5).
//!
//! Owns the notice that a thread was paused. Deliberately lacks sleeping and timers: loops block in
//! their own way and say when they meant to be back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use paxoslease_clock::Clock;
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
    fn the_wall_counter_is_after_this_was_written_and_within_what_acceptors_take() {
        let written = 1_790_000_000_000 << 10;
        assert!((written..=Ballot::COUNTER_LIMIT).contains(&wall_counter()));
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
