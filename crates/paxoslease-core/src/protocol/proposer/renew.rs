//! Renewals and heals (P5, P7; paper, section 6 "Extending leases").
//!
//! A failed renewal changes nothing and is never undone, since its tenure may be held. Its round
//! lives until the client's deadline or the end of the belief that it would give. Until then the
//! same Renew is repeated to the acceptors that have not answered, each time after twice as long:
//! an acceptor takes it for a duplicate, and the round's timer stays as it was set (P3).

use super::{Env, InFlight, Owner, Proposer};
use crate::outbox::{Body, Token};
use crate::protocol::round::{Phase, Round, Step};
use crate::rules::Rule;
use crate::{Ballot, Config, Event, Instant, Label, MemberSet, Tenure, Ttl};

/// The most healed tenures that are remembered; beyond that, the lowest is forgotten.
const HEALED_MAX: usize = 1 << 14;

/// A request to prolong a tenure.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Renewal {
    pub(crate) token: Token,
    pub(crate) label: Label,
    pub(crate) deadline: Instant,
    /// When the Renew is repeated to the acceptors that have not answered.
    pub(crate) resend_at: Instant,
}

impl Renewal {
    /// When the round is checked next. A release of its tenure is remembered at least that long.
    fn check_at(&self, config: &Config, now: Instant, round: &Round) -> Instant {
        let check_at = now.after(config.attempt_timeout).min(round.ends_at);
        check_at.min(self.deadline.max(now))
    }
}

impl Proposer {
    /// Begins a renewal for the holder of a tenure, whichever node granted it.
    pub(crate) fn renew(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        mut renewal: Renewal,
        tenure: Tenure,
        ttl: Ttl,
    ) {
        if self.is_released(tenure) {
            return env.out.emit(Event::NotHeld { token: renewal.token, tenure });
        }
        let Some(fresh) = self.next_tenure(env, now) else {
            return env.out.emit(Event::NoQuorum { token: renewal.token });
        };
        let mut ballot = fresh.ballot();
        if !env.rules().on(Rule::RenewalHasFreshBallot) {
            ballot = tenure.ballot();
        }
        self.counts.renewals += 1;
        let label = renewal.label.clone();
        let round = Round::new(env.cell(), now, ballot, tenure, ttl, Phase::Renewing);
        renewal.resend_at = now.after(self.attempt_timeout(env.config));
        self.round_ends.push(renewal.check_at(env.config, now, &round), ballot);
        self.renewals += 1;
        self.rounds.insert(ballot, InFlight { round, owner: Owner::Renewal(renewal) });
        env.ask(Body::Renew { label, tenure, ballot, ttl });
        self.store_early(env, ballot);
    }

    /// A majority renewed in time. Acceptors that refused have lost the tenure and are healed.
    pub(super) fn renewed(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        let Some(InFlight { round, owner: Owner::Renewal(renewal) }) = self.rounds.get(&ballot)
        else {
            return;
        };
        let Round { tenure, ttl, started_at, refused, .. } = *round;
        let is_done = round.is_done(env.cell());
        if self.is_released(tenure) {
            return self.not_held(env, ballot);
        }
        env.out.emit(Event::Renewed { token: renewal.token, tenure, ttl, started_at });
        self.heal(env, now, ballot, refused);
        if is_done {
            self.forget_renewal(ballot);
        }
    }

    pub(super) fn on_not_held(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        ballot: Ballot,
    ) {
        let cell = &env.config.cell;
        let Some(InFlight { round, owner: Owner::Renewal(_) }) = self.rounds.get_mut(&ballot)
        else {
            return;
        };
        if round.phase == Phase::Storing {
            // Late: the second step heals this acceptor.
            return;
        }
        let step = round.on_refusal(cell, MemberSet::EMPTY, member);
        let won = round.phase == Phase::Renewed;
        if won || !env.rules().on(Rule::HealOnlyAfterMajority) {
            self.heal(env, now, ballot, member);
        }
        if step == Step::Lost && !won {
            self.undo_renewal(env, ballot);
            self.not_held(env, ballot);
        } else if won {
            self.forget_if_done(env, ballot);
        }
    }

    /// No majority has the tenure any more, so it is over.
    pub(crate) fn not_held(&mut self, env: &mut Env<'_>, ballot: Ballot) {
        let Some((round, renewal)) = self.forget_renewal(ballot) else { return };
        env.out.emit(Event::NotHeld { token: renewal.token, tenure: round.tenure });
    }

    /// K4: a register holds the tenure of this renewal. The caller's request goes on as a change.
    #[cold]
    pub(crate) fn take_renewal(&mut self, ballot: Ballot) -> Option<(Renewal, Tenure, Ttl)> {
        let InFlight { round, owner: Owner::Renewal(_) } = self.rounds.get(&ballot)? else {
            return None;
        };
        if round.phase == Phase::Renewed {
            return None;
        }
        let (round, renewal) = self.forget_renewal(ballot)?;
        Some((renewal, round.tenure, round.ttl))
    }

