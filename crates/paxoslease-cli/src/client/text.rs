//! Names, holders and spans of time for people.
//!
//! Names and holders come from other clients: characters that could move the cursor or fake a line
//! are escaped.

use std::borrow::Cow;
use std::time::Duration;

/// In quotes, escaped, for a sentence.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text).replace('"', "\\\""))
}

/// Without characters that a terminal would obey.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that change the direction of text or have no width.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}')
}

/// About three significant digits: `850 ms`, `12.3 s`, `4 m 10 s`, `3 h 5 m`.
pub(crate) fn span(span: Duration) -> String {
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

/// The same without spaces, for columns.
pub(crate) fn short(length: Duration) -> String {
    if length == Duration::MAX { "-".to_owned() } else { span(length).replace(' ', "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_fake_a_line_or_move_the_cursor() {
        assert_eq!(plain("jobs/nightly é"), "jobs/nightly é");
        assert_eq!(plain("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
        assert_eq!(quoted("say \"hi\""), "\"say \\\"hi\\\"\"");
    }

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
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(span(Duration::from_micros(71)), "71 µs");
    }
}
