//! Requests about leases and their answers: the same two types for callers of this process, for
//! sessions of clients, for other threads such as that of HTTP, and between shards.
//!
//! The core hands back the token of each request, so the token itself names the caller
//! ([`ReplyTo`]). The shard remembers nothing about requests of clients.

use std::fmt;
use std::num::{NonZeroU8, ParseIntError};
use std::str::FromStr;
use std::time::Duration;

use paxoslease_core::{
    CommandError, Holder, Instant, Label, Lasts, LiveLease, Name, Permits, Sighting, Tenure,
    TextError, Token, Ttl, TtlError,
};
use paxoslease_holder::{AskError, Filter, Limit, MembersError, MembersPlan, MembersRequest};
use paxoslease_wire::ShardId;
use thiserror::Error;

/// The numbers of requests are below this bound.
pub const REQUEST_IDS_MAX: u64 = 1 << 46;

/// The caller of a request, and the number that it gave to the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyTo {
    /// The shard whose front-end asked, or one of the constants below.
    pub(crate) origin: u16,
    pub(crate) id: u64,
}

/// The kind of a request, for the metrics: a missing quorum alone does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Acquire,
    Renew,
    Other,
    /// An acquire whose caller retries, so only a grant is counted.
    Try,
}

impl ReplyTo {
    /// The origin of requests through [`Remote`](crate::Remote).
    pub(crate) const REMOTE: u16 = 0x7fff;
    /// The origin of requests by handles and guards of this process.
    pub(crate) const EMBEDDED: u16 = 0x7ffe;
    /// The origin of requests for the permits of a semaphore, within a shard.
    pub(crate) const PERMITS: u16 = 0x7ffd;

    pub(crate) fn token(self, kind: RequestKind) -> Token {
        debug_assert!(self.id < REQUEST_IDS_MAX && self.origin <= Self::REMOTE);
        Token(u64::from(self.origin) << 48 | (kind as u64) << 46 | self.id)
    }

    pub(crate) const fn of(token: Token) -> (Self, RequestKind) {
        let kind = match (token.0 >> 46) & 3 {
            0 => RequestKind::Acquire,
            1 => RequestKind::Renew,
            2 => RequestKind::Other,
            _ => RequestKind::Try,
        };
        (Self { origin: (token.0 >> 48) as u16, id: token.0 & (REQUEST_IDS_MAX - 1) }, kind)
    }
}

/// The name of a lease and the text of its holder, borrowed or owned.
#[derive(Clone, Debug)]
pub enum CowLabel<'a> {
    /// Within one turn of a shard's thread.
    Borrowed(Name<'a>, Holder<'a>),
    /// On the way to another thread.
    Owned(Label),
}

impl CowLabel<'_> {
    pub(crate) fn name(&self) -> Name<'_> {
        match self {
            Self::Borrowed(name, _) => *name,
            Self::Owned(label) => label.name(),
        }
    }

    pub(crate) fn holder(&self) -> Holder<'_> {
        match self {
            Self::Borrowed(_, holder) => *holder,
            Self::Owned(label) => label.holder(),
        }
    }

    fn into_owned(self) -> CowLabel<'static> {
        CowLabel::Owned(match self {
            Self::Borrowed(name, holder) => Label::new(name, holder),
            Self::Owned(label) => label,
        })
    }
}

impl<'a> From<Name<'a>> for CowLabel<'a> {
    fn from(name: Name<'a>) -> Self {
        Self::Borrowed(name, Holder::NONE)
    }
}

impl<'a> From<(Name<'a>, Holder<'a>)> for CowLabel<'a> {
    fn from((name, holder): (Name<'a>, Holder<'a>)) -> Self {
        Self::Borrowed(name, holder)
    }
}

