//! What becomes of a change: the answers of members, the timer, and the answer to its callers.

use alloc::vec::Vec;

use super::{ALL_WITHIN, Acquired, BACKGROUND_MAX, Change, Phase};
use crate::durable::decide::{Asked, Decision, Goal, Outcome, Promised};
use crate::durable::message::{
    DurableBody, DurableMessage, OwnedRegister, SentRegister, SentValue, StoreRefusal,
};
use crate::inspection::DurableEnd;
use crate::outbox::Token;
use crate::protocol::proposer::{Env, Proposer};
use crate::rules::Rule;
use crate::{Ballot, Event, Holder, Instant, Label, Lasts, MemberSet, Seen, Tenure, Ttl};

impl Proposer {
    /// A member answered a change, or a Renew or Release of a tenure that its register holds.
    pub(crate) fn on_durable(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        message: &DurableMessage<'_>,
    ) {
        match *message {
            DurableMessage::Promise { ballot, lease, register } => {
                self.on_change_promise(env, now, member, ballot, (lease, register));
            }
            DurableMessage::Stored { ballot } => self.on_value_stored(env, now, member, ballot),
            DurableMessage::Reject { ballot, promised } => {
                self.observe(promised.counter());
                self.on_change_refused(env, now, member, ballot, None);
            }
            DurableMessage::Refused { ballot, why } => {
                self.on_change_refused(env, now, member, ballot, Some(why));
            }
            DurableMessage::IsDurable { ballot } => self.on_is_durable(env, now, ballot),
            DurableMessage::Inspected { query, ballot, fence, lasts, holder } => {
                let seen = Seen { tenure: fence, remaining: lasts.capped(Ttl::MAX), holder };
                let end = DurableEnd { ballot, lasts };
                self.on_inspected(env, now, member, query, Some(seen), Some(end));
            }
            DurableMessage::Prepare { .. }
            | DurableMessage::Store { .. }
            | DurableMessage::All { .. } => {}
        }
    }

