//! The way of an acquire: race, win, lose, wait, try again (P1, P2, P4, P8).

use alloc::vec::Vec;
use core::time::Duration;

use super::{Env, InFlight, Owner, Proposer, Wake, sighting};
use crate::contender::{Contender, ContenderId, State, Want};
use crate::outbox::{Body, Sighting, To, Token};
use crate::round::{Phase, Round};
use crate::rules::Rule;
use crate::{Ballot, Config, Event, Holder, Instant, Name, Seen, Tenure, Ttl};

/// How long a node leaves another to take its turn, at least.
const TURN_MIN: Duration = Duration::from_micros(200);
/// Within this time all who wait look again, so that they do not all come at once; where very many
/// wait, so much apart.
const LOOK_AGAIN_WITHIN: Duration = Duration::from_millis(100);
const LOOK_AGAIN_APART: Duration = Duration::from_micros(20);

impl Proposer {
    /// A client wants a lease: behind those who came first, or at once. Whoever does not wait is
    /// denied by a holder just heard of; one heard of longer ago may have given it back unheard,
    /// so the first in the queue tries again, and all who do not wait learn from that.
    pub(crate) fn acquire(&mut self, env: &mut Env<'_>, now: Instant, want: Want) {
        let mut ask_again = false;
        if let Some(id) = self.contenders.find(want.label.name())
            && let Some(Contender { state: State::Waiting { until, by }, tried_at, .. }) =
                self.contenders.get(id)
            && now >= want.patient_until
        {
            if now < tried_at.after(env.config.attempt_timeout).min(*until) {
                return env.out.emit(Event::Denied { token: want.token, by: by.clone() });
            }
            ask_again = true;
            // Their time was over before this one came.
            self.deny_impatient(env, now, id);
        }
        let Some(id) = self.contenders.find(want.label.name()) else {
            let id = self.contenders.insert(Contender::new(want, State::BackingOff(now)));
            return self.race(env, now, id);
        };
        let (patient_until, token) = (want.patient_until, want.token);
        self.contenders.enqueue(id, want);
        self.wake_at(patient_until, Wake::Want(id, token));
        if ask_again {
            self.race(env, now, id);
        }
    }

    /// Starts a round for the first in the queue.
    fn race(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some((ballot, tenure)) = self.next_ballot(env) else {
            return self.back_off(env, now, id);
        };
        let Some(contender) = self.contenders.get_mut(id) else { return };
        contender.state = State::Racing(ballot);
        (contender.freed, contender.tried_at) = (false, now);
        let Want { label, ttl, deadline, .. } = &contender.first;
        let (label, ttl, deadline) = (label.clone(), *ttl, *deadline);
        let (phase, body) = if contender.contested || !env.config.direct_rounds {
            self.counts.prepared += 1;
            (Phase::Preparing, Body::Prepare { label, ballot })
        } else {
            self.counts.direct += 1;
            (Phase::Proposing, Body::Propose { label, ballot, ttl })
        };
        let round = Round::new(env.rules(), env.cell(), now, (ballot, tenure), ttl, phase);
        let attempt_ends_at = now.after(self.attempt_timeout(env.config));
        let wake_at = attempt_ends_at.min(round.ends_at).min(deadline.max(now));
        self.round_ends.push(wake_at, ballot);
        self.rounds.insert(ballot, InFlight { round, owner: Owner::Contender(id) });
        env.broadcast(body);
    }

