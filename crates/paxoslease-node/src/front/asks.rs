//! Questions on their way to the shard that owns the name, and answers on their way back.
//!
//! The core hands back whatever token it was given, so the token itself says who asked: a shard's
//! front-end or a thread elsewhere, and under which number. A question for the shard of the same
//! thread is put directly; others travel in letters, one post per pair of shards and turn.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use paxoslease_core::{Holder, Label, Name, Token};

use super::{Answer, Filter, Hint};

/// Numbers of questions are below this.
pub const ASKS_MAX: u64 = 1 << 46;
/// Set in the tokens of front-ends and threads elsewhere; the driver's own are slots of a slab.
const ROUTED: u64 = 1 << 63;

/// Who asked, and under which number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Routed {
    /// The shard whose front-end asked; [`Routed::ELSEWHERE`] for [`super::Remote`].
    pub(crate) origin: u16,
    pub(crate) ask: u64,
}

/// What was asked for, for the metrics: a missing quorum alone does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Other,
    /// An acquire that counts only if it is granted: it is asked for again if it must wait.
    Try,
}

impl Routed {
    pub(crate) const ELSEWHERE: u16 = 0x7fff;

    pub(crate) fn token(self, kind: Kind) -> Token {
        debug_assert!(self.ask < ASKS_MAX && self.origin <= Self::ELSEWHERE);
        Token(ROUTED | u64::from(self.origin) << 48 | (kind as u64) << 46 | self.ask)
    }

    /// `None` for a token of the driver's own.
    pub(crate) const fn of(token: Token) -> Option<(Self, Kind)> {
        if token.0 & ROUTED == 0 {
            return None;
        }
        let origin = (token.0 >> 48) as u16 & Self::ELSEWHERE;
        let kind = match (token.0 >> 46) & 3 {
            0 => Kind::Acquire,
            1 => Kind::Renew,
            2 => Kind::Other,
            _ => Kind::Try,
        };
        Some((Self { origin, ask: token.0 & (ASKS_MAX - 1) }, kind))
    }
}

/// A question, borrowing its texts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    Acquire {
        name: Name<'a>,
        holder: Holder<'a>,
        ttl: Duration,
        wait: Duration,
    },
    Try {
        name: Name<'a>,
        holder: Holder<'a>,
        ttl: Duration,
    },
    /// P8: takes back the acquire of the same number.
    Abandon {
        name: Name<'a>,
    },
    Renew {
        name: Name<'a>,
        fence: u64,
        ttl: Duration,
    },
    Release {
        name: Name<'a>,
        fence: u64,
    },
    Inspect {
        name: Name<'a>,
    },
    List {
        slot: u32,
        prefix: &'a str,
        filter: &'a Filter,
        max: PageMax,
    },
}

impl Ask<'_> {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            // What is taken back is the acquire itself.
            Self::Acquire { .. } | Self::Abandon { .. } => Kind::Acquire,
            Self::Try { .. } => Kind::Try,
            Self::Renew { .. } => Kind::Renew,
            Self::Release { .. } | Self::Inspect { .. } | Self::List { .. } => Kind::Other,
        }
    }
}

/// A question that owns its texts, for another thread.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) from: Routed,
    question: Question,
}

#[derive(Clone, Debug)]
enum Question {
    Acquire { label: Label, ttl: Duration, wait: Duration },
    Try { label: Label, ttl: Duration },
    Abandon { label: Label },
    Renew { label: Label, fence: u64, ttl: Duration },
    Release { label: Label, fence: u64 },
    Inspect { label: Label },
    List { slot: u32, prefix: Box<str>, filter: Filter, max: PageMax },
}

impl Letter {
    pub(crate) fn new(from: Routed, ask: Ask<'_>) -> Self {
        let named = |name| Label::new(name, Holder::NONE);
        let question = match ask {
            Ask::Acquire { name, holder, ttl, wait } => {
                Question::Acquire { label: Label::new(name, holder), ttl, wait }
            }
            Ask::Try { name, holder, ttl } => {
                Question::Try { label: Label::new(name, holder), ttl }
            }
            Ask::Abandon { name } => Question::Abandon { label: named(name) },
            Ask::Renew { name, fence, ttl } => Question::Renew { label: named(name), fence, ttl },
            Ask::Release { name, fence } => Question::Release { label: named(name), fence },
            Ask::Inspect { name } => Question::Inspect { label: named(name) },
            Ask::List { slot, prefix, filter, max } => {
                Question::List { slot, prefix: prefix.into(), filter: filter.clone(), max }
            }
        };
        Self { from, question }
    }

