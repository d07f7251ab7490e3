//! Spans of time for people.

use std::time::Duration;

/// About three significant digits: `850 ms`, `12.3 s`, `4 m 10 s`, `3 h 5 m`.
#[must_use]
pub fn human_span(span: Duration) -> String {
    let (secs, millis) = (span.as_secs(), span.as_millis());
    match secs {
        u64::MAX => "for ever".to_owned(),
        0 if millis == 0 && !span.is_zero() => format!("{} µs", span.as_micros()),
        0 => format!("{millis} ms"),
        1..60 if span.subsec_millis() < 100 => format!("{secs} s"),
        1..60 => format!("{secs}.{} s", span.subsec_millis() / 100),
        60..3600 => format!("{} m {} s", secs / 60, secs % 60),
        _ => format!("{} h {} m", secs / 3600, secs / 60 % 60),
    }
}

/// How long a holder has a lease, as the end of a sentence.
#[must_use]
pub fn human_end(remaining: Duration) -> String {
    match remaining {
        Duration::MAX => "until it is released".to_owned(),
        left => format!("for {} more unless renewed", human_span(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (millis, text) in [
            (0, "0 ms"),
            (850, "850 ms"),
            (1_000, "1 s"),
            (12_345, "12.3 s"),
            (250_000, "4 m 10 s"),
            (11_100_000, "3 h 5 m"),
        ] {
            assert_eq!(human_span(Duration::from_millis(millis)), text);
        }
        assert_eq!(human_span(Duration::from_micros(71)), "71 µs");
    }
}
