//! One name in one acceptor: its promise, its accepted lease, and the rules by which both change
//! (protocol section 3, A1 to A6; paper, section 3 steps 2 and 4).
//!
//! Pure and small on purpose: no name, no storage, no message. An expired lease is no lease
//! (A1), so nothing here needs a timer.

use crate::rules::{Rule, Rules};
use crate::{Ballot, Instant, Tenure, Ttl};

/// The paper's acceptor state: highest ballot number promised and accepted proposal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Register {
    /// Rounds below this ballot are refused.
    pub promised: Ballot,
    /// The last accepted proposal, until it is released; a lease only until it expires.
    pub accepted: Option<Accepted>,
}

/// An accepted proposal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accepted {
    /// The tenure; its number is the fence.
    pub tenure: Tenure,
    /// When the lease ends, on this acceptor's clock.
    pub expires_at: Instant,
}

/// The answer to a round, without what it reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Promise,
    Accept,
    Reject,
    NotHeld,
}

impl Register {
    /// A1: the accepted lease, unless it has expired.
    #[must_use]
    pub fn live(&self, now: Instant) -> Option<Accepted> {
        self.accepted.filter(|accepted| now < accepted.expires_at)
    }

    /// The lowest ballot that is not refused.
    pub(crate) fn bar(&self, floor: Ballot) -> Ballot {
        self.promised.max(floor)
    }

    /// A2. A promise raises `promised`.
    pub(crate) fn prepare(&mut self, floor: Ballot, ballot: Ballot) -> Answer {
        if ballot < self.bar(floor) {
            return Answer::Reject;
        }
        self.promised = ballot;
        Answer::Promise
    }

    /// A3. The tenure is named by the round's ballot.
    pub(crate) fn propose(
        &mut self,
        rules: Rules,
        now: Instant,
        floor: Ballot,
        tenure: Tenure,
        ttl: Ttl,
    ) -> Answer {
        let ballot = tenure.ballot();
        let live = self.live(now);
        if live.is_some_and(|live| live.tenure == tenure) {
            return Answer::Accept;
        }
        if ballot < self.bar(floor) {
            return Answer::Reject;
        }
        if live.is_some() && rules.on(Rule::ProposeRefusesForeign) {
            return Answer::Reject;
        }
        if rules.on(Rule::ProposeRaisesPromised) {
            self.promised = ballot;
        }
        self.store(now, tenure, ttl);
        Answer::Accept
    }

    /// A4. Promises to contenders do not matter: a contender cannot win while the lease is live, so
    /// it must not be able to disturb the holder.
    pub(crate) fn renew(
        &mut self,
        rules: Rules,
        now: Instant,
        tenure: Tenure,
        ballot: Ballot,
        ttl: Ttl,
    ) -> Answer {
        let expires_at = match self.live(now) {
            Some(live) if live.tenure == tenure => live.expires_at,
            None if !rules.on(Rule::RenewOnlyLive) => now,
            Some(_) | None => return Answer::NotHeld,
        };
        self.store(now, tenure, ttl);
        if rules.on(Rule::RenewKeepsLater) {
            self.keep_later(expires_at);
        }
        if rules.on(Rule::RenewRaisesPromised) {
            self.promised = self.promised.max(ballot);
        }
        Answer::Accept
    }

    /// A5. A Heal is sent only after its tenure was granted, and by then every lower tenure is over
    /// for good: a record of a lower tenure protects no holder (protocol section 8).
    pub(crate) fn heal(
        &mut self,
        rules: Rules,
        now: Instant,
        floor: Ballot,
        tenure: Tenure,
        ballot: Ballot,
        ttl: Ttl,
    ) -> Answer {
        match self.live(now) {
            Some(live) if live.tenure == tenure => self.renew(rules, now, tenure, ballot, ttl),
            Some(live) if live.tenure > tenure && rules.on(Rule::HealReplacesOnlyLower) => {
                Answer::Reject
            }
            _ if ballot < self.bar(floor) && rules.on(Rule::HealObeysBallot) => Answer::Reject,
            _ => {
                self.promised = self.promised.max(ballot);
                self.store(now, tenure, ttl);
                Answer::Accept
            }
        }
    }

    /// A6. Returns whether the tenure was live.
    pub(crate) fn release(&mut self, rules: Rules, now: Instant, tenure: Tenure) -> bool {
        let Some(stored) = self.accepted else { return false };
        if stored.tenure != tenure && rules.on(Rule::ReleaseMatchesTenure) {
            return false;
        }
        self.accepted = None;
        self.promised = self.promised.max(tenure.ballot().next());
        now < stored.expires_at
    }

    pub(crate) fn store(&mut self, now: Instant, tenure: Tenure, ttl: Ttl) {
        self.accepted = Some(Accepted { tenure, expires_at: now.after(ttl.as_duration()) });
    }

    fn keep_later(&mut self, expires_at: Instant) {
        if let Some(accepted) = &mut self.accepted {
            accepted.expires_at = accepted.expires_at.max(expires_at);
        }
    }
}
