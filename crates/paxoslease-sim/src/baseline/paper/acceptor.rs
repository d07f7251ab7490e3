//! The acceptor's algorithm as the paper prints it (section 3, steps 2 and 4; section 7).

use paxoslease_core::{Ballot, Holder, Instant, Reply, Seen, Tenure, Ttl};

/// "Acceptors store the following state information" (section 2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acceptor {
    pub(super) highest_promised: Ballot,
    pub(super) accepted_proposal: Option<Proposal>,
}

/// A ballot number and a lease. The proposer's id is part of the ballot number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Proposal {
    pub(super) ballot: Ballot,
    pub(super) expires_at: Instant,
}

impl Proposal {
    fn seen(self, now: Instant) -> Option<Seen<'static>> {
        let remaining = Ttl::from_duration(self.expires_at.since(now)).unwrap_or(Ttl::MIN);
        Some(Seen { tenure: Tenure::of(self.ballot)?, remaining, holder: Holder::NONE })
    }
}

impl Acceptor {
    /// "After the timeout expires the acceptor resets its accepted proposal to empty."
    fn accepted(&self, now: Instant) -> Option<Proposal> {
        self.accepted_proposal.filter(|proposal| now < proposal.expires_at)
    }

    /// "They either discard the message or send a response with a reject answer": we send it,
    /// because that helps the proposer.
    const fn reject(&self, ballot: Ballot) -> Reply<'static> {
        Reply::Reject { ballot, promised: self.highest_promised, accepted: None }
    }

    /// `Acceptor::OnPrepareRequest`.
    pub(super) fn on_prepare_request(&mut self, now: Instant, ballot: Ballot) -> Reply<'static> {
        if ballot < self.highest_promised {
            return self.reject(ballot);
        }
        self.highest_promised = ballot;
        let accepted = self.accepted(now).and_then(|proposal| proposal.seen(now));
        Reply::Promise { ballot, accepted }
    }

    /// `Acceptor::OnProposeRequest`: "if it has stored a previous proposal, it discards it", live
    /// or not (A3 refuses), and `state.highestPromised` does not change (A3 raises it).
    pub(super) fn on_propose_request(
        &mut self,
        now: Instant,
        ballot: Ballot,
        timeout: Ttl,
    ) -> Reply<'static> {
        if ballot < self.highest_promised {
            return self.reject(ballot);
        }
        // The timer starts again from now, even if it then ends sooner (A4 keeps the later end).
        let expires_at = now.after(timeout.as_duration());
        self.accepted_proposal = Some(Proposal { ballot, expires_at });
        Reply::Accept { ballot }
    }

    /// "It checks whether its accepted ballot number matches. If it does, it discards its state."
    /// The acceptor promises nothing (A6 promises, so that it refuses a late propose request).
    pub(super) fn on_release(&mut self, ballot: Ballot) {
        if self.accepted_proposal.is_some_and(|proposal| proposal.ballot == ballot) {
            self.accepted_proposal = None;
        }
    }
}
