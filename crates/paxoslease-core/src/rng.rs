//! The seeded generator of all random delays, so that a shard with the same inputs gives the same
//! outputs. Not for secrets.

use core::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend on the seed only.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a span below `max`; for zero it draws nothing and returns zero.
    pub fn below(&mut self, max: Duration) -> Duration {
        if max.is_zero() {
            return Duration::ZERO;
        }
        let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(((u128::from(self.bits()) * u128::from(nanos)) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_spans_below_the_bound() {
        let (mut a, mut b) = (Rng::seeded(7), Rng::seeded(7));
        let max = Duration::from_millis(3);
        for _ in 0..1000 {
            let drawn = a.below(max);
            assert_eq!(drawn, b.below(max));
            assert!(drawn < max);
        }
        assert_eq!(a.below(Duration::ZERO), Duration::ZERO);
        assert_eq!(a, b);
    }
}
