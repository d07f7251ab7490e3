//! Spans of time as people write them: `500ms`, `15s`, `1m30s`.
//!
//! Exact: what cannot be said in whole nanoseconds is refused, not rounded. There are no months
//! or years, and no bare numbers: a number without a unit is what people get wrong.

use std::time::Duration;

use thiserror::Error;

/// What a unit is called, and how many nanoseconds it has; from large to small.
const UNITS: [(&str, u64); 8] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// A day has 2^16 5^11 times 27 nanoseconds, so no longer fraction of any unit is a whole number.
const FRACTION_DIGITS_MAX: usize = 16;

/// Why a text is no span of time.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DurationError {
    /// Nothing is there.
    #[error("an empty duration; write a number and a unit, such as 15s or 500ms")]
    Empty,
    /// A number has no unit.
    #[error("{0} has no unit; write {0}s or {0}ms")]
    NoUnit(String),
    /// A unit has no number, or a number is misspelt.
    #[error("{0:?} is no duration; write a number and a unit, such as 15s or 500ms")]
    NoNumber(String),
    /// A unit is unknown.
    #[error("{0:?} is no unit of time; use d, h, m, s, ms, us or ns, as in 15s or 1m30s")]
    UnknownUnit(String),
    /// Units are repeated, or a smaller one comes first.
    #[error("{0:?} is ambiguous; write each unit once, the largest first, as in 1m30s")]
    Order(String),
    /// It has a fraction of a nanosecond.
    #[error("{0:?} is finer than a nanosecond; use fewer digits")]
    TooFine(String),
    /// It does not fit into 64 bits of nanoseconds.
    #[error("{0:?} is too long; at most 584 years can be counted")]
    TooLong(String),
}

/// Reads a span of time such as `500ms`, `15s`, `1.5h` or `1m30s`.
///
/// # Errors
/// Says what is wrong and what to write instead.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(paxoslease_node::parse_duration("1m30s"), Ok(Duration::from_secs(90)));
/// let error = paxoslease_node::parse_duration("15").unwrap_err();
/// assert_eq!(error.to_string(), "15 has no unit; write 15s or 15ms");
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let whole = || text.to_owned();
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let (mut rest, mut nanos, mut unit_before) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
        if number.is_empty() {
            return Err(DurationError::NoNumber(whole()));
        }
        if unit.is_empty() {
            return Err(DurationError::NoUnit(number.to_owned()));
        }
        let Some((_, unit_nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit(unit.to_owned()));
        };
        if *unit_nanos >= unit_before {
            return Err(DurationError::Order(whole()));
        }
        let part = nanos_of(text, number, *unit_nanos)?;
        nanos = nanos.checked_add(part).ok_or_else(|| DurationError::TooLong(whole()))?;
        (rest, unit_before) = (after, *unit_nanos);
    }
    Ok(Duration::from_nanos(nanos))
}

/// `number` units of `unit_nanos` each; `text` is the whole, for errors.
fn nanos_of(text: &str, number: &str, unit_nanos: u64) -> Result<u64, DurationError> {
    let whole = || text.to_owned();
    let (integer, fraction) = match number.split_once('.') {
        Some((integer, fraction))
            if !integer.is_empty() && !fraction.is_empty() && !fraction.contains('.') =>
        {
            (integer, fraction.trim_end_matches('0'))
        }
        Some(_) => return Err(DurationError::NoNumber(whole())),
        None => (number, ""),
    };
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(DurationError::TooFine(whole()));
    }
    let too_long = || DurationError::TooLong(whole());
    let digits: u128 = format!("{integer}{fraction}").parse().map_err(|_| too_long())?;
    let scaled = digits.checked_mul(u128::from(unit_nanos)).ok_or_else(too_long)?;
    let scale = 10u128.pow(fraction.len() as u32);
    if !scaled.is_multiple_of(scale) {
        return Err(DurationError::TooFine(whole()));
    }
    u64::try_from(scaled / scale).map_err(|_| too_long())
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood() {
        let cases = [
            ("500ms", Duration::from_millis(500)),
            ("15s", Duration::from_secs(15)),
            ("2m", Duration::from_secs(120)),
            ("1h", Duration::from_secs(3600)),
            ("50us", Duration::from_micros(50)),
            ("50µs", Duration::from_micros(50)),
            ("1m30s", Duration::from_secs(90)),
            ("1d2h3m4s5ms6us7ns", Duration::from_nanos(93_784_005_006_007)),
            ("1.5s", Duration::from_millis(1500)),
            ("0.25m", Duration::from_secs(15)),
            ("0.0000000000003125d", Duration::from_nanos(27)),
            ("0s", Duration::ZERO),
            ("1.000000000000000000000000s", Duration::from_secs(1)),
            ("18446744073709551615ns", Duration::from_nanos(u64::MAX)),
        ];
        for (text, span) in cases {
            assert_eq!(parse_duration(text), Ok(span), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_what_to_write() {
        let cases = [
            ("", "an empty duration; write a number and a unit, such as 15s or 500ms"),
            ("15", "15 has no unit; write 15s or 15ms"),
            ("1m30", "30 has no unit; write 30s or 30ms"),
            ("s", "\"s\" is no duration; write a number and a unit, such as 15s or 500ms"),
            ("-5s", "\"-5s\" is no duration; write a number and a unit, such as 15s or 500ms"),
            (
                "1.2.3s",
                "\"1.2.3s\" is no duration; write a number and a unit, such as 15s or 500ms",
            ),
            ("1.s", "\"1.s\" is no duration; write a number and a unit, such as 15s or 500ms"),
            (".5s", "\".5s\" is no duration; write a number and a unit, such as 15s or 500ms"),
            (
                "15 sec",
                "\" sec\" is no unit of time; use d, h, m, s, ms, us or ns, as in 15s or 1m30s",
            ),
            (
                "1m30m",
                "\"1m30m\" is ambiguous; write each unit once, the largest first, as in 1m30s",
            ),
            (
                "1us2µs",
                "\"1us2µs\" is ambiguous; write each unit once, the largest first, as in 1m30s",
            ),
            ("1.5ns", "\"1.5ns\" is finer than a nanosecond; use fewer digits"),
            ("0.00000000001m", "\"0.00000000001m\" is finer than a nanosecond; use fewer digits"),
            ("300000d", "\"300000d\" is too long; at most 584 years can be counted"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_duration(text).expect_err(text).to_string(), message);
        }
        let long = format!("{}s", "9".repeat(100));
        assert!(matches!(parse_duration(&long), Err(DurationError::TooLong(_))));
        let fine = format!("0.{}1s", "0".repeat(100));
        assert!(matches!(parse_duration(&fine), Err(DurationError::TooFine(_))));
    }

    #[test]
    fn what_rust_prints_is_read_back() {
        for span in [1, 999, 1_500, 2_000_001, 61_000_000_000].map(Duration::from_nanos) {
            assert_eq!(parse_duration(&format!("{span:?}")), Ok(span));
        }
    }
}