    /// P2: a majority is open.
    pub(super) fn propose(&mut self, env: &mut Env<'_>, ballot: Ballot, id: ContenderId) {
        if let Some(Contender { first, .. }) = self.contenders.get(id) {
            env.broadcast(Body::Propose { label: first.label.clone(), ballot, ttl: first.ttl });
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
        self.note_decided(round.round_trip(now));
        let (want, others_wait) = self.contenders.pop_first(id);
        let Round { tenure, ttl, started_at, .. } = round;
        let waited = started_at.since(want.asked_at);
        env.out.emit(Event::Granted { token: want.token, tenure, ttl, started_at, waited });
        for learner in env.learners {
            let held = Body::Held(sighting(&want.label, tenure, ttl));
            env.out.send(To::Node(*learner), held);
        }
        if others_wait {
            let by = sighting(&want.label, tenure, ttl);
            let until = started_at.after(ttl.as_duration());
            if let Some(contender) = self.contenders.get_mut(id) {
                contender.splits = 0;
                contender.contested = false;
            }
            self.wait(env, now, id, until, by);
        }
    }

    /// P4: voids a round that cannot win any more, then undoes what it left behind. With a holder
    /// to wait for (`verdict`) the contender waits, else it backs off.
    pub(super) fn lost(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        id: ContenderId,
        verdict: Option<(Tenure, Instant)>,
        seen: Option<Seen<'_>>,
    ) {
        self.void(env, now, ballot);
        let still_racing = self.rounds.contains_key(&ballot);
        let released = verdict.is_some_and(|(tenure, _)| self.is_released(tenure));
        let Some(contender) = self.contenders.get_mut(id) else { return };
        if still_racing {
            return;
        }
        // A tenure that is being released here is over as soon as the Release arrives, and so is
        // one whose Release came here before the answers that still tell of it: the next round
        // comes behind it. Only once, for a Release may be lost.
        let is_over = released || (verdict.is_some() && contender.freed);
        if is_over && contender.splits == 0 && now < contender.first.deadline {
            contender.splits = 1;
            self.race(env, now, id);
            // It may overtake a Release that comes from elsewhere; the next one gives that time.
            if let Some(contender) = self.contenders.get_mut(id) {
                contender.freed = true;
            }
            return;
        }
        contender.contested = true;
        let verdict = verdict.filter(|_| !is_over);
        let Some((tenure, free_at)) = verdict else {
            return self.back_off(env, now, id);
        };
        let holder = seen.filter(|seen| seen.tenure == tenure).map_or(Holder::NONE, |s| s.holder);
        let remaining = Ttl::from_duration(free_at.since(now)).unwrap_or(Ttl::MIN);
        let label = contender.first.label.with_holder(holder);
        // A known holder is no sign of other contenders.
        contender.contested = false;
        contender.splits = 0;
        self.wait(env, now, id, free_at, Sighting { tenure, remaining, label });
    }

    /// P4: from here on no answer to this round counts; only then is it undone.
    fn void(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        let Some(InFlight { round, owner: Owner::Contender(id) }) = self.rounds.get(&ballot) else {
            return;
        };
        let (traces, tenure, id) = (round.traces(env.cell()), round.tenure, *id);
        if env.rules().on(Rule::VoidBeforeUndo) {
            self.rounds.remove(&ballot);
        }
        if let Some(contender) = self.contenders.get(id)
            && !traces.is_empty()
        {
            let label = contender.first.label.clone();
            self.undo(env, now, label, tenure, traces);
        }
    }

    fn wait(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        id: ContenderId,
        until: Instant,
        by: Sighting,
    ) {
        let until = until.max(now).after(self.rng.below(env.config.stagger_max));
        let Some(contender) = self.contenders.get_mut(id) else { return };
        contender.state = State::Waiting { until, by };
        let Want { token, patient_until, .. } = contender.first;
        self.wake_at(until, Wake::Contender(id));
        if patient_until > now && patient_until < until {
            self.wake_at(patient_until, Wake::Want(id, token));
        }
        self.deny_impatient(env, now, id);
    }

    fn back_off(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(contender) = self.contenders.get_mut(id) else { return };
        if now >= contender.first.deadline {
            return self.give_up(env, now, id);
        }
        let doubled = env.config.backoff_min.saturating_mul(1 << contender.splits.min(16));
        let span = doubled.min(env.config.backoff_max);
        contender.splits = contender.splits.saturating_add(1);
        let until = now.after(span / 2).after(self.rng.below(span)).min(contender.first.deadline);
        contender.state = State::BackingOff(until);
        self.wake_at(until, Wake::Contender(id));
    }

    /// The first in the queue ran out of time: without a majority for or against it, or while it
    /// waited for a holder that is known.
    fn give_up(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        self.deny_impatient(env, now, id);
        match self.contenders.get(id) {
            None => return,
            Some(next) if now < next.first.deadline => return self.race(env, now, id),
            Some(_) => {}
        }
        loop {
            let (want, others_wait) = self.contenders.pop_first(id);
            env.out.emit(Event::NoQuorum { token: want.token });
            if !others_wait {
                return;
            }
            if self.contenders.get(id).is_some_and(|next| now < next.first.deadline) {
                return self.race(env, now, id);
            }
        }
    }

    /// A wake-up for a contender: the holder's time is over, or the pause is.
    pub(super) fn try_again(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(contender) = self.contenders.get(id) else { return };
        match &contender.state {
            State::BackingOff(until) | State::Waiting { until, .. } if *until <= now => {
                if now >= contender.first.deadline {
                    self.give_up(env, now, id);
                } else {
                    self.race(env, now, id);
                }
            }
            State::BackingOff(_) | State::Waiting { .. } | State::Racing(_) => {}
        }
    }

    /// A name may be free (it was released here, or a release passed through, or a hint came),
    /// and this many nodes were turned away before this one. The first goes on now; if it was
    /// released here, at once, so that Release and the next Propose share a frame. The others
    /// leave it the time to do so, in turn, and then prepare.
    pub(crate) fn on_freed(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        name: Name<'_>,
        (here, nodes_before): (bool, usize),
    ) {
        let Some(id) = self.contenders.find(name) else { return };
        let step = self.turn_span(env.config);
        let Some(contender) = self.contenders.get_mut(id) else { return };
        match &mut contender.state {
            State::Racing(_) => contender.freed = true,
            State::BackingOff(_) => {}
            State::Waiting { .. } if here && nodes_before == 0 => self.race(env, now, id),
            State::Waiting { until, .. } => {
                if nodes_before > 0 {
                    contender.contested = true;
                    let turns = u32::try_from(nodes_before).unwrap_or(u32::MAX);
                    let turn_at = now.after(step.saturating_mul(turns)).after(self.rng.below(step));
                    *until = turn_at.min(*until);
                } else {
                    *until = now;
                }
                let until = *until;
                self.wake_at(until, Wake::Contender(id));
            }
        }
    }

    /// Somebody is back whose words were lost for a while, a release perhaps among them: whoever
    /// waits asks again soon, but not as soon as it has just asked. Without a majority nobody could
    /// tell; whoever completes it comes back as well.
    pub(crate) fn look_again(&mut self, env: &Env<'_>, now: Instant) {
        let cell = env.cell();
        if cell.everyone().without(self.silent).len() < cell.quorum(env.rules()) {
            return;
        }
        let waiting = self.contenders.iter().filter_map(|(id, contender)| {
            matches!(contender.state, State::Waiting { .. }).then_some(id)
        });
        let waiting: Vec<ContenderId> = waiting.collect();
        let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let within = LOOK_AGAIN_WITHIN.max(LOOK_AGAIN_APART.saturating_mul(count));
        // Not before the other side listens, too.
        let from = now.after(env.config.attempt_timeout_min);
        for id in waiting {
            let drawn = from.after(self.rng.below(within));
            let Some(contender) = self.contenders.get_mut(id) else { continue };
            let look_at = drawn.max(contender.tried_at.after(env.config.attempt_timeout));
            if let State::Waiting { until, .. } = &mut contender.state
                && look_at < *until
            {
                *until = look_at;
                self.wake_at(look_at, Wake::Contender(id));
            }
        }
    }

    /// How long a node leaves another to take its turn: there and back, and some.
    fn turn_span(&self, config: &Config) -> Duration {
        let trips = self.round_trip.map(|trip| trip.saturating_mul(2).max(TURN_MIN));
        trips.unwrap_or(config.stagger_max).min(config.stagger_max)
    }

    /// Another node's proposal was accepted here, so whoever was about to try need not: it would
    /// be turned away. Only for a while after it tried last: that round may still be lost, and
    /// acceptors may have forgotten who waits for its turn.
    pub(crate) fn on_taken(&mut self, env: &mut Env<'_>, by: &Sighting) {
        let Some(id) = self.contenders.find(by.label.name()) else { return };
        let Some(contender) = self.contenders.get_mut(id) else { return };
        let State::Waiting { until, by: known } = &mut contender.state else { return };
        let again_at = contender.tried_at.after(env.config.attempt_timeout);
        if *until < again_at {
            *until = again_at;
            known.clone_from(by);
            let Want { token, patient_until, .. } = contender.first;
            self.wake_at(again_at, Wake::Contender(id));
            if patient_until < again_at {
                self.wake_at(patient_until, Wake::Want(id, token));
            }
        }
    }

    /// P8: the client left. Its fresh round is voided and undone; a renewal never is.
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
        let Some(id) = self.contenders.find(name) else { return false };
        let Some(contender) = self.contenders.get(id) else { return false };
        if contender.first.token != token {
            return self.contenders.remove_queued(id, token).is_some();
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
        }
        true
    }

