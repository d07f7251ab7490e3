//! What clients did to one key: operations, their replies, and when each was called and answered.
//!
//! All times are of one clock, [`crate::log::now`]. Deliberately lacks what a reply means for the
//! key, which is in [`super::model`].

use std::fmt;

use crate::log::Nanos;

/// A value that is set once in a run, so that a read says which operation it saw.
pub type Value = u64;
/// Stands for a text that no client set, which no operation explains.
pub const UNSET: Value = Value::MAX;
/// A span in milliseconds, as commands have it.
pub type Millis = u64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The client's number, for people.
    pub client: u16,
    /// The node that was asked, for people.
    pub node: u16,
    pub command: Command,
    pub called_at: Nanos,
    pub outcome: Outcome,
    /// When the reply or the failure was there.
    pub returned_at: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Set {
        value: Value,
        /// `None` for a key that does not expire.
        ttl: Option<Millis>,
        when: When,
        /// Whether to reply the value from before.
        get: bool,
    },
    Get,
    Exists,
    Pttl,
    Del,
    GetDel,
    Pexpire {
        ttl: Millis,
        condition: Option<Condition>,
    },
    /// The script that deletes a key if it has this value.
    Release(Value),
    /// The script that sets the end of a key if it has this value.
    Extend(Value, Millis),
    LeaseAcquire(Value, Millis),
    LeaseRenew {
        fence: u64,
        ttl: Millis,
    },
    LeaseRelease {
        fence: u64,
    },
    LeaseGet,
}

/// The condition of a SET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    IsFree,
    IsHeld,
}

/// The condition of a PEXPIRE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    Nx,
    Xx,
    Gt,
    Lt,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Reply(Reply),
    /// It may have happened, or may still happen.
    Unknown(Doubt),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// An error reply that does not say that nothing happened.
    Error,
    /// The connection failed or the client gave up, and closed it.
    Gone,
    /// The reply came after the part of a history that is shown.
    Later,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    Ok,
    Nil,
    Number(i64),
    Value(Value),
    Granted {
        fence: u64,
    },
    Held {
        value: Value,
        fence: u64,
        /// -1 for a lease without an end.
        ttl: i64,
    },
    /// NOTHELD of a renewal.
    NotHeld,
    /// The error of a SET that would replace another value.
    Conflict,
}

impl Command {
    /// For how long this holds the key if it succeeds. `None` if it sets no end.
    pub fn ttl(&self) -> Option<Millis> {
        match *self {
            Self::Set { ttl, .. } => ttl,
            Self::Pexpire { ttl, .. }
            | Self::Extend(_, ttl)
            | Self::LeaseAcquire(_, ttl)
            | Self::LeaseRenew { ttl, .. } => Some(ttl),
            Self::Get
            | Self::Exists
            | Self::Pttl
            | Self::Del
            | Self::GetDel
            | Self::Release(_)
            | Self::LeaseRelease { .. }
            | Self::LeaseGet => None,
        }
    }

    /// The value that this sets.
    pub fn sets(&self) -> Option<Value> {
        match *self {
            Self::Set { value, .. } | Self::LeaseAcquire(value, _) => Some(value),
            _ => None,
        }
    }

    /// Whether this begins a tenure on a free key.
    pub const fn acquires(&self) -> bool {
        matches!(self, Self::Set { when: When::IsFree, .. } | Self::LeaseAcquire(..))
    }

    /// Whether this changes nothing, whatever the reply.
    pub const fn only_reads(&self) -> bool {
        matches!(self, Self::Get | Self::Exists | Self::Pttl | Self::LeaseGet)
    }
}

impl Operation {
    /// When the operation cannot happen any more.
    pub const fn over_at(&self) -> Nanos {
        match self.outcome {
            Outcome::Reply(_) => self.returned_at,
            Outcome::Unknown(_) => Nanos::MAX,
        }
    }

    /// Whether it changed nothing by its own reply.
    pub fn changes_nothing(&self) -> bool {
        let is_refused = matches!(self.outcome, Outcome::Reply(_)) && !self.is_granted();
        is_refused || self.command.only_reads()
    }

