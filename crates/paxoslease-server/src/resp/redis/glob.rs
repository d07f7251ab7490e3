//! Patterns of keys and channels, as Redis has them: `*`, `?`, `[a-z]`, `[^a]` and `\`.

/// Whether a pattern matches the whole text. Takes time in proportion to the product of their
/// lengths at most.
pub(super) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    // The last star, and the text that it was tried with.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let rest = &pattern[at_pattern..];
        if rest.first() == Some(&b'*') {
            star = Some((at_pattern + 1, at_text));
            at_pattern += 1;
            continue;
        }
        let step = match text.get(at_text) {
            None if rest.is_empty() => return true,
            None => None,
            Some(byte) => one(rest, *byte),
        };
        match (step, star) {
            (Some(len), _) => (at_pattern, at_text) = (at_pattern + len, at_text + 1),
            (None, Some((after, tried))) if tried < text.len() => {
                star = Some((after, tried + 1));
                (at_pattern, at_text) = (after, tried + 1);
            }
            (None, _) => return false,
        }
    }
}

/// The length of the first element of a pattern, if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', set @ ..] => {
            let (is_inverted, start) = match set {
                [b'^', ..] => (true, 1),
                _ => (false, 0),
            };
            let mut at = start;
            let mut is_in = false;
            loop {
                match set.get(at..).unwrap_or_default() {
                    [] => return (is_in != is_inverted).then_some(1 + at),
                    [b']', ..] => return (is_in != is_inverted).then_some(2 + at),
                    [b'\\', literal, ..] => {
                        is_in |= *literal == byte;
                        at += 2;
                    }
                    [low, b'-', high, ..] => {
                        is_in |= (*low.min(high)..=*low.max(high)).contains(&byte);
                        at += 3;
                    }
                    [literal, ..] => {
                        is_in |= *literal == byte;
                        at += 1;
                    }
                }
            }
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// The text that every match begins with.
pub(super) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    let end = pattern.iter().position(is_special).unwrap_or(pattern.len());
    &pattern[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let matching = [
            ("*", ""),
            ("*", "any"),
            ("a*c", "abc"),
            ("a*c", "ac"),
            ("a*b*c", "a-b-b-c"),
            ("h?llo", "hello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            (r"\*", "*"),
            (r"[\]]", "]"),
            ("", ""),
        ];
        for (pattern, text) in matching {
            assert!(glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let others = [
            ("a*c", "ab"),
            ("h?llo", "hllo"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            (r"\*", "x"),
            ("", "x"),
            ("abc", "ab"),
            ("*x", "abc"),
        ];
        for (pattern, text) in others {
            assert!(!glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_their_product_with_the_text() {
        let (pattern, text) = ("*a".repeat(200), "a".repeat(5000) + "b");
        assert!(!glob(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_special_byte() {
        assert_eq!(literal_prefix(b"jobs:*"), b"jobs:");
        assert_eq!(literal_prefix(b"jobs"), b"jobs");
        assert_eq!(literal_prefix(b"[a]"), b"");
    }
}
