//! A clock that runs at another rate, for the chaos harness. The rate comes from the environment,
//! and only in a build with the feature `chaos`, which no release has. The harness itself proves
//! that the rate takes effect: it finds the harm that clocks beyond the drift bound do.

use std::sync::LazyLock;
use std::time::Duration;

/// How many parts per million the clock runs too fast; negative when it runs too slowly.
const VARIABLE: &str = "PAXOSLEASE_CLOCK_PPM";
const MILLION: i64 = 1_000_000;

/// The rate of this process, in parts per million.
pub(crate) fn ppm() -> i64 {
    static PPM: LazyLock<i64> = LazyLock::new(|| {
        let Ok(text) = std::env::var(VARIABLE) else { return 0 };
        let ppm = text.parse().ok().filter(|ppm: &i64| ppm.abs() < MILLION);
        ppm.unwrap_or_else(|| panic!("{VARIABLE}={text}: expected -999999 to 999999, such as 500"))
    });
    *PPM
}

/// What the clock shows `nanos` after the machine started.
pub(crate) fn shown(nanos: u64, ppm: i64) -> u64 {
    (i128::from(nanos) * i128::from(MILLION + ppm) / i128::from(MILLION)) as u64
}

/// How long the machine takes while the clock counts `span`.
pub(crate) fn passed(span: Duration, ppm: i64) -> Duration {
    let nanos = span.as_nanos() as i128 * i128::from(MILLION) / i128::from(MILLION + ppm);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_clock_takes_longer_to_count_a_span() {
        let second = Duration::from_secs(1);
        assert_eq!(shown(1_000_000_000, -500_000), 500_000_000);
        assert_eq!(passed(second, -500_000), 2 * second);
        assert_eq!((shown(7, 0), passed(second, 0)), (7, second));
        assert!(passed(second, 1000) < second);
    }

    #[test]
    fn the_two_conversions_are_inverse() {
        for ppm in [-999_999, -1000, -1, 0, 1, 1000, 200_000, 999_999] {
            for nanos in [0, 1, 999, 1_000_000_007, 90_000_000_000_000] {
                let back = passed(Duration::from_nanos(shown(nanos, ppm)), ppm);
                // The step of a clock that rounds down.
                let grain = 1 + 1_000_000 / (1_000_000 + ppm).unsigned_abs();
                let off = Duration::from_nanos(nanos).abs_diff(back).as_nanos();
                assert!(off <= u128::from(grain), "{nanos} at {ppm}: {back:?}");
            }
        }
    }
}
