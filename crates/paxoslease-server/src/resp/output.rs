//! Bytes for a client that are not sent yet, and the grants among them: a grant that was never sent
//! is given back when the client leaves (P8).

use std::collections::VecDeque;

use paxoslease_node::front::Instant;

use crate::audit::Audit;

use super::pending::{PendingRequests, RequestId};

/// A larger buffer is freed once it is empty.
const KEPT_MAX: usize = 8 * 1024;

#[derive(Default)]
pub(super) struct Output {
    /// Replies and pushes are appended here.
    pub(super) bytes: Vec<u8>,
    /// How many of them were sent.
    start: usize,
    /// All bytes ever sent.
    sent: u64,
    /// Grants that were not sent yet: where in the stream they end, their request, their fence.
    grants: VecDeque<(u64, RequestId, u64)>,
    /// Since when the client has taken nothing, although there are unsent bytes.
    pub(super) blocked_at: Option<Instant>,
}

impl Output {
    pub(super) fn pending(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The bytes that were appended last are the reply for this grant.
    pub(super) fn granted(&mut self, ask: RequestId, fence: u64) {
        let end = self.sent + self.pending() as u64;
        self.grants.push_back((end, ask, fence));
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The connection took this much of [`Self::unsent`].
    pub(super) fn taken(
        &mut self,
        taken: usize,
        now: Instant,
        pending: &mut PendingRequests,
        audit: &Audit,
    ) {
        self.start += taken;
        self.sent += taken as u64;
        while self.grants.front().is_some_and(|(end, ..)| *end <= self.sent) {
            if let Some((_, ask, _)) = self.grants.pop_front() {
                pending.take(ask).entry.into_iter().for_each(|entry| audit.put(*entry));
            }
        }
        if self.pending() == 0 {
            self.blocked_at = None;
            self.start = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_MAX);
        } else if taken > 0 || self.blocked_at.is_none() {
            self.blocked_at = Some(now);
            // Bytes that were sent are removed rarely, so that this costs next to nothing.
            if self.start > self.bytes.len() / 2 {
                self.bytes.drain(..self.start);
                self.start = 0;
            }
        }
    }

    /// The grants that were never sent.
    pub(super) fn unsent_grants(&mut self) -> impl Iterator<Item = (RequestId, u64)> {
        self.grants.drain(..).map(|(_, ask, fence)| (ask, fence))
    }
}
