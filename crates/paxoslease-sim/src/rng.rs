//! The seeded random numbers of a world: the core's generator with more distributions. The same
//! seed gives the same numbers on every machine, because all are integers.

use std::time::Duration;

/// Deterministic random numbers.
#[derive(Clone, Debug)]
pub struct Rng(paxoslease_core::Rng);

impl Rng {
    /// A generator for one purpose, so that more numbers for one purpose do not change the others.
    #[must_use]
    pub const fn new(seed: u64, purpose: u64) -> Self {
        let seed = seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Self(paxoslease_core::Rng::seeded(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `min` to `max`, both included.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        min + self.below(max.saturating_sub(min) + 1)
    }

    /// A whole number of milliseconds from `min` to `max`.
    pub fn millis(&mut self, min: u64, max: u64) -> Duration {
        Duration::from_millis(self.between(min, max))
    }

    /// A span of this range, both ends included, in nanoseconds.
    pub fn span(&mut self, (min, max): (Duration, Duration)) -> Duration {
        Duration::from_nanos(self.between(min.as_nanos() as u64, max.as_nanos() as u64))
    }

    /// A span from zero to `max`, in nanoseconds.
    pub fn up_to(&mut self, max: Duration) -> Duration {
        self.span((Duration::ZERO, max))
    }

    /// True with a probability of `permille` in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// A random element.
    ///
    /// # Panics
    /// When `from` is empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
