//! Everything a world draws, from one seed. Whole numbers only: same seed, same world.

use std::time::Duration;

use paxoslease_core::Rng;

/// A generator with the questions a world asks.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Rng);

impl Dice {
    /// One of its own for each purpose, so that drawing more for one leaves the others.
    pub(crate) const fn new(seed: u64, purpose: u64) -> Self {
        Self(Rng::seeded(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, min: u64, max: u64) -> u64 {
        min + ((u128::from(self.bits()) * u128::from(max - min + 1)) >> 64) as u64
    }

    pub(crate) fn span(&mut self, min: Duration, max: Duration) -> Duration {
        Duration::from_nanos(self.between(min.as_nanos() as u64, max.as_nanos() as u64))
    }

    pub(crate) fn millis(&mut self, min: u64, max: u64) -> Duration {
        self.span(Duration::from_millis(min), Duration::from_millis(max))
    }

    /// True so many times in a thousand; draws nothing for never.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        permille > 0 && self.between(0, 999) < permille
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.between(0, of.len() as u64 - 1) as usize]
    }
}