/// A request about a lease, or about the leases of a node.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    /// Asks for a lease: [`Answer::Granted`] or [`Answer::Held`].
    Acquire {
        /// The name and the holder.
        lease: CowLabel<'a>,
        /// How long the lease should last unless it is renewed.
        ttl: Duration,
        /// How long to queue while another holder has the lease.
        wait: Duration,
        /// Set for one permit of the semaphore with this name, instead of the lease of the name.
        permits: Option<Permits>,
        /// Whether the caller retries, so only a grant is counted.
        is_retried: bool,
        /// K9: set for a durable lease, which is on the disks of a majority and lasts this long
        /// from its grant without renewals. It may be longer than M, and `ttl` is ignored. It may
        /// also be refused with [`Answer::NotKept`]. A semaphore has no durable permits.
        lasts: Option<Lasts>,
    },
    /// P8: withdraws the acquire with the same number. That acquire is answered with
    /// [`Answer::Abandoned`], unless another answer is on its way already. The caller releases a
    /// lease that was granted all the same.
    Abandon {
        /// The name.
        lease: CowLabel<'a>,
    },
    /// Prolongs a tenure: [`Answer::Renewed`] or [`Answer::NotHeld`]; if the lease is durable,
    /// [`Answer::Kept`], and then a later end stays as it was.
    Renew {
        /// The name, and the holder for members that lost it. Without a holder, the node uses the
        /// one that it has stored.
        lease: CowLabel<'a>,
        /// The fence of the tenure.
        fence: u64,
        /// How long the lease should last from now on.
        ttl: Duration,
    },
    /// K8: sets when a tenure ends, earlier or later than before, and makes the lease durable:
    /// [`Answer::Kept`], [`Answer::NotHeld`] or [`Answer::NotKept`]. After [`Answer::NoQuorum`] and
    /// [`Answer::NotKept`], either end may be in force. A holder that sets an earlier end has first
    /// given up its belief beyond it. From this request on, the holder prolongs and releases the
    /// tenure only as a durable one, whatever the answer is (K10).
    Keep {
        /// The name, and the holder for members that lost it.
        lease: CowLabel<'a>,
        /// The fence of the tenure.
        fence: u64,
        /// How long the lease lasts from now on.
        lasts: Lasts,
    },
    /// P6: ends a tenure whose holder has dropped its belief: [`Answer::Released`], or
    /// [`Answer::Doubtful`] for a durable one.
    Release {
        /// The name.
        lease: CowLabel<'a>,
        /// The fence of the tenure.
        fence: u64,
        /// Whether a caller ever asked to keep this tenure, even without success (K10). An acquire
        /// of a durable lease counts. If not set, the node asks the members, which costs a round
        /// trip more for a durable lease, and misses a [`Request::Keep`] that is still on its way.
        is_durable: bool,
    },
    /// P10: asks a majority who holds a name: [`Answer::Inspected`].
    Inspect {
        /// The name.
        lease: CowLabel<'a>,
    },
    /// Asks only this node who holds a name, and answers at once: [`Answer::Inspected`]. A hint.
    /// A node that only proposes knows no lease.
    Peek {
        /// The name.
        lease: CowLabel<'a>,
    },
    /// Tells a text to the clients that watch a name, here and at other nodes: [`Hint::Note`]. At
    /// most once, and without an answer.
    Note {
        /// The name and the text.
        lease: CowLabel<'a>,
    },
    /// Lists the leases that this node votes on: [`Answer::Listed`]. A page may be empty although
    /// more pages follow.
    List {
        /// Where the page begins.
        cursor: Cursor,
        /// How the names begin.
        prefix: Box<str>,
        /// The names that may be shown.
        filter: Filter,
        /// Where the page ends.
        max: PageMax,
    },
    /// Changes the members of the cell: [`Answer::Members`], once that has begun or was refused.
    Members(Box<MembersRequest>),
}

impl<'a> Request<'a> {
    /// An acquire of a lease, without options.
    #[must_use]
    pub const fn acquire(lease: CowLabel<'a>, ttl: Duration, wait: Duration) -> Self {
        Self::Acquire { lease, ttl, wait, permits: None, is_retried: false, lasts: None }
    }

