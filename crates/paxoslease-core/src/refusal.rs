//! Why a shard refuses a command, drops a peer's message, or cannot begin a round.

use core::fmt;

use crate::TtlError;
use crate::listed::listed;

/// Why a command was refused. Nothing was changed, and no event will follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// The ttl is out of bounds.
    Ttl(TtlError),
    /// [`crate::Limits::rounds_max`] is reached; its value is given.
    TooManyRounds(usize),
    /// [`crate::Limits::waiters_max`] is reached; its value is given.
    TooManyWaiters(usize),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ttl(error) => fmt::Display::fmt(error, f),
            Self::TooManyRounds(max) => write!(f, "{max} rounds are in flight already"),
            Self::TooManyWaiters(max) => write!(f, "{max} requests wait already"),
        }
    }
}

impl core::error::Error for CommandError {}

listed! {
    /// Why a shard dropped a peer's message. Nothing was changed.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Refusal {
        /// A0: this acceptor may have lost leases in a restart and answers nothing.
        Quarantined,
        /// A1: a ttl above M.
        TtlTooLong,
        /// A1: a counter above [`crate::Shard::counter_bound`]. No honest peer sends one:
        /// disconnect the sender and tell the operator.
        BallotExhausting,
        /// A ballot with the id of another node than the sender.
        BallotNotSenders,
        /// This node is not an acceptor.
        NotAcceptor,
        /// A reply from a node that is not an acceptor of this cell.
        NotMember,
        /// C1: the sender is in another epoch. Whichever node is behind has to learn the
        /// configuration of the other.
        WrongEpoch,
        /// The acceptor has no room for another name.
        TableFull,
        /// The request needs a higher ceiling in the stable record, and as many requests as the
        /// limit allows wait for that already.
        RecordBehind,
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quarantined => "quarantined after a restart",
            Self::TtlTooLong => "ttl above max_lease",
            Self::BallotExhausting => "ballot that would use up the counter space",
            Self::BallotNotSenders => "ballot of another node",
            Self::NotAcceptor => "this node is not an acceptor",
            Self::NotMember => "reply from a node that is not an acceptor of this cell",
            Self::WrongEpoch => "message of another epoch",
            Self::TableFull => "no room for another name",
            Self::RecordBehind => "waiting for the stable record",
        })
    }
}

impl core::error::Error for Refusal {}

/// Why a shard cannot issue a ballot. No round can begin until that changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BallotProblem {
    /// A1: the counter is at [`crate::Ballot::COUNTER_LIMIT`], which never changes.
    Exhausted,
    /// A1: the counter is at [`crate::Shard::counter_bound`], which moves with the clock.
    AtBound,
    /// R1: the stable record has no room for another ballot yet.
    RecordBehind,
}

impl fmt::Display for BallotProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "the ballot counter is used up",
            Self::AtBound => "the ballot counter is at the bound that this node's clock sets",
            Self::RecordBehind => "the stable record has no room for another ballot yet",
        })
    }
}