    /// Answers those who do not want to wait any longer for a known holder.
    fn deny_impatient(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(contender) = self.contenders.get(id) else { return };
        let State::Waiting { by, .. } = &contender.state else { return };
        let by = by.clone();
        for want in self.contenders.take_impatient(id, now) {
            env.out.emit(Event::Denied { token: want.token, by: by.clone() });
        }
    }

    /// A queued want's patience is over, or its time is. The first in the queue needs no wake-up
    /// of its own but while it waits: its round and its pauses end by its deadline.
    pub(super) fn out_of_patience(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        id: ContenderId,
        token: Token,
    ) {
        let Some(want) = self.contenders.want(id, token) else { return };
        let (patient_until, deadline) = (want.patient_until, want.deadline);
        let Some(contender) = self.contenders.get(id) else { return };
        match &contender.state {
            State::Waiting { by, .. } if now >= patient_until => {
                env.out.emit(Event::Denied { token, by: by.clone() });
                if contender.first.token == token {
                    self.contenders.pop_first(id);
                } else {
                    self.contenders.remove_queued(id, token);
                }
            }
            _ if contender.first.token == token => {}
            _ if now >= deadline => {
                self.contenders.remove_queued(id, token);
                env.out.emit(Event::NoQuorum { token });
            }
            _ => self.wake_at(deadline, Wake::Want(id, token)),
        }
    }

    /// How long a request may go on without an answer: its own patience, or what the shard allows
    /// a round to find its majority, never past the ttl.
    pub(crate) fn deadline(env: &Env<'_>, now: Instant, wait: Duration, ttl: Ttl) -> Instant {
        let trying = env.config.request_timeout.min(ttl.as_duration());
        now.after(wait.max(trying))
    }
}