    pub(crate) fn ask(&self) -> Ask<'_> {
        match &self.question {
            Question::Acquire { label, ttl, wait } => {
                Ask::Acquire { name: label.name(), holder: label.holder(), ttl: *ttl, wait: *wait }
            }
            Question::Try { label, ttl } => {
                Ask::Try { name: label.name(), holder: label.holder(), ttl: *ttl }
            }
            Question::Abandon { label } => Ask::Abandon { name: label.name() },
            Question::Renew { label, fence, ttl } => {
                Ask::Renew { name: label.name(), fence: *fence, ttl: *ttl }
            }
            Question::Release { label, fence } => {
                Ask::Release { name: label.name(), fence: *fence }
            }
            Question::Inspect { label } => Ask::Inspect { name: label.name() },
            Question::List { slot, prefix, filter, max } => {
                Ask::List { slot: *slot, prefix, filter, max: *max }
            }
        }
    }

    /// Whether an answer is expected under this letter's number. A question that is taken back is
    /// answered only once, and maybe was already.
    pub(crate) const fn wants_answer(&self) -> bool {
        !matches!(self.question, Question::Abandon { .. })
    }
}

/// What one shard has for another.
#[derive(Debug)]
pub(crate) enum Post {
    Letters(Vec<Letter>),
    Answers(Vec<(u64, Answer)>),
    Hints(Vec<Hint>),
    /// Whether the front-end of that shard wants to hear hints.
    Watch {
        origin: u16,
        on: bool,
    },
}

/// What one shard has for the others, collected during a turn; by shard.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) letters: Vec<Vec<Letter>>,
    pub(crate) answers: Vec<Vec<(u64, Answer)>>,
    pub(crate) hints: Vec<Vec<Hint>>,
    pub(crate) watch: Option<bool>,
}

impl Outgoing {
    pub(crate) fn new(shards: usize) -> Self {
        let none = |_| Vec::new();
        Self {
            letters: (0..shards).map(none).collect(),
            answers: (0..shards).map(|_| Vec::new()).collect(),
            hints: (0..shards).map(|_| Vec::new()).collect(),
            watch: None,
        }
    }
}

/// Where a page of a list ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageMax {
    /// After so many leases.
    pub leases: u32,
    /// After the lease that brings the page to so many bytes, as [`PageMax::lease_bytes`] counts.
    pub bytes: usize,
}

impl PageMax {
    /// No page has more than that, so that a client that does not read costs little.
    pub const BYTES: usize = 64 * 1024;
    /// More than the longest lease takes.
    pub const LEASE_BYTES: usize = 6 * (Name::LEN_MAX + Holder::LEN_MAX) + LEASE_FRAME_LEN;

    /// A page of up to so many leases, and never more than [`Self::BYTES`].
    #[must_use]
    pub const fn leases(leases: u32) -> Self {
        Self { leases, bytes: Self::BYTES - Self::LEASE_BYTES }
    }

    /// At least the bytes that a lease takes in RESP or JSON, which escapes some characters.
    #[must_use]
    pub fn lease_bytes(label: &Label) -> usize {
        let escaped = |text: &str| -> usize {
            text.bytes()
                .map(|byte| match byte {
                    0..0x20 => 6,
                    b'"' | b'\\' => 2,
                    _ => 1,
                })
                .sum()
        };
        LEASE_FRAME_LEN + escaped(label.name().as_str()) + escaped(label.holder().as_str())
    }
}

/// More than a listed lease takes besides its name and holder.
const LEASE_FRAME_LEN: usize = 128;

/// Where a listing goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cursor {
    pub(crate) shard: u16,
    pub(crate) slot: u32,
}

impl Cursor {
    /// The beginning of a listing.
    pub const START: Self = Self { shard: 0, slot: 0 };
}

/// A number, for clients to bring back. The beginning is zero.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (u64::from(self.shard) << 32 | u64::from(self.slot)).fmt(f)
    }
}

impl FromStr for Cursor {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let number: u64 = text.parse()?;
        // A shard that is not there has nothing to list.
        let shard = u16::try_from(number >> 32).unwrap_or(u16::MAX);
        Ok(Self { shard, slot: number as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_who_asked() {
        for (origin, ask) in [(0, 0), (1, 7), (255, ASKS_MAX - 1), (Routed::ELSEWHERE, 3)] {
            let routed = Routed { origin, ask };
            for kind in [Kind::Acquire, Kind::Renew, Kind::Other, Kind::Try] {
                assert_eq!(Routed::of(routed.token(kind)), Some((routed, kind)));
            }
        }
        assert_eq!(Routed::of(Token(12)), None);
    }

    #[test]
    fn a_cursor_comes_back_as_it_went() {
        for (shard, slot) in [(0, 0), (3, 9), (255, u32::MAX)] {
            let cursor = Cursor { shard, slot };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        assert_eq!(Cursor::START.to_string(), "0");
        assert!("x".parse::<Cursor>().is_err());
    }
}
