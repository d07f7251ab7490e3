//! The rounds of an acquire: begin, win, lose, undo, back off (P1, P2, P4, P8).
//!
//! What a contender does between two rounds is in `queueing/waiting.rs`.

use super::{Env, InFlight, Owner, Proposer, Wake, sighting};
use crate::outbox::{Body, Sighting, To, Token};
use crate::protocol::round::{HeldBy, Phase, Round};
use crate::queueing::contender::{Contender, ContenderId, State};
use crate::queueing::queue::Waiter;
use crate::rules::Rule;
use crate::{Ballot, Event, Holder, Instant, MemberSet, Name, Seen, Ttl};

impl Proposer {
    /// Begins a round for the first waiter of a contender.
    pub(crate) fn race(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(tenure) = self.next_tenure(env, now) else {
            return self.back_off(env, now, id);
        };
        let Some(contender) = self.contenders.get_mut(id) else { return };
        let ballot = tenure.ballot();
        contender.state = State::Racing(ballot);
        (contender.freed, contender.tried_at) = (false, now);
        let Waiter { label, ttl, deadline, .. } = &contender.first;
        let (label, ttl, deadline) = (label.clone(), *ttl, *deadline);
        let (phase, body) = if contender.contested || !env.config.direct_rounds {
            self.counts.prepared += 1;
            (Phase::Preparing, Body::Prepare { label, ballot })
        } else {
            self.counts.direct += 1;
            (Phase::Proposing, Body::Propose { label, ballot, ttl })
        };
        let round = Round::new(env.cell(), now, ballot, tenure, ttl, phase);
        let attempt_ends_at = now.after(self.attempt_timeout(env.config));
        // After the waiter's deadline, a round only finds out which tenure is held.
        let deadline = if now < deadline { deadline } else { attempt_ends_at };
        let wake_at = attempt_ends_at.min(round.ends_at).min(deadline);
        self.round_ends.push(wake_at, ballot);
        self.rounds.insert(ballot, InFlight { round, owner: Owner::Contender(id) });
        env.ask(body);
        self.store_early(env, ballot);
    }

    /// No majority yet. A round that some acceptor refused may have split the vote with another,
    /// so it is lost. A round that no acceptor refused can still win: its requests are repeated,
    /// each time after twice as long, until the waiter's deadline or the end of the round.
    pub(super) fn attempt_timed_out(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        id: ContenderId,
    ) {
        let Some(InFlight { round, .. }) = self.rounds.get(&ballot) else { return };
        let deadline = self.contenders.get(id).map_or(now, |contender| contender.first.deadline);
        let give_up_at = round.ends_at.min(deadline);
        if round.refused.is_empty() && now < give_up_at {
            let members = round.unanswered(env.cell()).without(self.silent);
            let again_at = now.after(self.resend_pause(env.config, now, round));
            self.resend_attempt(env, ballot, members);
            return self.round_ends.push(again_at.min(give_up_at), ballot);
        }
        let held_by = round.held_by(env.cell());
        self.note_timeout(env.config);
        self.lost(env, now, ballot, id, held_by, None);
    }

    /// Repeats the request of a fresh round.
    pub(super) fn resend_attempt(&mut self, env: &mut Env<'_>, ballot: Ballot, members: MemberSet) {
        let Some(InFlight { round, owner: Owner::Contender(id) }) = self.rounds.get_mut(&ballot)
        else {
            return;
        };
        let Some(Contender { first, .. }) = self.contenders.get(*id) else { return };
        if members.is_empty() {
            return;
        }
        round.repeated |= round.phase == Phase::Proposing;
        let (label, ttl) = (first.label.clone(), first.ttl);
        let body = match round.phase {
            Phase::Preparing => Body::Prepare { label, ballot },
            Phase::Storing => return self.store(env, ballot, members),
            Phase::Proposing | Phase::Renewing | Phase::Renewed => {
                Body::Propose { label, ballot, ttl }
            }
        };
        env.send(members, body);
    }

    /// P2: a majority promised and reported no lease.
    pub(super) fn propose(&mut self, env: &mut Env<'_>, ballot: Ballot, id: ContenderId) {
        if let Some(Contender { first, .. }) = self.contenders.get(id) {
            env.ask(Body::Propose { label: first.label.clone(), ballot, ttl: first.ttl });
        }
    }

    /// P1: a majority accepted in time.
    pub(super) fn granted(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        id: ContenderId,
    ) {
        let Some(InFlight { round, .. }) = self.rounds.remove(&ballot) else { return };
        self.note_decided(env.config, round.round_trip(now));
        let (waiter, others_wait) = self.contenders.pop_first(id);
        let Round { tenure, ttl, started_at, .. } = round;
        match waiter.lasts {
            None => {
                let (token, waited) = (waiter.token, started_at.since(waiter.asked_at));
                env.out.emit(Event::Granted { token, tenure, ttl, started_at, waited });
            }
            Some(lasts) => {
                let caller = (waiter.token, waiter.label.clone());
                self.store_granted(env, now, caller, (tenure, lasts), waiter.asked_at);
            }
        }
        if env.watched {
            env.out.emit(Event::HeldHint(sighting(&waiter.label, tenure, ttl)));
        }
        for learner in env.learners {
            env.out.send(To::Node(*learner), Body::Held(sighting(&waiter.label, tenure, ttl)));
        }
        if others_wait {
            let by = sighting(&waiter.label, tenure, ttl);
            let until = started_at.after(ttl.as_duration());
            if let Some(contender) = self.contenders.get_mut(id) {
                contender.splits = 0;
                contender.contested = false;
                contender.known_at = now;
            }
            self.wait(env, now, id, until, by);
        }
    }

