//! The way of an acquire: race, win, lose, wait, try again (P1, P2, P4, P8).

use alloc::vec::Vec;
use core::time::Duration;

use super::{Env, InFlight, Owner, Proposer, Wake, sighting};
use crate::outbox::{Body, Sighting, To, Token};
use crate::protocol::round::{Phase, Round};
use crate::queueing::contender::{Contender, ContenderId, State, Want};
use crate::rules::Rule;
use crate::{Ballot, Config, Event, Holder, Instant, MemberSet, Name, Seen, Tenure, Ttl};

/// How long a node leaves another to take its turn, at least.
const TURN_MIN: Duration = Duration::from_micros(200);
/// Within this time all who wait look again, so that they do not all come at once; where very many
/// wait, so much apart.
const LOOK_AGAIN_WITHIN: Duration = Duration::from_millis(100);
const LOOK_AGAIN_APART: Duration = Duration::from_micros(20);
/// A waiter asks again after this long, at least and at most.
const ASK_AGAIN_MIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(3);

impl Proposer {
    /// A client wants a lease: behind earlier requests, or at once. A request that does not wait
    /// has the first in the queue try again: the holder that is known may have given the name back
    /// before this request was made, unheard here. Until `others_until` other nodes have their
    /// turn first.
    pub(crate) fn acquire(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        want: Want,
        others_until: Option<Instant>,
    ) {
        let Some(id) = self.contenders.find(want.label.name()) else {
            let id = self.contenders.insert(Contender::new(want, State::BackingOff(now)));
            return match others_until {
                Some(until) => self.leave_turn(env, now, id, until),
                None => self.race(env, now, id),
            };
        };
        let (patient_until, token) = (want.patient_until, want.token);
        self.contenders.enqueue(id, want);
        self.wake_at(patient_until, Wake::Want(id, token));
        if now >= patient_until {
            self.deny_or_ask(env, now, id);
        }
    }

    /// Other nodes were turned away from this name before: they go first.
    fn leave_turn(&mut self, env: &Env<'_>, now: Instant, id: ContenderId, until: Instant) {
        let until = until.after(self.rng.below(self.turn_span(env.config)));
        let Some(contender) = self.contenders.get_mut(id) else { return };
        (contender.contested, contender.tried_at) = (true, now);
        let until = until.min(contender.first.deadline);
        contender.state = State::Waiting { until, by: None };
        self.wake_at(until, Wake::Contender(id));
    }

