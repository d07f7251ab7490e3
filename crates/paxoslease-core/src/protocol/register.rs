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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use proptest::prelude::*;

    const R: Rules = Rules::ALL;
    const NO_FLOOR: Ballot = Ballot::ZERO;

    fn ballot(counter: u64) -> Ballot {
        Ballot::new(counter, NodeId::new(1).expect("an id"))
    }
    fn tenure(counter: u64) -> Tenure {
        Tenure::of(ballot(counter)).expect("a node's ballot")
    }
    fn ttl(millis: u32) -> Ttl {
        Ttl::from_millis(millis).expect("not zero")
    }
    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }
    /// A register that accepted ballot 5 at 0 ms for 100 ms.
    fn leased() -> Register {
        let mut register = Register::default();
        assert_eq!(register.propose(R, at(0), NO_FLOOR, tenure(5), ttl(100)), Answer::Accept);
        register
    }

    #[test]
    fn a_lease_ends_exactly_at_its_expiry() {
        let register = leased();
        assert!(register.live(Instant::from_nanos(99_999_999)).is_some());
        assert_eq!(register.live(at(100)), None);
    }

    #[test]
    fn the_floor_counts_like_a_promise() {
        let mut register = Register::default();
        assert_eq!(register.prepare(ballot(5), ballot(4)), Answer::Reject);
        assert_eq!(register.propose(R, at(0), ballot(5), tenure(4), ttl(1)), Answer::Reject);
        assert_eq!(
            register.heal(R, at(0), ballot(5), tenure(1), ballot(4), ttl(1)),
            Answer::Reject
        );
        assert_eq!(register, Register::default());
        assert_eq!(register.prepare(ballot(5), ballot(5)), Answer::Promise);
    }

    #[test]
    fn a_duplicate_propose_below_a_promise_changes_nothing() {
        let mut register = leased();
        register.prepare(NO_FLOOR, ballot(9));
        let before = register;
        assert_eq!(register.propose(R, at(50), NO_FLOOR, tenure(5), ttl(100)), Answer::Accept);
        assert_eq!(register, before);
    }

    #[test]
    fn a_live_lease_refuses_others_and_the_promise_stays() {
        let mut register = leased();
        let before = register;
        assert_eq!(register.propose(R, at(99), NO_FLOOR, tenure(9), ttl(100)), Answer::Reject);
        let healed = register.heal(R, at(99), NO_FLOOR, tenure(4), ballot(10), ttl(100));
        assert_eq!((healed, register), (Answer::Reject, before), "a Heal of a lower tenure");
        assert_eq!(register.propose(R, at(100), NO_FLOOR, tenure(9), ttl(100)), Answer::Accept);
    }

    #[test]
    fn a_heal_with_a_sufficient_ballot_replaces_a_lower_tenure() {
        let mut register = leased();
        register.prepare(NO_FLOOR, ballot(8));
        let before = register;
        let late = register.heal(R, at(50), NO_FLOOR, tenure(6), ballot(7), ttl(100));
        assert_eq!((late, register), (Answer::Reject, before), "below the promise");
        let below_floor = register.heal(R, at(50), ballot(11), tenure(9), ballot(10), ttl(100));
        assert_eq!((below_floor, register), (Answer::Reject, before), "below the floor");
        let healed = register.heal(R, at(50), NO_FLOOR, tenure(9), ballot(10), ttl(100));
        assert_eq!((healed, register.promised), (Answer::Accept, ballot(10)));
        assert_eq!(register.live(at(149)).map(|live| live.tenure), Some(tenure(9)));
    }

    #[test]
    fn a_renewal_of_a_lapsed_or_foreign_tenure_changes_nothing() {
        let mut register = leased();
        let before = register;
        assert_eq!(register.renew(R, at(100), tenure(5), ballot(6), ttl(100)), Answer::NotHeld);
        assert_eq!(register.renew(R, at(50), tenure(4), ballot(6), ttl(100)), Answer::NotHeld);
        assert_eq!(register, before);
    }

    #[test]
    fn a_heal_with_the_promised_ballot_is_accepted() {
        let mut register = Register::default();
        register.prepare(NO_FLOOR, ballot(6));
        let healed = register.heal(R, at(0), NO_FLOOR, tenure(5), ballot(6), ttl(100));
        assert_eq!(healed, Answer::Accept);
    }

    #[test]
    fn a_heal_of_the_live_tenure_is_a_renewal() {
        let mut register = leased();
        register.prepare(NO_FLOOR, ballot(9));
        let healed = register.heal(R, at(50), NO_FLOOR, tenure(5), ballot(6), ttl(100));
        assert_eq!(healed, Answer::Accept);
        assert_eq!(register.promised, ballot(9));
        assert!(register.live(at(149)).is_some());
    }

    #[test]
    fn a_release_clears_only_its_own_tenure() {
        let mut register = leased();
        assert!(!register.release(R, at(50), tenure(4)));
        assert!(register.live(at(50)).is_some());
        assert!(register.release(R, at(50), tenure(5)));
        assert_eq!(register.accepted, None);
        assert!(register.promised > ballot(5), "a late Propose of the tenure is refused");
        assert!(!leased().release(R, at(100), tenure(5)), "it had expired");
    }

    #[derive(Clone, Debug)]
    enum Op {
        Prepare(u64),
        Propose(u64, u32),
        Renew(u64, u64, u32),
        Heal(u64, u64, u32),
        Release(u64),
        Pass(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let n = 1u64..8;
        let ms = 1u32..50;
        prop_oneof![
            n.clone().prop_map(Op::Prepare),
            (n.clone(), ms.clone()).prop_map(|(b, t)| Op::Propose(b, t)),
            (n.clone(), n.clone(), ms.clone()).prop_map(|(x, b, t)| Op::Renew(x, b, t)),
            (n.clone(), n.clone(), ms).prop_map(|(x, b, t)| Op::Heal(x, b, t)),
            n.prop_map(Op::Release),
            (0u64..40).prop_map(Op::Pass),
        ]
    }

    proptest! {
        /// The invariants of docs/protocol.md, section 9, for one register under any requests.
        #[test]
        fn promises_never_fall_and_only_a_higher_heal_replaces_a_lease(
            ops in proptest::collection::vec(op(), 0..60),
        ) {
            let (mut register, mut now) = (Register::default(), 0);
            for op in ops {
                let before = register;
                let mut heals = None;
                match op {
                    Op::Prepare(b) => {
                        register.prepare(NO_FLOOR, ballot(b));
                    }
                    Op::Propose(b, t) => {
                        register.propose(R, at(now), NO_FLOOR, tenure(b), ttl(t));
                    }
                    Op::Renew(x, b, t) => {
                        register.renew(R, at(now), tenure(x), ballot(b), ttl(t));
                    }
                    Op::Heal(x, b, t) => {
                        register.heal(R, at(now), NO_FLOOR, tenure(x), ballot(b), ttl(t));
                        heals = Some(tenure(x));
                    }
                    Op::Release(x) => {
                        register.release(R, at(now), tenure(x));
                        let gone = before.accepted.filter(|lease| lease.tenure == tenure(x));
                        prop_assert_eq!(register.accepted.is_none(), before.accepted == gone);
                        continue;
                    }
                    Op::Pass(span) => now += span,
                }
                prop_assert!(register.promised >= before.promised);
                if let Some(lease) = before.live(at(now)) {
                    let kept = register.live(at(now));
                    let replaced = kept.is_some_and(|kept| Some(kept.tenure) == heals);
                    if replaced && heals > Some(lease.tenure) {
                        continue;
                    }
                    prop_assert_eq!(kept.map(|kept| kept.tenure), Some(lease.tenure));
                    prop_assert!(kept.map(|kept| kept.expires_at) >= Some(lease.expires_at));
                }
            }
        }
    }
}