    /// No majority answered in time.
    pub(super) fn renewal_failed(&mut self, env: &mut Env<'_>, ballot: Ballot) {
        self.undo_renewal(env, ballot);
        let Some((_, renewal)) = self.forget_renewal(ballot) else { return };
        env.out.emit(Event::NoQuorum { token: renewal.token });
    }

    /// What P5 forbids, for its mutant.
    fn undo_renewal(&mut self, env: &mut Env<'_>, ballot: Ballot) {
        if !env.rules().on(Rule::FailedRenewalIsNotUndone)
            && let Some(InFlight { round, owner: Owner::Renewal(renewal) }) =
                self.rounds.get(&ballot)
        {
            let (label, tenure) = (renewal.label.clone(), round.tenure);
            let id = self.next_release(env);
            env.broadcast(Body::Release { label, tenure, id });
        }
    }

    pub(super) fn renewal_timed_out(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        let Some(InFlight { round, .. }) = self.rounds.get(&ballot) else { return };
        let pause = self.resend_pause(env.config, now, round);
        let Some(InFlight { round, owner: Owner::Renewal(renewal) }) = self.rounds.get_mut(&ballot)
        else {
            return;
        };
        let unanswered = round.unanswered(env.cell());
        let tenure = round.tenure;
        if round.phase == Phase::Renewed {
            if now < round.ends_at {
                self.heal(env, now, ballot, unanswered);
            }
            self.forget_renewal(ballot);
        } else if now >= round.ends_at.min(renewal.deadline) {
            self.renewal_failed(env, ballot);
        } else {
            let is_due = now >= renewal.resend_at;
            if is_due && round.phase == Phase::Storing && !round.refused.is_empty() {
                return self.renew_again(env, now, ballot);
            }
            if is_due {
                renewal.resend_at = now.after(pause);
            }
            let check_at = renewal.check_at(env.config, now, round);
            if self.is_released(tenure) {
                return self.not_held(env, ballot);
            }
            self.round_ends.push(check_at, ballot);
            if is_due {
                self.resend_renewal(env, ballot, unanswered.without(self.silent));
            }
        }
    }

    /// Repeats the same Renew.
    pub(super) fn resend_renewal(&self, env: &mut Env<'_>, ballot: Ballot, members: MemberSet) {
        if let Some(InFlight { round, owner: Owner::Renewal(renewal) }) = self.rounds.get(&ballot) {
            let (label, tenure, ttl) = (renewal.label.clone(), round.tenure, round.ttl);
            env.send(
                members,
                match round.phase {
                    Phase::Storing => Body::Heal { label, tenure, ballot, ttl },
                    _ => Body::Renew { label, tenure, ballot, ttl },
                },
            );
        }
    }

    /// P5: sends a Heal with the ballot and ttl of the renewal that won.
    pub(super) fn heal(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        members: MemberSet,
    ) {
        let Some(InFlight { round, owner: Owner::Renewal(renewal) }) = self.rounds.get(&ballot)
        else {
            return;
        };
        if members.is_empty() || self.is_released(round.tenure) {
            return;
        }
        let label = renewal.label.clone();
        let Round { tenure, ttl, .. } = *round;
        let mut heal_ballot = ballot;
        if !env.rules().on(Rule::HealCarriesRenewalBallot)
            && let Some(fresh) = self.next_tenure(env, now)
        {
            heal_ballot = fresh.ballot();
        }
        self.send_heal(env, members, Body::Heal { label, tenure, ballot: heal_ballot, ttl });
    }

    /// Sends a Heal, and remembers it for the time when its tenure is released (P6).
    pub(crate) fn send_heal(&mut self, env: &mut Env<'_>, members: MemberSet, body: Body) {
        if self.healed.len() >= HEALED_MAX {
            self.healed.pop_first();
        }
        if let Some(tenure) = body.stores() {
            let healed = self.healed.entry(tenure).or_insert(MemberSet::EMPTY);
            *healed = healed.with(members);
        }
        env.send(members, body);
    }

    pub(super) fn forget_if_done(&mut self, env: &mut Env<'_>, ballot: Ballot) {
        if self.rounds.get(&ballot).is_some_and(|flight| flight.round.is_done(env.cell())) {
            self.forget_renewal(ballot);
        }
    }

    pub(crate) fn forget_renewal(&mut self, ballot: Ballot) -> Option<(Round, Renewal)> {
        let InFlight { round, owner: Owner::Renewal(renewal) } = self.rounds.remove(&ballot)?
        else {
            unreachable!("a ballot belongs to one round, and a round to one owner");
        };
        self.renewals -= 1;
        if self.renewals == 0 {
            self.released_elsewhere.clear();
        }
        Some((round, renewal))
    }

    /// What P8 forbids, for its mutant.
    pub(super) fn release_renewal_of(&mut self, env: &mut Env<'_>, token: Token) {
        let found = self.rounds.values().find_map(|flight| match &flight.owner {
            Owner::Renewal(renewal) if renewal.token == token => {
                Some((renewal.label.clone(), flight.round.tenure))
            }
            Owner::Renewal(_) | Owner::Contender(_) => None,
        });
        if let Some((label, tenure)) = found {
            let id = self.next_release(env);
            env.broadcast(Body::Release { label, tenure, id });
        }
    }
}
