//! Errors as replies: what is wrong with a command, and what to do. Nothing was changed, and the
//! connection stays open unless the text says otherwise.

use std::fmt;
use std::time::Duration;

use paxoslease_node::TextError;
use paxoslease_wire::resp::RespError;
use thiserror::Error;

use super::command::Spec;
use super::redis::GlobError;
use crate::access::Denied;
use crate::config::PatternError;
use paxoslease_node::Limit;

/// Each text begins with the code that programs act on.
#[derive(Debug, Error)]
pub(super) enum ReplyError<'a> {
    #[error(
        "ERR unknown command '{}', try one of {}; COMMAND DOCS describes them",
        Shown(.0),
        Spec::own_names()
    )]
    UnknownCommand(&'a [u8]),
    #[error("ERR this port accepts RESP, not HTTP; for HTTP, connect to listen.http of this node")]
    Http,
    #[error(
        "ERR wrong number of arguments for '{}' command; expected: {}",
        .0.name.to_ascii_lowercase(), .0.usage
    )]
    WrongNumber(&'static Spec),
    #[error("ERR unexpected '{}'; expected: {}", Shown(.0), .1)]
    Unexpected(&'a [u8], &'static str),
    #[error("ERR '{}' needs a value after it; expected: {}", Shown(.0), .1)]
    NoValue(&'a [u8], &'static str),
    #[error("ERR '{}' is not supported: {}", Shown(.0), .1)]
    Refused(&'a [u8], &'static str),
    #[error(
        "ERR '{}' was not carried out: MULTI was refused, and so is every command until EXEC or \
         DISCARD",
        Shown(.0)
    )]
    InRefusedMulti(&'a [u8]),
    #[error("EXECABORT Transaction discarded: {0}; nothing was carried out")]
    ExecAbort(&'static str),
    /// The whole text, as Redis has it.
    #[error("{0}")]
    Redis(String),
    #[error("NOSCRIPT No matching script. Please use EVAL.")]
    NoScript,
    #[error(
        "ERR scripts are recognised, not run, and this one is not recognised as that of a lock: \
         {0}; docs/redis.md says where to report it"
    )]
    Script(std::sync::Arc<str>),
    #[error(
        "ERR there are no lists: BLPOP waits until a lock is free, and this list belongs to no \
         lock that this connection tried to acquire"
    )]
    NoSignal,
    #[error(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
        .0.to_ascii_lowercase()
    )]
    Subscriber(&'static str),
    #[error(
        "BUSY waiters: {0} commands of this connection wait for a free lock, its limit; replies come in \
         order, so give each waiter a connection"
    )]
    TooManyWaits(usize),
    #[error("BUSY channels: a connection subscribes to at most {0} channels")]
    TooManyChannels(usize),
    #[error(
        "ERR there are no keyspace notifications: subscribe to lease: and a name, or by PSUBSCRIBE \
         to lease:, a prefix and a star (docs/resp.md)"
    )]
    NoKeyspaceEvents,
    #[error("ERR SUBSCRIBE takes lease: and a name; for a prefix and a star use PSUBSCRIBE")]
    LeaseChannel,
    #[error("ERR only the node itself publishes about leases; use another channel")]
    ReservedChannel,
    #[error(
        "BUSY watchers: clients subscribe to {0} channels and patterns in this shard of the node, \
         its limit; ask another node, or UNSUBSCRIBE some"
    )]
    TooManySubscribed(usize),
    #[error("ERR a channel has at most {0} bytes")]
    ChannelLen(usize),
    #[error("ERR {0}")]
    Glob(GlobError),
    #[error("ERR bad message: {0}; nothing was published")]
    Message(TextError),
    #[error("NAME bad name: {0}; nothing was changed")]
    Name(TextError),
    #[error("ERR bad holder: {0}; nothing was changed")]
    Holder(TextError),
    #[error("TTL '{}' is not a ttl; expected milliseconds, such as 15000", Shown(.0))]
    Ttl(&'a [u8]),
    #[error(
        "ERR '{}' is not a fence; expected the number that LEASE.ACQUIRE answered for your own \
         tenure",
        Shown(.0)
    )]
    Fence(&'a [u8]),
    #[error("ERR '{}' is not a {}", Shown(.0), .1)]
    Number(&'a [u8], &'static str),
    #[error("ERR NOTIFY needs RESP3, because its answer is a push; send HELLO 3 first")]
    NotifyNeedsResp3,
    #[error("ERR NOTIFY needs WAIT: it announces the end of an acquire that had to wait")]
    NotifyNeedsWait,
    #[error("ERR a semaphore has no durable permits; leave out PERMITS or DURABLE")]
    DurablePermit,
    #[error("ERR an id for NOTIFY has 1 to {0} bytes")]
    NotifyId(usize),
    #[error("ERR an acquire with that id for NOTIFY is under way on this connection; give another")]
    NotifyIdInUse,
    #[error("ERR {0}")]
    Pattern(PatternError),
    #[error("ERR LEASE.LIST requires a prefix that ends in '*'; for one name use LEASE.GET")]
    PatternNotPrefix,
    #[error("ERR {0} patterns are watched already on this connection; LEASE.UNWATCH some")]
    TooManyPatterns(usize),
    #[error(
        "BUSY watchers: {0} patterns are watched in this shard of the node, its limit; ask another node, or \
         LEASE.UNWATCH some"
    )]
    TooManyWatched(usize),
    #[error("NOPROTO unsupported protocol version; expected HELLO 2 or HELLO 3")]
    NoProtocol,
    #[error("ERR this node requires no token; connect without one")]
    NoPassword,
    #[error("NOAUTH {0}; send AUTH and the token, or HELLO 3 AUTH default and the token")]
    NoAuth(Denied),
    #[error("NOPERM {0}")]
    NoPerm(Denied),
    #[error("NOAUTH the acquire was cancelled, because the token no longer permits it")]
    Withdrawn,
    #[error("ERR this port does not use TLS; connect without it, or set tls.clients of this node")]
    Tls,
    #[error("ERR acquires with NOTIFY wait on this connection and need RESP3; RESET gives them up")]
    StillNotifying,
    #[error("ERR a client's name has up to {0} printable characters and no spaces")]
    ClientName(usize),
    #[error("ERR DB index is out of range; there are 0 to {0}")]
    NoDatabase(u8),
    #[error(
        "BUSY inflight_per_connection: {0} commands of this connection are under way, its limit; wait for replies, or \
         raise limits.inflight_per_connection"
    )]
    Inflight(u32),
    #[error(
        "BUSY acquires_per_second: more than {0} acquires a second on this connection; slow down, or raise \
         limits.acquires_per_second"
    )]
    AcquiresPerSecond(u32),
    #[error(
        "BUSY quota: this token has {0} leases through this node, its quota; release some, or raise \
         leases in its [[access]]"
    )]
    Quota(u32),
    #[error(
        "ERR the acquire was cancelled, because the client closed its side of the connection before \
         the grant; keep it open until the reply"
    )]
    Ended,
    #[error(
        "BUSY out_of_sight: the acquire was cancelled, because the client sent too much data \
         behind it; nothing was changed; wait on a connection of its own, or with NOTIFY"
    )]
    ReadAheadFull,
    #[error("ERR protocol error: {0}")]
    Framing(RespError),
    #[error(
        "ERR the request was not finished {0:?} after it began; send it at once, the connection is \
         closed"
    )]
    PartialRequest(Duration),
    #[error(
        "NOAUTH a token is required, and no valid one was sent for {0:?}; connect again and begin \
         with AUTH and the token; the connection is closed"
    )]
    Unauthenticated(Duration),
    #[error("{} a watch ends, and the connection with it: {}", word(.0), .0)]
    Blinded(Denied),
}

/// The code that programs act on.
const fn word(denied: &Denied) -> &'static str {
    match denied {
        Denied::NoToken | Denied::UnknownToken => "NOAUTH",
        Denied::NotPermitted { .. } => "NOPERM",
    }
}

impl ReplyError<'_> {
    /// The limit that was exceeded, unless it was counted already.
    pub(super) const fn limit(&self) -> Option<Limit> {
        match self {
            Self::Name(_) => Some(Limit::Name),
            Self::Holder(_) => Some(Limit::Holder),
            Self::TooManyPatterns(_) => Some(Limit::Patterns),
            Self::Quota(_) => Some(Limit::Quota),
            Self::TooManyWatched(_) | Self::TooManySubscribed(_) => Some(Limit::Watchers),
            Self::TooManyWaits(_) => Some(Limit::Waiters),
            _ => None,
        }
    }
}

/// Bytes of a client, shortened and made printable.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(self.0);
        let shown = text.chars().take(40);
        shown.map(|c| if c.is_control() { ' ' } else { c }).try_for_each(|c| write!(f, "{c}"))?;
        if text.chars().nth(40).is_some() { f.write_str("...") } else { Ok(()) }
    }
}
