//! The interface between a load and a protocol: requests of slots, and their outcomes.
//!
//! The load decides which slot sends what when, and counts. A [`Protocol`] encodes the requests,
//! its [`Connections`] carry them. A protocol with a library that has its own sockets has no
//! [`Connections`]: its program drives a [`Session`](crate::Session) itself.

use std::time::Duration;

use crate::session::SILENCE_MAX;

/// The digits at the end of a name.
const DIGITS: usize = 9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseRequest {
    /// With a token that no other acquire of this load has. It identifies the tenure if the server
    /// gives no fence.
    Acquire {
        /// Never zero.
        token: u64,
    },
    /// With the fence of the grant, or the token.
    Renew { fence: u64 },
    /// With the fence of the grant, or the token.
    Release { fence: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Done, with the fence of a grant if the server gives one.
    Yes(Option<u64>),
    /// Held by another client, or no longer held.
    No,
    /// The error text of the server. The first word is its kind.
    Failed(Box<str>),
}

/// Sends requests for leases. Slots are numbered from zero to `in_flight` of the plan.
pub trait Protocol {
    /// Whether an acquire of a held name waits at the server. If not, the load polls.
    fn queues(&self) -> bool;

    /// Whether [`Protocol::close`] releases all leases.
    fn close_releases(&self) -> bool {
        false
    }

    /// The time without an answer after which the load gives up: longer than a wait at the server.
    fn silence_max(&self) -> Duration {
        SILENCE_MAX
    }

    /// Whether the load may begin; `now` counts from its start.
    fn is_open(&self, now: Duration) -> bool;

    /// Whether this slot can send a request now.
    fn is_ready(&self, _slot: u32) -> bool {
        true
    }

    /// Sends a request about the lease of this number. There will be one outcome.
    fn request(&mut self, slot: u32, number: u32, request: LeaseRequest, now: Duration);

    /// The next outcome of a request, and its slot.
    fn next_outcome(&mut self) -> Option<(u32, Outcome)>;

    /// Ends the sessions, if the protocol has them.
    fn close(&mut self) {}

    /// Whether all requests are answered, and the sessions have ended.
    fn is_closed(&self) -> bool {
        true
    }
}

/// The connections of a protocol: bytes and the time go in, bytes come out.
pub trait Connections: Protocol {
    /// For each connection, the indices of its endpoints in the plan, the preferred one first.
    fn routes(&self) -> Vec<Vec<usize>>;

    /// The pause before a broken connection is made again. `None` goes to the next endpoint at
    /// once, and ends the load when no endpoint answers.
    fn redials_after(&self) -> Option<Duration> {
        None
    }

    fn connected(&mut self, _link: usize) {}

    /// Whether the server has answered the greeting.
    fn is_greeted(&self, link: usize) -> bool;

    /// A connection broke or could not be made. Its requests have failed.
    fn lost(&mut self, link: usize, now: Duration);

    /// Handles received bytes, and returns how many of them were complete answers.
    /// Fails when the load cannot go on.
    fn received(&mut self, link: usize, bytes: &[u8], now: Duration) -> Result<usize, Failure>;

    fn outgoing(&mut self) -> &mut Outgoing;

    /// A connection with an unanswered request, if there is one.
    fn waiting(&self) -> Option<usize>;
}

/// Why a load cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    #[error("another kind of server, which says it is `{0}`")]
    Foreign(String),
    #[error("the server refuses: {0}")]
    Refused(String),
    #[error("not an answer: {0}")]
    Garbled(String),
    #[error("a lease to renew could not be taken: {0}")]
    Fill(String),
    #[error("{0} is held by another")]
    Taken(String),
    #[error("no answer for too long")]
    Silent,
}

#[derive(Debug)]
pub struct Outgoing {
    buffers: Vec<Vec<u8>>,
    pending: Vec<usize>,
}

impl Outgoing {
    #[must_use]
    pub fn new(links: usize) -> Self {
        Self { buffers: vec![Vec::new(); links], pending: Vec::with_capacity(links) }
    }

    /// The buffer of a connection, to append requests to.
    pub fn to(&mut self, link: usize) -> &mut Vec<u8> {
        if self.buffers[link].is_empty() {
            self.pending.push(link);
        }
        &mut self.buffers[link]
    }

    pub fn clear(&mut self, link: usize) {
        self.buffers[link].clear();
    }

    /// A connection that has bytes to send since the last call.
    pub fn next_pending(&mut self) -> Option<usize> {
        self.pending.pop()
    }

    /// The unsent bytes. The caller removes what it has sent.
    pub fn unsent(&mut self, link: usize) -> &mut Vec<u8> {
        &mut self.buffers[link]
    }
}

/// The names of leases, written in place: a prefix and nine digits, so all have the same length.
#[derive(Clone, Debug)]
pub struct Names(Vec<u8>);

impl Names {
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let mut text = prefix.as_bytes().to_vec();
        text.extend_from_slice(&[b'0'; DIGITS]);
        Self(text)
    }

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