    fn on_change_promise(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        ballot: Ballot,
        (lease, register): (Option<Tenure>, Option<SentRegister<'_>>),
    ) {
        let Some(change) = self.changes.by_ballot.get_mut(&ballot) else { return };
        let Phase::Preparing { promises, .. } = &mut change.phase else { return };
        if promises.iter().any(|promised| promised.member == member) {
            return;
        }
        let register = register.map(|SentRegister { ballot, value, holder }| OwnedRegister {
            ballot,
            value,
            label: change.label.with_holder(holder),
        });
        promises.push(Promised { member, lease, register });
        let heard = promises.iter().map(|it| it.member).fold(MemberSet::EMPTY, MemberSet::with);
        let is_final = heard.with(self.silent).contains(env.cell().everyone());
        // A check repairs every member that answers, so it waits for all that can be reached.
        if change.goal != Goal::Check || is_final {
            self.decide_change(env, now, ballot, is_final);
        }
    }

    /// K6 to K8: acts on the promises, if there are enough. Returns whether it did.
    fn decide_change(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        is_final: bool,
    ) -> bool {
        let Some(change) = self.changes.by_ballot.get(&ballot) else { return false };
        let Phase::Preparing { promises, .. } = &change.phase else { return false };
        let Change { goal, earlier, .. } = change;
        let heard = promises.iter().map(|it| it.member).fold(self.silent, MemberSet::with);
        let is_complete = heard.contains(env.cell().everyone());
        let asked =
            Asked { config: env.config, goal: *goal, ballot, earlier, is_final, is_complete };
        let decision = asked.decide(promises);
        if decision == Decision::NeedMore {
            return false;
        }
        let Some(change) = self.changes.by_ballot.remove(&ballot) else { return false };
        match decision {
            Decision::NeedMore => unreachable!("handled above"),
            // A check has no caller: the member looks again later.
            Decision::Wait if change.goal == Goal::Check => {
                self.next_change(env, now, &change.label);
            }
            Decision::Wait => self.pause_or_end(env, now, ballot, change),
            Decision::Done(outcome) => {
                self.answer_change(env, now, &change, outcome);
                self.next_change(env, now, &change.label);
            }
            Decision::Store { label, value, outcome } => {
                let given = change.label.holder();
                let known = label.as_ref().map_or(Holder::NONE, Label::holder);
                let holder = match value {
                    SentValue::Free { .. } => Holder::NONE,
                    // The text that the holder gave with this request may be a newer one.
                    SentValue::Held { .. } if given == Holder::NONE => known,
                    SentValue::Held { .. } => given,
                };
                let label = change.label.with_holder(holder);
                self.begin_store(env, now, ballot, change, (label, value, outcome));
            }
        }
        true
    }

    fn pause_or_end(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot, change: Change) {
        if now >= change.deadline {
            self.end_unanswered(env, now, change);
        } else {
            self.pause(env, now, ballot, change);
        }
    }

    fn on_value_stored(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        ballot: Ballot,
    ) {
        let by_majority = env.rules().on(Rule::StoredByMajority);
        let cell = env.config.cell;
        let Some(change) = self.changes.by_ballot.get_mut(&ballot) else { return };
        let Phase::Storing { label, stored, is_done, outcome, .. } = &mut change.phase else {
            return;
        };
        *stored = stored.with(member);
        let (label, outcome, members) = (label.clone(), *outcome, *stored);
        let is_first = !*is_done && (cell.is_quorum(members) || !by_majority);
        *is_done |= is_first;
        if is_first {
            let change = change.clone();
            self.answer_change(env, now, &change, outcome);
            if let Some(change) = self.changes.by_ballot.get_mut(&ballot) {
                (change.tokens, change.acquire) = (Vec::new(), None);
            }
            self.next_change(env, now, &label);
        }
        // K5.
        let everyone = cell.everyone();
        let all = everyone.without(members).is_empty()
            || !env.rules().on(Rule::ForgetNeedsAll) && cell.is_quorum(members);
        if all {
            self.changes.by_ballot.remove(&ballot);
            if env.rules().on(Rule::ForgetAtAll) {
                env.broadcast(DurableBody::All { label, ballot }.into());
            }
        }
    }

    fn on_change_refused(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        member: MemberSet,
        ballot: Ballot,
        why: Option<StoreRefusal>,
    ) {
        let cell = env.config.cell;
        let Some(change) = self.changes.by_ballot.get_mut(&ballot) else { return };
        let (refused, why) = match &mut change.phase {
            Phase::Storing { is_done: true, .. } | Phase::Pausing => return,
            Phase::Preparing { refused, .. } => {
                *refused = refused.with(member);
                (*refused, None)
            }
            Phase::Storing { refused, no_room, .. } => {
                *refused = refused.with(member);
                *no_room = no_room.or(why);
                (*refused, *no_room)
            }
        };
        let others = cell.everyone().without(refused).without(self.silent);
        let is_preparing = matches!(change.phase, Phase::Preparing { .. });
        if cell.is_quorum(others) || is_preparing && cell.is_confirmed_by(others) {
            return;
        }
        let Some(mut change) = self.changes.by_ballot.remove(&ballot) else { return };
        match why {
            Some(why) => {
                change.give_up_attempt(ballot);
                self.refuse_change(env, now, change, why);
            }
            None => self.pause_or_end(env, now, ballot, change),
        }
    }

    /// K4, K8: a register holds the tenure of a Renew or a Release, so only a change may prolong or
    /// end it.
    fn on_is_durable(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        if let Some((renewal, tenure, ttl)) = self.take_renewal(ballot) {
            let lasts = Lasts::from_millis(ttl.as_millis().into()).expect("a ttl is not zero");
            return self.keep(env, now, renewal.token, renewal.label, (tenure, lasts, true));
        }
        let Some(tenure) = Tenure::of(ballot) else { return };
        if let Some((tokens, label, answer_by)) = self.take_release(tenure) {
            self.release_durable(env, now, tokens, label, tenure, answer_by);
        }
    }

    /// The timer of a change: the pause is over, or answers are missing.
    pub(crate) fn change_timed_out(&mut self, env: &mut Env<'_>, now: Instant, ballot: Ballot) {
        if self.decide_change(env, now, ballot, true) {
            return;
        }
        let Some(change) = self.changes.by_ballot.get(&ballot) else { return };
        let Change { deadline, started_at, .. } = *change;
        let is_over = now >= deadline;
        let is_refused = match &change.phase {
            Phase::Pausing => false,
            Phase::Preparing { refused, .. } | Phase::Storing { refused, .. } => {
                !refused.is_empty()
            }
        };
        match &change.phase {
            Phase::Storing { is_done: true, .. } => {
                // The other disks may be slower. After that, a check finds out.
                let until = started_at.after(ALL_WITHIN);
                if now < until {
                    self.changes.ends.push(until, ballot);
                } else {
                    self.changes.by_ballot.remove(&ballot);
                }
            }
            Phase::Pausing if !is_over => {
                let Some(change) = self.changes.by_ballot.remove(&ballot) else { return };
                self.attempt(env, now, change);
            }
            Phase::Pausing | Phase::Preparing { .. } | Phase::Storing { .. } if is_over => {
                let Some(mut change) = self.changes.by_ballot.remove(&ballot) else { return };
                change.give_up_attempt(ballot);
                self.end_unanswered(env, now, change);
            }
            // As in P4: another change may have split the members.
            Phase::Preparing { .. } | Phase::Storing { .. } if is_refused => {
                let Some(change) = self.changes.by_ballot.remove(&ballot) else { return };
                self.pause(env, now, ballot, change);
            }
            Phase::Pausing | Phase::Preparing { .. } | Phase::Storing { .. } => {
                let pause = self.pause_since(env.config, now, started_at);
                self.changes.ends.push(now.after(pause).min(deadline), ballot);
                let reachable = env.cell().everyone().without(self.silent);
                self.resend_change(env, ballot, reachable);
            }
        }
    }

    pub(super) fn resend_change(&self, env: &mut Env<'_>, ballot: Ballot, members: MemberSet) {
        let Some(change) = self.changes.by_ballot.get(&ballot) else { return };
        let (answered, body) = match &change.phase {
            Phase::Pausing => return,
            Phase::Preparing { promises, refused } => {
                let heard = promises.iter().map(|it| it.member).fold(*refused, MemberSet::with);
                (heard, DurableBody::Prepare { label: change.label.clone(), ballot })
            }
            Phase::Storing { label, value, stored, refused, .. } => {
                let body = DurableBody::Store { label: label.clone(), ballot, value: *value };
                (stored.with(*refused), body)
            }
        };
        let members = members.without(answered);
        if !members.is_empty() {
            env.send(members, body.into());
        }
    }

    /// These acceptors are connected again, and may have missed a message.
    pub(crate) fn resend_changes(&self, env: &mut Env<'_>, back: MemberSet) {
        for ballot in self.changes.ballots() {
            self.resend_change(env, ballot, back);
        }
    }

    /// J3: no answer of an earlier epoch counts. Every change begins anew.
    pub(crate) fn change_again(&mut self, env: &mut Env<'_>, now: Instant) {
        if !env.rules().on(Rule::RoundEndsWithItsEpoch) {
            return;
        }
        for ballot in self.changes.ballots() {
            let Some(mut change) = self.changes.by_ballot.remove(&ballot) else { continue };
            if matches!(change.phase, Phase::Storing { is_done: true, .. }) {
                continue;
            }
            change.give_up_attempt(ballot);
            self.attempt(env, now, change);
        }
    }

    /// P8: the client of a durable acquire left. Whether the acquire was still open.
    pub(crate) fn abandon_change(&mut self, env: &mut Env<'_>, now: Instant, token: Token) -> bool {
        let is_it = |change: &Change| change.acquire.is_some() && change.tokens.contains(&token);
        let found = self.changes.by_ballot.iter().find(|(_, change)| is_it(change));
        if let Some(ballot) = found.map(|(ballot, _)| *ballot)
            && let Some(mut change) = self.changes.by_ballot.remove(&ballot)
        {
            change.give_up_attempt(ballot);
            self.undo_acquire(env, now, &change);
            self.next_change(env, now, &change.label);
            return true;
        }
        let queues = self.changes.names.values_mut();
        let mut left = None;
        for queue in queues {
            if let Some(place) = queue.iter().position(is_it) {
                left = queue.remove(place);
            }
        }
        let Some(change) = left else { return false };
        self.changes.queued -= 1;
        self.undo_acquire(env, now, &change);
        true
    }

    /// K9: what an acquire left is released in the background.
    pub(super) fn undo_acquire(&mut self, env: &mut Env<'_>, now: Instant, change: &Change) {
        let Goal::Keep { tenure, .. } = change.goal else { return };
        let until = self.background_until(env, now);
        let label = change.label.with_holder(Holder::NONE);
        let goal = Goal::Release { tenure };
        let undo = Change::new(Vec::new(), label.clone(), goal, until);
        match self.changes.names.get_mut(label.name().as_bytes()) {
            Some(queue) => {
                queue.push_front(undo);
                self.changes.queued += 1;
            }
            None => self.begin_change(env, now, undo),
        }
    }

    /// The first change of a name is over: the next one begins.
    pub(super) fn next_change(&mut self, env: &mut Env<'_>, now: Instant, label: &Label) {
        let name = label.name().as_bytes();
        let Some(queue) = self.changes.names.get_mut(name) else { return };
        match queue.pop_front() {
            Some(change) => {
                self.changes.queued -= 1;
                self.attempt(env, now, change);
            }
            None => {
                self.changes.names.remove(name);
            }
        }
    }

    /// No majority answered in time.
    pub(super) fn end_unanswered(&mut self, env: &mut Env<'_>, now: Instant, change: Change) {
        let label = change.label.clone();
        match change.goal {
            Goal::Keep { .. } => {
                for token in &change.tokens {
                    env.out.emit(Event::NoQuorum { token: *token });
                }
            }
            Goal::Release { .. } => {
                for token in &change.tokens {
                    let (held, confirmed) = (None, false);
                    env.out.emit(Event::Released { token: *token, held, confirmed });
                }
            }
            Goal::Check => {}
        }
        if change.acquire.is_some() {
            self.undo_acquire(env, now, &change);
        } else if change.is_background() && !change.tokens.is_empty() {
            self.go_on_in_background(env, now, change);
        }
        self.next_change(env, now, &label);
    }

    /// A release that timed out has still happened: it goes on until M has passed.
    fn go_on_in_background(&mut self, env: &Env<'_>, now: Instant, mut change: Change) {
        if self.changes.queued >= BACKGROUND_MAX {
            return;
        }
        (change.tokens, change.tries) = (Vec::new(), 0);
        change.deadline = self.background_until(env, now);
        if let Some(queue) = self.changes.names.get_mut(change.label.name().as_bytes()) {
            queue.push_back(change);
            self.changes.queued += 1;
        }
    }

    /// The disks of a majority have no room for it.
    fn refuse_change(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        change: Change,
        why: StoreRefusal,
    ) {
        for token in &change.tokens {
            env.out.emit(Event::NotKept { token: *token, why });
        }
        if change.acquire.is_some() {
            self.undo_acquire(env, now, &change);
        }
        self.next_change(env, now, &change.label);
    }

    /// A majority stored the value, or has it already.
    fn answer_change(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        change: &Change,
        outcome: Outcome,
    ) {
        let Change { tokens, goal, acquire, started_at, .. } = change;
        let started_at = *started_at;
        match (outcome, *goal) {
            (Outcome::Kept { fence, lasts }, Goal::Keep { .. }) => {
                // As P1: the first members that stored it may have ended the lease by now.
                let ends_at = env.cell().drift().belief_ends_at(started_at, lasts.capped(Ttl::MAX));
                let is_late = now >= ends_at && env.rules().on(Rule::LateKeepCountsForNothing);
                if is_late && acquire.is_some() {
                    self.undo_acquire(env, now, change);
                }
                let event = |token: Token| match acquire {
                    _ if is_late => Event::NoQuorum { token },
                    None => Event::Kept { token, fence, lasts, started_at },
                    Some(Acquired { asked_at }) => Event::Granted {
                        token,
                        tenure: fence,
                        ttl: lasts.capped(Ttl::MAX),
                        started_at,
                        waited: started_at.since(*asked_at),
                    },
                };
                tokens.iter().for_each(|token| env.out.emit(event(*token)));
            }
            (Outcome::NotHeld, Goal::Keep { tenure, .. }) => {
                for token in tokens {
                    env.out.emit(match acquire {
                        Some(_) => Event::NoQuorum { token: *token },
                        None => Event::NotHeld { token: *token, tenure },
                    });
                }
            }
            (Outcome::Released { held }, _) => {
                let mut held = held;
                for token in tokens {
                    env.out.emit(Event::Released { token: *token, held, confirmed: true });
                    held = held.map(|_| false);
                }
            }
            (Outcome::Checked | Outcome::Kept { .. } | Outcome::NotHeld, _) => {}
        }
    }

    /// Acts on the timers of changes that are due.
    pub(crate) fn changes_timed_out(&mut self, env: &mut Env<'_>, now: Instant) {
        while let Some(ballot) = self.changes.ends.pop(now) {
            self.change_timed_out(env, now, ballot);
        }
        let changes = &self.changes.by_ballot;
        self.changes.ends.drop_stale(|ballot| !changes.contains_key(&ballot));
    }
}
