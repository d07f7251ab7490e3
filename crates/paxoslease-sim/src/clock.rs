//! The clocks of nodes and clients: with an offset, too fast or too slow, coarse.
//!
//! A clock is planned in full when a world begins. So an instant on it can be converted to true
//! time exactly, and checkers and diagrams compare true times.

use std::time::Duration;

use paxoslease_core::Instant;

use crate::trace::TrueTime;

const MILLION: i64 = 1_000_000;

/// A clock. It never goes back. Between two steps of its granularity it stands still.
#[derive(Clone, Debug)]
pub struct Clock {
    pieces: Vec<Piece>,
    granularity: u64,
}

/// From this true instant on, the clock runs at this rate.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: u64,
    local: u64,
    /// Nanoseconds of this clock per millisecond of true time.
    rate: u64,
}

impl Clock {
    /// Shows true time.
    #[must_use]
    pub fn perfect() -> Self {
        Self::new(Duration::ZERO, 0, Duration::ZERO)
    }

    /// Shows `offset` when the world begins, and runs `ppm` too fast (negative: too slow).
    #[must_use]
    pub fn new(offset: Duration, ppm: i32, granularity: Duration) -> Self {
        let local = offset.as_nanos() as u64;
        let granularity = granularity.as_nanos() as u64;
        Self { pieces: vec![Piece { from: 0, local, rate: rate(ppm) }], granularity }
    }

    /// Changes the rate from `at` on, which must be after all earlier changes. At -1,000,000 ppm
    /// the clock stands still, like one that does not count while its machine is suspended.
    #[must_use]
    pub fn then(mut self, at: TrueTime, ppm: i32) -> Self {
        let last = self.pieces.last().expect("a clock has a first piece");
        assert!(at.0 >= last.from, "changes come in order of time");
        let local = last.local_at(at.0);
        self.pieces.push(Piece { from: at.0, local, rate: rate(ppm) });
        self
    }

    /// The reading at this time.
    #[must_use]
    pub fn read(&self, at: TrueTime) -> Instant {
        let later = |piece: &&Piece| piece.from <= at.0;
        let piece = self.pieces.iter().rev().find(later).expect("the first begins with the world");
        let local = piece.local_at(at.0);
        Instant::from_nanos(match self.granularity {
            0 => local,
            granularity => local / granularity * granularity,
        })
    }

    /// When the clock first shows `instant` or later; `u64::MAX` if never.
    #[must_use]
    pub fn first_shows(&self, instant: Instant) -> TrueTime {
        let mut local = instant.as_nanos();
        if self.granularity != 0 {
            let Some(stepped) = local.checked_next_multiple_of(self.granularity) else {
                return TrueTime(u64::MAX);
            };
            local = stepped;
        }
        for (place, piece) in self.pieces.iter().enumerate() {
            let at = piece.reaches(local);
            match self.pieces.get(place + 1) {
                Some(next) if at > next.from => {}
                _ => return TrueTime(at),
            }
        }
        unreachable!("the last piece has no end")
    }
}

impl Piece {
    fn local_at(&self, at: u64) -> u64 {
        self.local + scaled(at - self.from, self.rate, MILLION as u64)
    }

    /// The first true instant at which it shows at least `local`.
    fn reaches(&self, local: u64) -> u64 {
        let Some(span) = local.checked_sub(self.local).filter(|span| *span > 0) else {
            return self.from;
        };
        if self.rate == 0 {
            return u64::MAX;
        }
        let at = u128::from(span) * MILLION as u128;
        let at = at.div_ceil(u128::from(self.rate)) + u128::from(self.from);
        u64::try_from(at).unwrap_or(u64::MAX)
    }
}

fn rate(ppm: i32) -> u64 {
    u64::try_from(MILLION + i64::from(ppm)).expect("clocks do not go back")
}

/// `span * numerator / denominator`, in 64 bits where possible: 128-bit division is slow.
fn scaled(span: u64, numerator: u64, denominator: u64) -> u64 {
    match span.checked_mul(numerator) {
        Some(product) => product / denominator,
        None => (u128::from(span) * u128::from(numerator) / u128::from(denominator)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_reading_is_never_ahead_and_at_most_a_granule_behind() {
        let clock = Clock::new(Duration::from_secs(7), -300, Duration::from_millis(4));
        let exact = Clock::new(Duration::from_secs(7), -300, Duration::ZERO);
        for at in (0..10 * SECOND).step_by(1_234_567) {
            let (coarse, fine) = (clock.read(TrueTime(at)), exact.read(TrueTime(at)));
            assert!(coarse <= fine);
            assert!(fine.since(coarse) < Duration::from_millis(4));
        }
    }

    #[test]
    fn the_first_instant_of_a_reading_is_exact() {
        let still = -MILLION as i32;
        let clock = Clock::new(Duration::from_secs(1), 50_000, Duration::from_micros(10))
            .then(TrueTime(SECOND), -50_000)
            .then(TrueTime(2 * SECOND), still)
            .then(TrueTime(3 * SECOND), 0);
        for local in (SECOND..5 * SECOND).step_by(7_654_321) {
            let instant = Instant::from_nanos(local);
            let at = clock.first_shows(instant);
            assert!(clock.read(at) >= instant);
            assert!(at.0 == 0 || clock.read(TrueTime(at.0 - 1)) < instant);
        }
        assert_eq!(clock.first_shows(Instant::MAX), TrueTime(u64::MAX));
    }

    #[test]
    fn a_stopped_clock_always_shows_the_same() {
        let clock = Clock::perfect().then(TrueTime(SECOND), -MILLION as i32);
        assert_eq!(clock.read(TrueTime(SECOND)), clock.read(TrueTime(9 * SECOND)));
        assert_eq!(clock.first_shows(Instant::from_nanos(2 * SECOND)), TrueTime(u64::MAX));
    }
}
