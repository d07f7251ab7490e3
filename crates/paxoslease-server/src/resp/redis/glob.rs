//! Patterns of keys and channels, as Redis has them: `*`, `?`, `[a-z]`, `[^a]` and `\`.

/// A pattern that is cheap to compare with any name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Glob(Box<[u8]>);

/// Why a pattern is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(in super::super) enum GlobError {
    #[error("a pattern has at most {} bytes", Glob::LEN_MAX)]
    TooLong,
    #[error("a pattern has at most {} bytes behind its first '*'", Glob::BEHIND_STAR_MAX)]
    TooLongBehindStar,
}

impl Glob {
    /// The longest pattern: as long as a name.
    pub(super) const LEN_MAX: usize = 512;
    /// What follows a star is compared with the text at every byte of the text.
    pub(super) const BEHIND_STAR_MAX: usize = 64;

    pub(super) fn new(pattern: &[u8]) -> Result<Self, GlobError> {
        if pattern.len() > Self::LEN_MAX {
            return Err(GlobError::TooLong);
        }
        let star = pattern.iter().position(|byte| *byte == b'*').unwrap_or(pattern.len());
        if pattern.len() - star > Self::BEHIND_STAR_MAX + 1 {
            return Err(GlobError::TooLongBehindStar);
        }
        Ok(Self(pattern.into()))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the pattern matches the whole text, and the steps that it took to find out: at most
    /// the length of the pattern, and [`Self::BEHIND_STAR_MAX`] + 2 for each byte of the text.
    pub(super) fn compare(&self, text: &[u8]) -> Compared {
        let mut comparison = Comparison { pattern: &self.0, text, steps: 0 };
        let is_match = comparison.run();
        Compared { is_match, steps: comparison.steps }
    }

    /// The text that every match begins with.
    pub(super) fn literal_prefix(&self) -> &[u8] {
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        let end = self.0.iter().position(is_special).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Compared {
    pub(super) is_match: bool,
    pub(super) steps: usize,
}

/// Where a star stands, and the text that it was last tried with.
#[derive(Clone, Copy)]
struct Star {
    behind: usize,
    tried: usize,
}

struct Comparison<'a> {
    pattern: &'a [u8],
    text: &'a [u8],
    steps: usize,
}

impl Comparison<'_> {
    fn run(&mut self) -> bool {
        let mut at_pattern = 0;
        let mut at_text = 0;
        let mut last_star: Option<Star> = None;
        loop {
            self.steps += 1;
            let rest = &self.pattern[at_pattern..];
            if rest.first() == Some(&b'*') {
                at_pattern += 1;
                last_star = Some(Star { behind: at_pattern, tried: at_text });
                continue;
            }
            let len = match self.text.get(at_text) {
                None if rest.is_empty() => return true,
                None => None,
                Some(byte) => self.element(rest, *byte),
            };
            match (len, last_star) {
                (Some(len), _) => {
                    at_pattern += len;
                    at_text += 1;
                }
                (None, Some(Star { behind, tried })) if tried < self.text.len() => {
                    last_star = Some(Star { behind, tried: tried + 1 });
                    at_pattern = behind;
                    at_text = tried + 1;
                }
                (None, _) => return false,
            }
        }
    }

    /// The length of the first element of a pattern, if it matches a byte.
    fn element(&mut self, pattern: &[u8], byte: u8) -> Option<usize> {
        match pattern {
            [] => None,
            [b'?', ..] => Some(1),
            [b'\\', literal, ..] => (*literal == byte).then_some(2),
            [b'[', set @ ..] => self.set(set, byte),
            [literal, ..] => (*literal == byte).then_some(1),
        }
    }

    /// The same for a set, whose bracket was read.
    fn set(&mut self, set: &[u8], byte: u8) -> Option<usize> {
        let is_inverted = set.first() == Some(&b'^');
        let mut at = usize::from(is_inverted);
        let mut is_in = false;
        let len = loop {
            self.steps += 1;
            match set.get(at..).unwrap_or_default() {
                [] => break 1 + at,
                [b']', ..] => break 2 + at,
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
        };
        (is_in != is_inverted).then_some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        Glob::new(pattern.as_bytes()).expect("short").compare(text.as_bytes()).is_match
    }

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
            assert!(is_match(pattern, text), "{pattern} {text}");
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
            assert!(!is_match(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn no_pattern_takes_more_steps_than_its_bound() {
        let text = "a".repeat(512);
        let most = Glob::LEN_MAX + (Glob::BEHIND_STAR_MAX + 2) * (text.len() + 1);
        let long_set = format!("*[{}]b", "a".repeat(61));
        let stars = "*a".repeat(32) + "b";
        for pattern in ["*aaaaaaaab", &format!("*{}b", "a".repeat(63)), &long_set, &stars] {
            let compared =
                Glob::new(pattern.as_bytes()).expect("in bounds").compare(text.as_bytes());
            assert!(!compared.is_match);
            assert!(compared.steps <= most, "{pattern}: {} steps", compared.steps);
        }
    }

    #[test]
    fn long_patterns_are_refused() {
        let literal = "a".repeat(Glob::LEN_MAX);
        assert!(Glob::new(literal.as_bytes()).is_ok());
        assert_eq!(Glob::new(format!("{literal}a").as_bytes()), Err(GlobError::TooLong));
        let behind = "a".repeat(Glob::BEHIND_STAR_MAX);
        assert!(Glob::new(format!("{behind}*{behind}").as_bytes()).is_ok());
        let refused = Glob::new(format!("*{behind}a").as_bytes());
        assert_eq!(refused, Err(GlobError::TooLongBehindStar));
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_special_byte() {
        for (pattern, prefix) in [("jobs:*", "jobs:"), ("jobs", "jobs"), ("[a]", "")] {
            let glob = Glob::new(pattern.as_bytes()).expect("short");
            assert_eq!(glob.literal_prefix(), prefix.as_bytes());
        }
    }
}
