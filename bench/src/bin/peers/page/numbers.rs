//! Figures as people read them: three digits that count, and how far rounds differ.

use crate::figures::Spread;

/// Operations per second, or any other number that may be large.
pub(crate) fn count(value: f64) -> String {
    match value.abs() {
        999_500.0.. => format!("{:.2} M", value / 1e6),
        99_950.0.. => format!("{:.0} k", value / 1e3),
        9_995.0.. => format!("{:.1} k", value / 1e3),
        999.5.. => format!("{:.2} k", value / 1e3),
        _ => three_digits(value),
    }
}

/// A time that is given in microseconds.
pub(crate) fn micros(value: f64) -> String {
    match value {
        999_500.0.. => format!("{} s", three_digits(value / 1e6)),
        999.5.. => format!("{} ms", three_digits(value / 1e3)),
        _ => format!("{} us", three_digits(value)),
    }
}

/// A factor, or anything else without a unit.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.095.. | 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The median, and between what the rounds were if that can be told apart.
pub(crate) fn with_range(spread: Spread, shown: fn(f64) -> String) -> String {
    let [low, median, high] = [spread.low, spread.median, spread.high].map(shown);
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

/// A factor beside Redis, the other way around where it would have too many noughts.
pub(crate) fn beside_redis(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("Redis / {}", three_digits(1.0 / ratio))
    } else {
        format!("{} x Redis", three_digits(ratio))
    }
}

/// How uneven shares are, or that somebody had none.
pub(crate) fn unevenness(ratio: f64) -> String {
    if ratio.is_finite() { three_digits(ratio) } else { "some never".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_that_count() {
        assert_eq!(
            [12.3, 456.7, 999.9, 5_432.1, 12_345.6, 234_567.8, 999_900.0, 1_234_567.0].map(count),
            ["12.3", "457", "1.00 k", "5.43 k", "12.3 k", "235 k", "1.00 M", "1.23 M"]
        );
        assert_eq!(
            [5.432, 99.99, 1_500.0, 2_345_678.0].map(micros),
            ["5.43 us", "100 us", "1.50 ms", "2.35 s"]
        );
        assert_eq!([0.0, 0.0123, 0.5].map(three_digits), ["0.00", "0.0123", "0.50"]);
    }
}
