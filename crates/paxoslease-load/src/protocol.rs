//! What a load needs from the protocol that it speaks: leases asked for in slots, and outcomes.
//!
//! The load decides who asks what when, and counts. How that is spoken is up to a [`Protocol`],
//! over which connections up to its [`Connections`]. A protocol whose library brings its own
//! sockets has none: its program drives a [`Session`](crate::Session) itself.

use std::time::Duration;

use crate::session::PATIENCE;

/// Digits that tell names apart.
const DIGITS: usize = 9;

/// What a slot asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// With a token that no other acquire of this load has: the proof of the tenure where the
    /// server gives no fence.
    Acquire {
        /// Never zero.
        token: u64,
    },
    /// Renews what was granted.
    Renew {
        /// Of the grant, or the token.
        fence: u64,
    },
    /// Gives back what was granted.
    Release {
        /// Of the grant, or the token.
        fence: u64,
    },
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done; of a grant, with the fence if the server gives one.
    Yes(Option<u64>),
    /// Held by another client, or no longer held.
    No,
    /// An error, in the server's words. The first word is its kind.
    Failed(Box<str>),
}

/// How leases are asked for. Slots are numbered from zero to the requests in flight of the plan.
pub trait Protocol {
    /// Whether an acquire of a name that is held waits at the server. Other clients poll.
    fn queues(&self) -> bool;

    /// Whether [`Protocol::close`] gives back everything that is held.
    fn close_releases(&self) -> bool {
        false
    }

    /// For how long no answer may come before the load gives up: longer than a server makes a
    /// client wait.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Whether the load may begin; `now` counts from its start.
    fn is_open(&self, now: Duration) -> bool;

    /// Whether this slot can ask now.
    fn is_ready(&self, _slot: u32) -> bool {
        true
    }

    /// Asks something about the lease of this number. There will be one outcome.
    fn ask(&mut self, slot: u32, number: u32, ask: Ask, now: Duration);

    /// What came of something that a slot had asked.
    fn next_outcome(&mut self) -> Option<(u32, Outcome)>;

    /// Says goodbye where that is the custom.
    fn close(&mut self) {}

    /// Whether the goodbye was heard, and everything that was asked.
    fn is_closed(&self) -> bool {
        true
    }
}

/// The connections of a protocol: bytes and the time go in, bytes come out.
pub trait Connections: Protocol {
    /// For each connection the endpoints to which it may go, by their places in the plan, the
    /// preferred one first.
    fn routes(&self) -> Vec<Vec<usize>>;

    /// How long to wait before a broken connection is made again. `None` goes to the next endpoint
    /// at once, and ends the load when none of them answers.
    fn redials_after(&self) -> Option<Duration> {
        None
    }

    /// A connection came about.
    fn connected(&mut self, _link: usize) {}

    /// Whether the server at the other end has introduced itself.
    fn is_greeted(&self, link: usize) -> bool;

    /// A connection broke or did not come about. What was asked there has failed.
    fn lost(&mut self, link: usize, now: Duration);

    /// Bytes that came. Says how many of them were whole answers.
    ///
    /// # Errors
    /// When the load cannot go on.
    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize, Failure>;

    /// What is to be sent.
    fn outgoing(&mut self) -> &mut Outgoing;

    /// A connection that owes an answer, if any does.
    fn waiting(&self) -> Option<usize>;
}

/// Why a load cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server is of another kind, which it names.
    #[error("another kind of server, which says it is `{0}`")]
    Foreign(String),
    /// The server refuses what would be asked again and again, in its words.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// An answer that no server of this kind gives.
    #[error("not an answer: {0}")]
    Garbled(String),
    /// A lease that was to be renewed could not be taken.
    #[error("a lease to renew could not be taken: {0}")]
    Fill(String),
    /// A name that was to be renewed is held by another client.
    #[error("{0} is held by another")]
    Taken(String),
    /// Nothing was answered for too long.
    #[error("no answer for too long")]
    Silent,
}

/// What is to be sent on each connection.
#[derive(Debug)]
pub struct Outgoing {
    buffers: Vec<Vec<u8>>,
    pending: Vec<usize>,
}

impl Outgoing {
    /// An empty buffer for each connection.
    #[must_use]
    pub fn new(links: usize) -> Self {
        Self { buffers: vec![Vec::new(); links], pending: Vec::with_capacity(links) }
    }

    /// Where to append what is to be sent on this connection.
    pub fn to(&mut self, link: usize) -> &mut Vec<u8> {
        if self.buffers[link].is_empty() {
            self.pending.push(link);
        }
        &mut self.buffers[link]
    }

    /// Drops what was not sent.
    pub fn clear(&mut self, link: usize) {
        self.buffers[link].clear();
    }

    /// A connection that has had nothing to send and now has.
    pub fn next_pending(&mut self) -> Option<usize> {
        self.pending.pop()
    }

    /// What a connection has to send. The caller takes out what it sent.
    pub fn unsent(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.buffers[link]
    }
}

/// The names of leases, written in place: a prefix and nine digits, so all have the same length.
#[derive(Clone, Debug)]
pub struct Names(Vec<u8>);

impl Names {
    /// Names with this prefix.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let mut text = prefix.as_bytes().to_vec();
        text.extend_from_slice(&[b'0'; DIGITS]);
        Self(text)
    }

    /// The name of the lease of this number.
    pub fn get(&mut self, number: u32) -> &[u8] {
        let digits = self.0.len() - DIGITS;
        let mut left = number;
        for digit in self.0[digits..].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        &self.0
    }
}
