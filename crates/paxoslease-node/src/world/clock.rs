//! Clocks as the hosts of a world have them: each begins anywhere and runs at a rate of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paxoslease_core::Instant;

use super::At;
use crate::clock::Clock;

const MILLION: u64 = 1_000_000;

/// A host's clock. What it will show is known, so an instant on it has an exact true time.
#[derive(Clone, Debug)]
pub(crate) struct HostClock {
    shown: Arc<AtomicU64>,
    offset: u64,
    /// Millionths of a true nanosecond per nanosecond.
    rate: u64,
}

impl HostClock {
    /// Shows `offset` nanoseconds when the world begins, and runs `ppm` too fast.
    pub(crate) fn new(offset: u64, ppm: i32) -> Self {
        let rate = MILLION.checked_add_signed(i64::from(ppm)).expect("clocks do not go back");
        Self { shown: Arc::new(AtomicU64::new(offset)), offset, rate }
    }

    /// As nodes and guards read it.
    pub(crate) fn handle(&self) -> Clock {
        Clock::manual(Arc::clone(&self.shown))
    }

    /// It is now that late.
    pub(crate) fn show(&self, at: At) {
        self.shown.store(self.read(at).as_nanos(), Ordering::SeqCst);
    }

    pub(crate) fn read(&self, at: At) -> Instant {
        let local = u128::from(at) * u128::from(self.rate) / u128::from(MILLION);
        Instant::from_nanos(self.offset + local as u64)
    }

    /// When it first shows `instant` or later; the end of time if never.
    pub(crate) fn first_shows(&self, instant: Instant) -> At {
        let local = u128::from(instant.as_nanos().saturating_sub(self.offset));
        let at = (local * u128::from(MILLION)).div_ceil(u128::from(self.rate));
        At::try_from(at).unwrap_or(At::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_instant_of_a_reading_is_exact() {
        for ppm in [-20_000, -1, 0, 3, 20_000] {
            let clock = HostClock::new(7_000_000, ppm);
            for local in (8_000_000..900_000_000).step_by(7_654_321) {
                let instant = Instant::from_nanos(local);
                let at = clock.first_shows(instant);
                assert!(clock.read(at) >= instant && clock.read(at - 1) < instant);
            }
            assert_eq!(clock.first_shows(Instant::ZERO), 0);
        }
    }
}
