//! The proposer's algorithm as the paper prints it (section 3, steps 1, 3 and 5; section 6).

use std::collections::BTreeSet;

use paxoslease_core::{Ballot, Instant, NodeId, Seen, Ttl};

/// `state` in the paper's listings, with the two counters the listings use.
#[derive(Clone, Debug)]
pub(super) struct Proposer {
    pub(super) ballot: Option<Ballot>,
    /// Responses, not acceptors: the listings say `numOpen++` (P3 counts distinct acceptors).
    num_open: usize,
    num_accepted: usize,
    /// Acceptors that answered unfavourably in this phase. The listings lack this; it is our
    /// addition, so each acceptor counts once, however often it was asked.
    unfavourable: BTreeSet<NodeId>,
    /// T, the requested timeout.
    pub(super) timeout: Ttl,
    /// When `SetTimeout` was last called, and when the timer fires.
    pub(super) timer_set_at: Instant,
    pub(super) timer: Option<Instant>,
    pub(super) lease_owner: bool,
}

impl Default for Proposer {
    fn default() -> Self {
        Self {
            ballot: None,
            num_open: 0,
            num_accepted: 0,
            unfavourable: BTreeSet::new(),
            timeout: Ttl::MIN,
            timer_set_at: Instant::ZERO,
            timer: None,
            lease_owner: false,
        }
    }
}

impl Proposer {
    /// `Proposer::Propose`. The caller sends a prepare request to every acceptor.
    pub(super) fn propose(&mut self, ballot: Ballot, timeout: Ttl) {
        self.ballot = Some(ballot);
        self.timeout = timeout;
        (self.num_open, self.num_accepted) = (0, 0);
        self.unfavourable.clear();
    }

    /// `Proposer::OnPrepareResponse`; returns whether to send propose requests to every acceptor.
    /// It returns true again, and sets the timer again, at each response beyond the majority (P3
    /// arms it once).
    pub(super) fn on_prepare_response(
        &mut self,
        now: Instant,
        me: NodeId,
        from: NodeId,
        accepted: Option<Seen<'_>>,
        majority: usize,
    ) -> bool {
        // Section 6: an owner may propose if a majority responded "either with empty proposals or
        // its existing proposal".
        let own = |seen: Seen<'_>| self.lease_owner && seen.tenure.ballot().node() == Some(me);
        if accepted.is_none_or(own) {
            self.num_open += 1;
        } else {
            self.unfavourable.insert(from);
        }
        if self.num_open < majority {
            return false;
        }
        self.timer_set_at = now;
        self.timer = Some(now.after(self.timeout.as_duration()));
        // The listings never reset their counters. Here the next phase begins.
        self.num_accepted = 0;
        self.unfavourable.clear();
        true
    }

    /// `Proposer::OnProposeResponse`; returns whether it is the lease owner now. A release did not
    /// clear `state.ballotNumber` (P6 voids the round).
    pub(super) fn on_propose_response(&mut self, majority: usize) -> bool {
        self.num_accepted += 1;
        if self.num_accepted < majority {
            return false;
        }
        self.lease_owner = true;
        true
    }

    pub(super) fn on_reject(&mut self, from: NodeId) {
        self.unfavourable.insert(from);
    }

    /// "It is possible that a proposer cannot get a majority of acceptors to send favorable
    /// responses": whether that is so.
    pub(super) fn is_hopeless(&self, majority: usize, acceptors: usize) -> bool {
        self.unfavourable.len() > acceptors - majority
    }

    /// `Proposer::OnTimeout`.
    pub(super) fn on_timeout(&mut self) {
        self.timer = None;
        self.ballot = None;
        self.lease_owner = false;
    }
}
