//! Figures as people read them: three digits that count, and how far rounds differ.

use crate::figures::Spread;

pub(crate) fn count(value: f64) -> String {
    match value.abs() {
        999_500.0.. => format!("{:.2} M", value / 1e6),
        99_950.0.. => format!("{:.0} k", value / 1e3),
        9_995.0.. => format!("{:.1} k", value / 1e3),
        999.5.. => format!("{:.2} k", value / 1e3),
        _ => three_digits(value),
    }
}

/// Formats a time in microseconds.
pub(crate) fn micros(value: f64) -> String {
    match value {
        999_500.0.. => format!("{} s", three_digits(value / 1e6)),
        999.5.. => format!("{} ms", three_digits(value / 1e3)),
        _ => format!("{} us", three_digits(value)),
    }
}

pub(crate) fn percent(value: f64) -> String {
    format!("{} %", three_digits(value))
}

pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        99.95.. => format!("{value:.0}"),
        9.995.. => format!("{value:.1}"),
        0.095.. | 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The median, with the range if it differs after rounding.
pub(crate) fn with_range(spread: Spread, shown: fn(f64) -> String) -> String {
    let [low, median, high] = [spread.low, spread.median, spread.high].map(shown);
    if low == high { median } else { format!("{median} ({low} to {high})") }
}

/// A factor of Redis, inverted below a tenth.
pub(crate) fn beside_redis(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("Redis / {}", three_digits(1.0 / ratio))
    } else {
        format!("{} x Redis", three_digits(ratio))
    }
}

pub(crate) fn unevenness(ratio: f64) -> String {
    if ratio.is_finite() { three_digits(ratio) } else { "some never".to_owned() }
}