    /// Whether it took effect by its own reply.
    pub fn is_granted(&self) -> bool {
        match (self.command, self.outcome) {
            (Command::Set { get: false, .. }, Outcome::Reply(reply)) => reply == Reply::Ok,
            (Command::Set { when: When::IsFree, .. }, Outcome::Reply(reply)) => reply == Reply::Nil,
            (Command::Set { .. }, Outcome::Reply(reply)) => matches!(reply, Reply::Value(_)),
            (Command::LeaseAcquire(..), Outcome::Reply(reply)) => {
                matches!(reply, Reply::Granted { .. })
            }
            (_, Outcome::Reply(reply)) => match reply {
                Reply::Number(number) => number > 0,
                Reply::Value(_) => true,
                _ => false,
            },
            (_, Outcome::Unknown(_)) => false,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Set { value, ttl, when, get } => {
                write!(f, "SET v{value} {}", if when == When::IsFree { "NX" } else { "XX" })?;
                if let Some(ttl) = ttl {
                    write!(f, " PX {ttl}")?;
                }
                f.write_str(if get { " GET" } else { "" })
            }
            Self::Get => f.write_str("GET"),
            Self::Exists => f.write_str("EXISTS"),
            Self::Pttl => f.write_str("PTTL"),
            Self::Del => f.write_str("DEL"),
            Self::GetDel => f.write_str("GETDEL"),
            Self::Pexpire { ttl, condition: None } => write!(f, "PEXPIRE {ttl}"),
            Self::Pexpire { ttl, condition: Some(condition) } => {
                write!(f, "PEXPIRE {ttl} {condition}")
            }
            Self::Release(value) => write!(f, "release script v{value}"),
            Self::Extend(value, ttl) => write!(f, "extend script v{value} {ttl}"),
            Self::LeaseAcquire(value, ttl) => write!(f, "LEASE.ACQUIRE {ttl} HOLDER v{value}"),
            Self::LeaseRenew { fence, ttl } => write!(f, "LEASE.RENEW {fence} {ttl}"),
            Self::LeaseRelease { fence } => write!(f, "LEASE.RELEASE {fence}"),
            Self::LeaseGet => f.write_str("LEASE.GET"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nx => "NX",
            Self::Xx => "XX",
            Self::Gt => "GT",
            Self::Lt => "LT",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unknown(Doubt::Error) => f.write_str("? (an error)"),
            Self::Unknown(Doubt::Gone) => f.write_str("? (no reply)"),
            Self::Unknown(Doubt::Later) => f.write_str("? (under way)"),
            Self::Reply(reply) => match reply {
                Reply::Ok => f.write_str("OK"),
                Reply::Nil => f.write_str("nil"),
                Reply::Number(number) => write!(f, "{number}"),
                Reply::Value(UNSET) => f.write_str("a text that no client set"),
                Reply::Value(value) => write!(f, "v{value}"),
                Reply::Granted { fence } => write!(f, "granted, fence {fence}"),
                Reply::Held { value, fence, ttl } => write!(f, "v{value}, fence {fence}, {ttl} ms"),
                Reply::NotHeld => f.write_str("NOTHELD"),
                Reply::Conflict => f.write_str("ERR, another value"),
            },
        }
    }
}

/// The operations in the order of their calls, in microseconds from the first call.
pub fn text(operations: &[Operation]) -> String {
    let from = operations.iter().map(|one| one.called_at).min().unwrap_or(0);
    let mut sorted: Vec<&Operation> = operations.iter().collect();
    sorted.sort_by_key(|one| one.called_at);
    let line = |one: &Operation| {
        let micros = |at: Nanos| (at - from) / 1000;
        let Operation { client, node, command, outcome, .. } = one;
        let (called, returned) = (micros(one.called_at), micros(one.returned_at));
        format!(
            "{called:>9} ..{returned:>9}  node {node}  client {client:>2}  {command} -> {outcome}\n"
        )
    };
    sorted.into_iter().map(line).collect()
}
