//! What tokens permit: the entries of `[[access]]`.
//!
//! Plain data. A configuration never contains a token, only its SHA-256, and `Debug` does not show
//! even that. `access.rs` of the crate compares hashes with what clients send.

use std::fmt;
use std::str::FromStr;

use paxoslease_node::TomlError;
use paxoslease_node::config::{Document, TomlText};
use paxoslease_node::front::Name;
use thiserror::Error;

/// What a token permits, and for which names.
///
/// A token may have several entries and then permits what any of them does: to read everything, but
/// to acquire only under one prefix, for example.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Access {
    /// The name of the token in errors and logs.
    pub name: Option<String>,
    /// The SHA-256 of the token.
    pub token_sha256: TokenHash,
    /// The names of the leases.
    pub names: Vec<NamePattern>,
    /// What the token permits for them.
    pub may: Vec<Verb>,
    /// Leases that the token may have through one node at a time; of several entries the least
    /// counts. Unbounded by default.
    pub leases: Option<u32>,
}

impl Access {
    /// An entry without a name and without a bound.
    pub fn new(
        token_sha256: TokenHash,
        names: impl IntoIterator<Item = NamePattern>,
        may: impl IntoIterator<Item = Verb>,
    ) -> Self {
        let (names, may) = (names.into_iter().collect(), may.into_iter().collect());
        Self { name: None, token_sha256, names, may, leases: None }
    }

    pub(super) fn from_document(mut document: Document<'_>) -> Result<Self, TomlError> {
        let (mut name, mut token, mut leases) = (None, None::<TokenHash>, None);
        let (mut names, mut may) = (Vec::<NamePattern>::new(), Vec::<Verb>::new());
        document.read("access.name", &mut name)?;
        document.read("access.token_sha256", &mut token)?;
        document.read("access.names", &mut names)?;
        document.read("access.may", &mut may)?;
        document.read("access.leases", &mut leases)?;
        document.finish()?;
        let error = |problem: &str| Err(document.error(problem.to_owned()));
        match token {
            None => error("`access.token_sha256` is missing; give the SHA-256 of a token"),
            Some(_) if names.is_empty() => {
                error("`access.names` is missing or empty; write names = [\"jobs/*\"]")
            }
            Some(_) if may.is_empty() => {
                error("`access.may` is missing or empty; write may = [\"acquire\", \"read\"]")
            }
            Some(token_sha256) => Ok(Self { name, token_sha256, names, may, leases }),
        }
    }
}

/// What a token may permit. None of these includes another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// To acquire, renew and release leases.
    Acquire,
    /// To see which leases are held, and by which holder.
    Read,
    /// To see the status of the cell and its nodes, and to release leases by force.
    Admin,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquire",
            Self::Read => "read",
            Self::Admin => "admin",
        })
    }
}

/// A text that is not a [`Verb`].
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is not a permission of a token; expected \"acquire\", \"read\" or \"admin\"")]
pub struct UnknownVerb(String);

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Self, UnknownVerb> {
        let known = [Self::Acquire, Self::Read, Self::Admin];
        let verb = known.into_iter().find(|verb| verb.to_string() == text);
        verb.ok_or_else(|| UnknownVerb(text.to_owned()))
    }
}

impl TomlText for Verb {
    const EXPECTED: &'static str = "\"acquire\", \"read\" or \"admin\"";
}

/// The SHA-256 of a token. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// From its bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// The SHA-256 of the empty text, which an unset variable has, and of `test`.
const GUESSED_FIRST: [&str; 2] = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
];

/// Not the SHA-256 of a token. The text is not repeated: it may be the token itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TokenHashError {
    /// Not the SHA-256 of anything.
    #[error(
        "expected the SHA-256 of the token as 64 hexadecimal digits, as `printf %s \"$TOKEN\" | \
         sha256sum` prints; never the token itself"
    )]
    Form,
    /// The SHA-256 of a token that is easy to guess.
    #[error(
        "this is the SHA-256 of an empty token or of \"test\", which attackers try first; \
         was $TOKEN set? `paxoslease token` makes a token and its entry"
    )]
    Guessable,
}