    pub(crate) const fn kind(&self) -> RequestKind {
        match self {
            Self::Acquire { is_retried: true, .. } => RequestKind::Try,
            // An abandon withdraws the acquire itself.
            Self::Acquire { .. } | Self::Abandon { .. } => RequestKind::Acquire,
            Self::Renew { .. } | Self::Keep { .. } => RequestKind::Renew,
            Self::Release { .. }
            | Self::Inspect { .. }
            | Self::Peek { .. }
            | Self::Note { .. }
            | Self::List { .. }
            | Self::Members(_) => RequestKind::Other,
        }
    }

    /// The shard of `count` that serves the request. Only a list can name a shard that is missing.
    pub(crate) fn shard(&self, count: u16) -> u16 {
        match self {
            Self::Acquire { lease, .. }
            | Self::Abandon { lease }
            | Self::Renew { lease, .. }
            | Self::Keep { lease, .. }
            | Self::Release { lease, .. }
            | Self::Inspect { lease }
            | Self::Peek { lease }
            | Self::Note { lease } => ShardId::of(lease.name(), count).index(),
            Self::List { cursor, .. } => cursor.shard,
            Self::Members(_) => 0,
        }
    }

    /// Whether an answer follows under the number of this request. A withdrawn acquire is answered
    /// only once, and maybe was already. A note has no answer.
    pub(crate) const fn wants_answer(&self) -> bool {
        !matches!(self, Self::Abandon { .. } | Self::Note { .. })
    }

    /// Whether a node that stops still serves it, because it grants nothing and tells no caller.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self, Self::Abandon { .. } | Self::Release { .. } | Self::Note { .. })
    }

    /// Copies the texts, so that the request can go to another thread.
    pub(crate) fn into_owned(self) -> Request<'static> {
        match self {
            Self::Acquire { lease, ttl, wait, permits, is_retried, lasts } => {
                let lease = lease.into_owned();
                Request::Acquire { lease, ttl, wait, permits, is_retried, lasts }
            }
            Self::Abandon { lease } => Request::Abandon { lease: lease.into_owned() },
            Self::Renew { lease, fence, ttl } => {
                Request::Renew { lease: lease.into_owned(), fence, ttl }
            }
            Self::Keep { lease, fence, lasts } => {
                Request::Keep { lease: lease.into_owned(), fence, lasts }
            }
            Self::Release { lease, fence, is_durable } => {
                Request::Release { lease: lease.into_owned(), fence, is_durable }
            }
            Self::Inspect { lease } => Request::Inspect { lease: lease.into_owned() },
            Self::Peek { lease } => Request::Peek { lease: lease.into_owned() },
            Self::Note { lease } => Request::Note { lease: lease.into_owned() },
            Self::List { cursor, prefix, filter, max } => {
                Request::List { cursor, prefix, filter, max }
            }
            Self::Members(request) => Request::Members(request),
        }
    }
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// An acquire succeeded.
    Granted {
        /// The tenure that began; its number is the fence.
        tenure: Tenure,
        /// How long others are excluded, from the start of the winning round.
        ttl: Ttl,
        /// How long the request was queued before that round began: never more than it really
        /// was. A holder with another clock needs it for T2.
        waited: Duration,
        /// When the winning round began, on this node's clock.
        started_at: Instant,
        /// The permit, if the request was for one of a semaphore.
        permit: Option<NonZeroU8>,
    },
    /// An acquire was refused, and its wait is over: a majority reported this holder.
    Held(Sighting),
    /// A renewal succeeded.
    Renewed {
        /// How long others are excluded, from the start of the winning round.
        ttl: Ttl,
        /// When the winning round began, on this node's clock.
        started_at: Instant,
    },
    /// K8: a majority has the lease on disk.
    Kept {
        /// The tenure by its fence now, which may be higher than before. It replaces the number
        /// that the holder has: later requests and the stores behind the lease need it.
        fence: Tenure,
        /// How long the lease lasts, from the moment that each member received it.
        lasts: Lasts,
        /// When the value was sent, on this node's clock: the belief counts from here.
        started_at: Instant,
    },
    /// The disks of a majority do not take a durable lease. After an acquire nothing is held.
    NotKept(NotKept),
    /// A renewal or a [`Request::Keep`] found the tenure over, for good.
    NotHeld,
    /// K8: a durable tenure is over, and it cannot be known whether this release ended it.
    Doubtful,
    /// A release has ended.
    Released {
        /// Whether a majority still had the lease, or may have had it: answers were lost.
        held: bool,
        /// Whether a majority confirmed. If not, the lease ends with its ttl. A durable lease is
        /// still there then, unless a majority is reached within M.
        confirmed: bool,
    },
    /// What a majority stored for a name a moment ago, or what this node did for a peek.
    Inspected(Option<Box<LiveLease>>),
    /// Leases that this node has seen: a hint.
    Listed {
        /// The page.
        leases: Vec<LiveLease>,
        /// Where the next page begins; `None` at the end.
        next: Option<Cursor>,
    },
    /// What a change of the members leads to, or why it did not begin.
    Members(Box<Result<MembersPlan, MembersError>>),
    /// No majority answered in time. Nothing was changed that outlives the ttl.
    NoQuorum,
    /// The acquire was withdrawn by [`Request::Abandon`]; nothing is held.
    Abandoned,
    /// The ttl is out of bounds; nothing was changed.
    Ttl(TtlError),
    /// The name leaves no room for the number of a permit; nothing was changed.
    Name(TextError),
    /// The shard is at one of its limits; nothing was changed.
    Busy(CommandError),
    /// This many lists wait in the shard already, its limit; nothing was changed.
    TooManyLists(usize),
    /// No majority answered, and this node keeps as many names as its limits allow. Nothing was
    /// changed that outlives the ttl.
    Full,
    /// The node stops; nothing was changed.
    Stopping,
}