    /// P4: voids a round that cannot win any more, then undoes it. The contender waits if a
    /// majority reported one holder, and backs off if not.
    pub(super) fn lost(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        id: ContenderId,
        held_by: Option<HeldBy>,
        seen: Option<Seen<'_>>,
    ) {
        self.void(env, now, ballot);
        let still_racing = self.rounds.contains_key(&ballot);
        let released = held_by.is_some_and(|held_by| self.is_released(held_by.tenure));
        let Some(contender) = self.contenders.get_mut(id) else { return };
        if still_racing {
            return;
        }
        // The reported tenure is over if its Release was sent from here, or arrived here before
        // the reports. The next round follows the Release at once; only one time, because the
        // Release may be lost.
        let is_over = released || (held_by.is_some() && contender.freed);
        if is_over && contender.splits == 0 && now < contender.first.deadline {
            contender.splits = 1;
            self.race(env, now, id);
            // This round may overtake a Release from another node; the next one backs off first.
            if let Some(contender) = self.contenders.get_mut(id) {
                contender.freed = true;
            }
            return;
        }
        contender.contested = true;
        let Some(HeldBy { tenure, free_at }) = held_by else {
            return self.back_off(env, now, id);
        };
        let holder = seen.filter(|seen| seen.tenure == tenure).map_or(Holder::NONE, |s| s.holder);
        let remaining = Ttl::from_duration(free_at.since(now)).unwrap_or(Ttl::MIN);
        let label = contender.first.label.with_holder(holder);
        if !is_over {
            // A known holder does not mean that there are other contenders.
            contender.contested = false;
            contender.splits = 0;
        }
        contender.known_at = contender.tried_at;
        let by = Sighting { tenure, remaining, label };
        if !is_over {
            return self.wait(env, now, id, free_at, by);
        }
        // A hint says that the tenure is over, and the round says that it is not. The round denies
        // requests that do not wait; the others try again soon.
        if !released {
            contender.state = State::Waiting { until: now, by: Some(by) };
            self.deny_ended_waits(env, now, id);
        }
        self.back_off(env, now, id);
    }

    /// J3: a round of the epoch before is void, and is undone wherever it may have left something.
    pub(crate) fn void_everywhere(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        if let Some(InFlight { round, .. }) = self.rounds.get_mut(&ballot) {
            (round.refused, round.phase) = (
                MemberSet::EMPTY,
                match round.phase {
                    Phase::Preparing => Phase::Preparing,
                    _ => Phase::Storing,
                },
            );
        }
        self.void(env, now, ballot);
    }

    /// P4: from here on no answer to this round counts; only then is it undone.
    fn void(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        let Some(InFlight { round, owner: Owner::Contender(id) }) = self.rounds.get(&ballot) else {
            return;
        };
        let traces = round.traces(env.cell());
        let (tenure, ttl, id) = (round.tenure, round.ttl, *id);
        if env.rules().on(Rule::VoidBeforeUndo) {
            self.rounds.remove(&ballot);
        }
        if let Some(contender) = self.contenders.get(id)
            && !traces.is_empty()
        {
            let label = contender.first.label.clone();
            self.undo(env, now, label, tenure, ttl, traces);
        }
    }

    fn back_off(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        // Contenders that pause for less than a round takes would collide again.
        let backoff_min = env.config.backoff_min.max(self.network_trip);
        let backoff_max = env.config.backoff_max.max(self.network_trip.saturating_mul(8));
        let Some(contender) = self.contenders.get_mut(id) else { return };
        if now >= contender.first.deadline {
            return self.give_up(env, now, id);
        }
        let doubled = backoff_min.saturating_mul(1 << contender.splits.min(16));
        let span = doubled.min(backoff_max);
        contender.splits = contender.splits.saturating_add(1);
        let until = now.after(span / 2).after(self.rng.below(span)).min(contender.first.deadline);
        contender.state = State::BackingOff(until);
        self.wake_at(until, Wake::Contender(id));
    }

    /// P8: the client left. Its fresh round is voided and undone; a renewal never is. Returns
    /// whether the client was still waiting for its answer.
    pub(crate) fn abandon(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        name: Name<'_>,
        token: Token,
    ) -> bool {
        if !env.rules().on(Rule::AbandonReleasesFreshOnly) {
            self.release_renewal_of(env, token);
        }
        let Some(id) = self.contenders.find(name) else {
            return self.abandon_change(env, now, token);
        };
        let Some(contender) = self.contenders.get(id) else { return false };
        if contender.first.token != token {
            return self.contenders.remove_queued(id, token).is_some()
                || self.abandon_change(env, now, token);
        }
        let racing = match contender.state {
            State::Racing(ballot) => Some(ballot),
            State::BackingOff(_) | State::Waiting { .. } => None,
        };
        if let Some(ballot) = racing {
            self.void(env, now, ballot);
            if self.rounds.contains_key(&ballot) {
                return true;
            }
        }
        let (_, others_wait) = self.contenders.pop_first(id);
        if others_wait && racing.is_some() {
            self.race(env, now, id);
        } else if others_wait {
            self.first_left(env, now, id, token);
        }
        true
    }
}