impl FromStr for TokenHash {
    type Err = TokenHashError;

    fn from_str(text: &str) -> Result<Self, TokenHashError> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(TokenHashError::Form);
        }
        if GUESSED_FIRST.iter().any(|known| text.eq_ignore_ascii_case(known)) {
            return Err(TokenHashError::Guessable);
        }
        for (place, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * place..2 * place + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| TokenHashError::Form)?;
        }
        Ok(Self(bytes))
    }
}

impl TomlText for TokenHash {
    const EXPECTED: &'static str = "64 hexadecimal digits in quotes";
}

/// One name, or all names that begin with a prefix. Other patterns could cost unbounded work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePattern {
    text: Box<str>,
    is_prefix: bool,
}

/// Not a pattern: empty, too long, or with a star that is not at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a pattern is a name, or a prefix of names that ends in '*', such as jobs/*")]
pub struct PatternError;

impl NamePattern {
    /// Whether the pattern matches a name.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&*self.text) } else { *name == *self.text }
    }

    /// Whether the pattern can match a name that begins with `prefix`.
    #[must_use]
    pub fn meets(&self, prefix: &str) -> bool {
        self.text.starts_with(prefix) || self.fits(prefix)
    }

    /// The name, or the prefix without its star.
    #[must_use]
    pub const fn stem(&self) -> &str {
        &self.text
    }

    /// The prefix, unless it is one name.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.is_prefix.then_some(&*self.text)
    }
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
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
}

impl TomlText for NamePattern {
    const EXPECTED: &'static str = "a pattern in quotes, such as \"jobs/*\"";
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn pattern(text: &str) -> NamePattern {
        text.parse().expect("sound")
    }

    #[test]
    fn a_star_at_the_end_makes_a_prefix() {
        assert!(pattern("*").fits("anything"));
        assert!(pattern("jobs/*").fits("jobs/nightly"));
        assert!(!pattern("jobs/*").fits("job"));
        assert!(pattern("jobs").fits("jobs"));
        assert!(!pattern("jobs").fits("jobs/nightly"));
    }

    #[test]
    fn a_pattern_meets_longer_and_shorter_prefixes() {
        assert!(pattern("jobs/*").meets("") && pattern("jobs/*").meets("jobs/night"));
        assert!(pattern("jobs/*").meets("jobs/") && !pattern("jobs/*").meets("other/"));
        assert!(pattern("jobs").meets("jo") && pattern("jobs").meets("jobs"));
        assert!(!pattern("jobs").meets("jobs/"));
    }

    #[test]
    fn patterns_of_other_kinds_are_refused() {
        for text in ["", "*x", "a*b*", "**", &"x".repeat(600)] {
            assert_eq!(text.parse::<NamePattern>(), Err(PatternError), "{text}");
        }
    }

    #[test]
    fn a_hash_has_64_digits_and_does_not_show_them() {
        let digits = "00ff".repeat(16);
        let hash: TokenHash = digits.parse().expect("a hash");
        assert_eq!(&hash.as_bytes()[..4], [0, 0xff, 0, 0xff]);
        assert_eq!(digits.to_uppercase().parse(), Ok(hash));
        assert_eq!(format!("{hash:?}"), "TokenHash");
        for text in ["", &digits[1..], &format!("{digits}0"), &digits.replace('f', "+")] {
            assert_eq!(text.parse::<TokenHash>(), Err(TokenHashError::Form));
        }
        assert_eq!("é".repeat(32).parse::<TokenHash>(), Err(TokenHashError::Form));
    }

    #[test]
    fn the_hash_of_an_easily_guessed_token_is_refused() {
        for token in ["", "test"] {
            let hash: [u8; 32] = Sha256::digest(token).into();
            let digits = hash.map(|byte| format!("{byte:02x}")).concat();
            for digits in [digits.to_uppercase(), digits] {
                assert_eq!(digits.parse::<TokenHash>(), Err(TokenHashError::Guessable));
            }
        }
    }
}