impl Answer {
    /// The answer to a list that begins behind the last shard.
    pub(crate) const END_OF_LIST: Self = Self::Listed { leases: Vec::new(), next: None };

    /// The error of a request that was not answered. `no_majority` is the usual one.
    pub(crate) fn into_ask_error(self, no_majority: AskError) -> AskError {
        let limit = self.limit();
        match self {
            Self::Busy(error) => AskError::Busy { limit, problem: error.to_string() },
            Self::Full => {
                let problem = "this node keeps as many names as it may, and no majority of the \
                               others answered";
                AskError::Busy { limit, problem: problem.to_owned() }
            }
            Self::NotKept(error) => AskError::NotDurable(error.to_string()),
            Self::Name(error) => AskError::Name(error),
            Self::Stopping => AskError::Stopped,
            _ => no_majority,
        }
    }

    /// The label of the lease that was granted to a request with this label: that of the permit, if
    /// the request was for one.
    #[must_use]
    pub fn granted_label(&self, asked: &Label) -> Option<Label> {
        let Self::Granted { permit, .. } = self else { return None };
        let permit = permit.map(|number| asked.permit(number).expect("the shard made this name"));
        Some(permit.unwrap_or_else(|| asked.clone()))
    }

    /// The limit of a shard that the answer reports.
    #[must_use]
    pub const fn limit(&self) -> Option<Limit> {
        match self {
            Self::Busy(CommandError::TooManyWaiters(_)) => Some(Limit::Waiters),
            Self::Busy(_) => Some(Limit::Inflight),
            Self::Full => Some(Limit::Leases),
            Self::TooManyLists(_) => Some(Limit::Lists),
            _ => None,
        }
    }
}

