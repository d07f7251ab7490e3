//! Durations such as `500ms`, `15s` and `1m30s`.
//!
//! Exact: a duration that is not a whole number of nanoseconds is refused, not rounded. There are
//! no months or years, and no numbers without a unit, which are easily mistaken. `tests/config.txt`
//! has examples and the errors.

use std::time::Duration;

use thiserror::Error;

/// Units and their nanoseconds, the largest first.
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

/// A day has 2^16 5^11 times 27 nanoseconds, so a longer fraction is never a whole number of them.
const FRACTION_DIGITS_MAX: usize = 16;

/// Why a text is not a duration, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct DurationError(String);

const EXAMPLE: &str = "write a number and a unit, such as 15s or 500ms";

/// Reads a duration such as `500ms`, `15s`, `1.5h` or `1m30s`.
///
/// # Errors
/// Says what is wrong and what to write instead.
///
/// ```
/// # mod paxoslease { pub use paxoslease_node as node; }
/// use std::time::Duration;
/// use paxoslease::node::parse_duration;
///
/// assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
/// let error = parse_duration("15").unwrap_err();
/// assert_eq!(error.to_string(), "15 has no unit; write 15s or 15ms");
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let fail = |problem: String| Err(DurationError(problem));
    if text.is_empty() {
        return fail(format!("an empty duration; {EXAMPLE}"));
    }
    let (mut rest, mut nanos, mut unit_before) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
        let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
        if number.is_empty() {
            return fail(format!("{text:?} is not a valid duration; {EXAMPLE}"));
        }
        if unit.is_empty() {
            return fail(format!("{number} has no unit; write {number}s or {number}ms"));
        }
        let Some((_, unit_nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return fail(format!(
                "{unit:?} is not a unit of time; use d, h, m, s, ms, us or ns, as in 15s or 1m30s"
            ));
        };
        if *unit_nanos >= unit_before {
            return fail(format!(
                "{text:?} is ambiguous; write each unit once, the largest first, as in 1m30s"
            ));
        }
        let part = nanos_of(text, number, *unit_nanos)?;
        nanos = nanos.checked_add(part).ok_or_else(|| too_long(text))?;
        (rest, unit_before) = (after, *unit_nanos);
    }
    Ok(Duration::from_nanos(nanos))
}

fn too_long(text: &str) -> DurationError {
    DurationError(format!("{text:?} is too long; at most 584 years can be counted"))
}

/// `number` units of `unit_nanos` each; `text` is the whole duration, for errors.
fn nanos_of(text: &str, number: &str, unit_nanos: u64) -> Result<u64, DurationError> {
    let too_fine =
        || DurationError(format!("{text:?} is finer than a nanosecond; use fewer digits"));
    let (integer, fraction) = match number.split_once('.') {
        Some((integer, fraction))
            if !integer.is_empty() && !fraction.is_empty() && !fraction.contains('.') =>
        {
            (integer, fraction.trim_end_matches('0'))
        }
        Some(_) => {
            return Err(DurationError(format!("{text:?} is not a valid duration; {EXAMPLE}")));
        }
        None => (number, ""),
    };
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(too_fine());
    }
    let digits: u128 = format!("{integer}{fraction}").parse().map_err(|_| too_long(text))?;
    let scaled = digits.checked_mul(u128::from(unit_nanos)).ok_or_else(|| too_long(text))?;
    let scale = 10u128.pow(fraction.len() as u32);
    if !scaled.is_multiple_of(scale) {
        return Err(too_fine());
    }
    u64::try_from(scaled / scale).map_err(|_| too_long(text))
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}
