//! Which names a client wants to see: one, or all with a prefix. No more is offered, so that
//! nobody can ask a shard for work without bound.

use paxoslease::front::Name;

/// One name, or a prefix with a star behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    text: Box<str>,
    is_prefix: bool,
}

/// Not a pattern: no text, too long, or a star elsewhere than at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a pattern is a name, or a prefix of names that ends in '*', such as jobs/*")]
pub(super) struct PatternError;

impl Pattern {
    pub(super) fn new(bytes: &[u8]) -> Result<Self, PatternError> {
        let text = std::str::from_utf8(bytes).map_err(|_| PatternError)?;
        let (text, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        let is_sound = (is_prefix || !text.is_empty()) && text.len() <= Name::LEN_MAX;
        if is_sound && !text.contains('*') {
            Ok(Self { text: text.into(), is_prefix })
        } else {
            Err(PatternError)
        }
    }

    pub(super) fn fits(&self, name: Name<'_>) -> bool {
        let name = name.as_str();
        if self.is_prefix { name.starts_with(&*self.text) } else { *name == *self.text }
    }

    /// The prefix, unless it is one name.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.is_prefix.then_some(&*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_makes_a_prefix() {
        let fits = |pattern: &[u8], name| {
            Pattern::new(pattern).expect("sound").fits(Name::new(name).expect("a name"))
        };
        assert!(fits(b"*", "anything"));
        assert!(fits(b"jobs/*", "jobs/nightly"));
        assert!(!fits(b"jobs/*", "job"));
        assert!(fits(b"jobs", "jobs"));
        assert!(!fits(b"jobs", "jobs/nightly"));
    }

    #[test]
    fn what_would_be_another_kind_of_pattern_elsewhere_is_refused() {
        for pattern in [&b""[..], b"*x", b"a*b*", b"**", b"\xff*", &[b'x'; 600]] {
            assert_eq!(Pattern::new(pattern), Err(PatternError), "{pattern:?}");
        }
    }
}