/// Why the disks of a majority do not take a durable lease (K14).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NotKept {
    /// Members keep nothing on disk.
    #[error(
        "this cell keeps nothing on disk, so a lease longer than max_lease ({max_lease:?}) would \
         not survive a crash: give every member a data_dir, or set durable_leases = \"volatile\""
    )]
    NoDisk {
        /// The longest lease that needs no disk.
        max_lease: Duration,
    },
    /// The configuration says so.
    #[error(
        "durable leases are switched off (durable_leases = \"refuse\"), so a lease \
         lasts for max_lease ({max_lease:?}) at most unless it is renewed"
    )]
    SwitchedOff {
        /// The longest lease that needs no disk.
        max_lease: Duration,
    },
    /// The disks are full, or as many names are durable as the limits allow.
    #[error(
        "a majority of the members has no room for another durable lease: their disks are full, or \
         limits.durable is reached"
    )]
    NoRoom,
}

impl From<CommandError> for Answer {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Ttl(error) => Self::Ttl(error),
            CommandError::TooManyRounds(_) | CommandError::TooManyWaiters(_) => Self::Busy(error),
        }
    }
}

/// A change that a shard has seen: good for showing, never for deciding.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Hint {
    /// A lease began.
    Held(Sighting),
    /// A lease was released.
    Freed {
        /// The name, without a holder.
        label: Label,
        /// The fence of the tenure that ended; `None` if another node told of it.
        fence: Option<u64>,
    },
    /// A lease expired a second or two ago, and no other holder has taken the name since.
    Expired {
        /// The name, and the last holder.
        label: Label,
        /// The fence of the tenure that is over.
        fence: u64,
    },
    /// A text for the clients that watch a name, from [`Request::Note`], not about a lease.
    Note(Label),
}

/// Where a page of a list ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageMax {
    /// After this many leases.
    pub leases: u32,
    /// After the lease that brings the page to this many bytes, as [`PageMax::lease_bytes`] counts.
    pub bytes: usize,
}

impl PageMax {
    /// The most bytes of a page, so that a client that does not read costs little.
    pub const BYTES: usize = 64 * 1024;
    /// More than the longest lease takes.
    pub const LEASE_BYTES: usize = 6 * (Name::LEN_MAX + Holder::LEN_MAX) + LEASE_FRAME_LEN;

    /// A page of at most this many leases and [`Self::BYTES`].
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
        LEASE_FRAME_LEN + escaped(label.name().as_str()) + escaped(&label.holder().to_text())
    }
}

/// More than a listed lease takes besides its name and holder.
const LEASE_FRAME_LEN: usize = 128;

/// Where the next page of a list begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cursor {
    pub(crate) shard: u16,
    pub(crate) slot: u32,
}

impl Cursor {
    /// The beginning of a list.
    pub const START: Self = Self { shard: 0, slot: 0 };
}

/// A number, which a client passes with its next request. The beginning is zero.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (u64::from(self.shard) << 32 | u64::from(self.slot)).fmt(f)
    }
}

impl FromStr for Cursor {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let number: u64 = text.parse()?;
        // A shard that does not exist has nothing to list.
        let shard = u16::try_from(number >> 32).unwrap_or(u16::MAX);
        Ok(Self { shard, slot: number as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_caller() {
        use RequestKind::{Acquire, Other, Renew, Try};
        let origins = [0, 1, 255, ReplyTo::EMBEDDED, ReplyTo::REMOTE];
        for (origin, id) in origins.into_iter().zip([0, 7, REQUEST_IDS_MAX - 1, 12, 3]) {
            let reply_to = ReplyTo { origin, id };
            for kind in [Acquire, Renew, Other, Try] {
                assert_eq!(ReplyTo::of(reply_to.token(kind)), (reply_to, kind));
            }
        }
    }

    #[test]
    fn a_cursor_survives_its_text_form() {
        for (shard, slot) in [(0, 0), (3, 9), (255, u32::MAX)] {
            let cursor = Cursor { shard, slot };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        assert_eq!(Cursor::START.to_string(), "0");
        assert!("x".parse::<Cursor>().is_err());
    }
}
