//! Names, holders and spans of time for people.
//!
//! Names and holders come from other clients: characters that could move the cursor or fake a line
//! are escaped.

use std::borrow::Cow;
use std::time::Duration;

pub(crate) use paxoslease_client::{human_end, human_span as span};
use paxoslease_server::is_hidden;

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

/// A span without spaces, for columns.
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
}