    /// Starts a round for the first in the queue.
    fn race(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some((ballot, tenure)) = self.next_ballot(env, now) else {
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
        let round = Round::new(env.cell(), now, ballot, tenure, ttl, phase);
        let attempt_ends_at = now.after(self.attempt_timeout(env.config));
        // Where the client's time is over, the round only asks who holds the name.
        let deadline = if now < deadline { deadline } else { attempt_ends_at };
        let wake_at = attempt_ends_at.min(round.ends_at).min(deadline);
        self.round_ends.push(wake_at, ballot);
        self.rounds.insert(ballot, InFlight { round, owner: Owner::Contender(id) });
        env.broadcast(body);
    }

    /// No majority yet. A round that some acceptor refused may have split the vote with another,
    /// so it is lost. A round that none refused can still win: its requests go out again, each
    /// time after twice as long, until the client's time is over or the round is.
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
            self.resend_attempt(env, (ballot, round.phase), id, members);
            return self.round_ends.push(again_at.min(give_up_at), ballot);
        }
        let verdict = round.held_by(env.cell());
        self.note_timeout(env.config);
        self.lost(env, now, ballot, id, verdict, None);
    }

    /// Sends the request of a fresh round again.
    pub(super) fn resend_attempt(
        &self,
        env: &mut Env<'_>,
        (ballot, phase): (Ballot, Phase),
        id: ContenderId,
        members: MemberSet,
    ) {
        let Some(Contender { first, .. }) = self.contenders.get(id) else { return };
        let (label, ttl) = (first.label.clone(), first.ttl);
        if members.is_empty() {
            return;
        }
        env.send(
            members,
            match phase {
                Phase::Preparing => Body::Prepare { label, ballot },
                _ => Body::Propose { label, ballot, ttl },
            },
        );
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
        self.note_decided(env.config, round.round_trip(now));
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
                contender.known_at = now;
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
        contender.known_at = contender.tried_at;
        self.wait(env, now, id, free_at, Sighting { tenure, remaining, label });
    }

    /// P4: from here on no answer to this round counts; only then is it undone.
    fn void(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        let Some(InFlight { round, owner: Owner::Contender(id) }) = self.rounds.get(&ballot) else {
            return;
        };
        let (traces, tenure, ttl, id) = (round.traces(env.cell()), round.tenure, round.ttl, *id);
        if env.rules().on(Rule::VoidBeforeUndo) {
            self.rounds.remove(&ballot);
        }
        if let Some(contender) = self.contenders.get(id)
            && !traces.is_empty()
        {
            let label = contender.first.label.clone();
            self.undo(env, now, (label, ttl), tenure, traces);
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
        let free_at = until.max(now).after(self.rng.below(env.config.stagger_max));
        let again_at = self.ask_again_at(env.config, now, until);
        let settled = self.settled_span(env.config);
        let Some(contender) = self.contenders.get_mut(id) else { return };
        // A round that the end of the client's time would cut short tells nothing.
        let has_time = again_at.after(settled) <= contender.first.deadline;
        let until = if has_time { free_at.min(again_at) } else { free_at };
        contender.state = State::Waiting { until, by: Some(by) };
        let Want { token, patient_until, .. } = contender.first;
        self.wake_at(until, Wake::Contender(id));
        if patient_until > now && patient_until < until {
            self.wake_at(patient_until, Wake::Want(id, token));
        }
        self.deny_or_ask(env, now, id);
    }

    /// When a waiter asks again although nothing told it to: the one message that would have told
    /// it may be lost. After a quarter of the time the holder has left, within bounds; later where
    /// very many wait, or where a round takes so long that waiters would get in each other's way.
    fn ask_again_at(&mut self, config: &Config, now: Instant, free_at: Instant) -> Instant {
        let waiting = u32::try_from(self.contenders.wants()).unwrap_or(u32::MAX);
        let quarter = (free_at.since(now) / 4).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX);
        let rounds = self.settled_span(config).saturating_mul(2);
        let span = quarter.max(rounds).max(LOOK_AGAIN_APART.saturating_mul(waiting));
        now.after(span).after(self.rng.below(span / 4))
    }

    fn back_off(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        // Contenders that draw from less than a round takes would collide again.
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
        if cell.everyone().without(self.silent).len() < cell.quorum() {
            return;
        }
        let waiting = self.contenders.iter().filter_map(|(id, contender)| {
            matches!(contender.state, State::Waiting { .. }).then_some(id)
        });
        let waiting: Vec<ContenderId> = waiting.collect();
        let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let within = LOOK_AGAIN_WITHIN.max(LOOK_AGAIN_APART.saturating_mul(count));
        let settled = self.settled_span(env.config);
        // Not before the other side listens, too.
        let from = now.after(env.config.attempt_timeout_min);
        for id in waiting {
            let drawn = from.after(self.rng.below(within));
            let Some(contender) = self.contenders.get_mut(id) else { continue };
            let look_at = drawn.max(contender.tried_at.after(settled));
            if let State::Waiting { until, .. } = &mut contender.state
                && look_at < *until
            {
                *until = look_at;
                self.wake_at(look_at, Wake::Contender(id));
            }
        }
    }

    /// How long a node leaves another to take its turn: there and back, and some.
    pub(crate) fn turn_span(&self, config: &Config) -> Duration {
        let trip = self.network_trip.max(self.turn_trip);
        if !trip.is_zero() {
            return trip.saturating_mul(2).max(TURN_MIN);
        }
        let trips = self.round_trip.map(|trip| trip.saturating_mul(2).max(TURN_MIN));
        trips.unwrap_or(config.stagger_max).min(config.stagger_max)
    }

    /// Another node's proposal was accepted here, so whoever was about to try need not: it would
    /// be turned away. Only for a while after it tried last: that round may still be lost, and
    /// acceptors may have forgotten who waits for its turn. What is known of the holder is no newer
    /// by that: the proposal may be late, and its lease given back before it arrived.
    pub(crate) fn on_taken(&mut self, env: &mut Env<'_>, by: &Sighting) {
        let Some(id) = self.contenders.find(by.label.name()) else { return };
        let settled = self.settled_span(env.config);
        let Some(contender) = self.contenders.get_mut(id) else { return };
        let State::Waiting { until, by: known } = &mut contender.state else { return };
        let again_at = contender.tried_at.after(settled);
        if *until < again_at {
            *until = again_at;
            *known = Some(by.clone());
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

    /// Answers requests whose patience is over by the holder that is known. Where that may be out
    /// of date for some of them, the first in the queue tries again, and they learn from that.
    fn deny_or_ask(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        self.deny_impatient(env, now, id);
        if let Some(contender) = self.contenders.get(id)
            && matches!(contender.state, State::Waiting { by: Some(_), .. })
            && contender.is_impatient(now)
        {
            self.race(env, now, id);
        }
    }

    fn deny_impatient(&mut self, env: &mut Env<'_>, now: Instant, id: ContenderId) {
        let Some(contender) = self.contenders.get(id) else { return };
        let State::Waiting { by: Some(by), .. } = &contender.state else { return };
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
        self.deny_or_ask(env, now, id);
        let Some(want) = self.contenders.want(id, token) else { return };
        let deadline = want.deadline;
        let Some(contender) = self.contenders.get(id) else { return };
        if contender.first.token == token {
            return;
        }
        if now < deadline {
            return self.wake_at(deadline, Wake::Want(id, token));
        }
        // The round that is under way may tell.
        let answer_by = deadline.after(self.settled_span(env.config));
        if now < answer_by && matches!(contender.state, State::Racing(_)) {
            return self.wake_at(answer_by, Wake::Want(id, token));
        }
        self.contenders.remove_queued(id, token);
        env.out.emit(Event::NoQuorum { token });
    }
}
