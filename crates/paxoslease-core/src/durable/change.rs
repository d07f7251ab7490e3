//! The one way to change a register (K6 to K9): ask a majority for promises, compute the next
//! value, store it at a majority.
//!
//! The changes of one name at one node go one after the other, so that they do not outbid each
//! other. A change that was outbid by another node begins anew with a fresh ballot after a random
//! pause. A durable acquire begins with the second phase: its Accepts are promises for its ballot.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::durable::decide::{Asked, Decision, Goal, Outcome, Promised};
use crate::durable::message::{
    DurableBody, DurableMessage, OwnedRegister, SentRegister, SentValue, StoreRefusal,
};
use crate::inspection::DurableEnd;
use crate::outbox::Token;
use crate::protocol::proposer::{Env, Proposer};
use crate::rules::Rule;
use crate::timers::Timers;
use crate::{Ballot, Event, Holder, Instant, Label, Lasts, MemberSet, Seen, Tenure, Ttl};

/// How often a change is tried again before it has no answer.
const TRIES_MAX: u8 = 64;
/// How long a node waits for the last members, to tell all that all have stored a value (K5).
const ALL_WITHIN: Duration = Duration::from_millis(900);
/// The most releases without a caller that go on in the background.
const BACKGROUND_MAX: usize = 1 << 14;

/// A change that was asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Change {
    /// The callers. Of several that release the same tenure, the first is told that it was held.
    tokens: Vec<Token>,
    /// The name, and the holder's text if the caller gave it.
    label: Label,
    goal: Goal,
    /// Set for an acquire, until it is answered.
    acquire: Option<Acquired>,
    deadline: Instant,
    /// When this attempt began: its Prepare, then its Store.
    started_at: Instant,
    phase: Phase,
    /// The ballots of earlier attempts that may have stored something.
    earlier: Vec<Ballot>,
    tries: u8,
}

/// The acquire that a change completes (K9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Acquired {
    asked_at: Instant,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Until the next attempt begins.
    Pausing,
    Preparing {
        promises: Vec<Promised>,
        refused: MemberSet,
    },
    Storing {
        /// The name, and the holder of the value.
        label: Label,
        value: SentValue,
        outcome: Outcome,
        stored: MemberSet,
        refused: MemberSet,
        no_room: Option<StoreRefusal>,
        /// Whether a majority stored it, and the callers are answered. The change then only waits
        /// for the others, to tell all of them (K5).
        is_done: bool,
    },
}

/// The changes of one node.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    by_ballot: HashMap<Ballot, Change, FixedState>,
    /// The names that are being changed, with the changes that follow.
    names: BTreeMap<Box<[u8]>, VecDeque<Change>>,
    /// How many changes wait for another of the same name.
    queued: usize,
    ends: Timers<Ballot>,
    /// Numbers for changes that could not begin yet.
    placeholders: u64,
}

impl Changes {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            by_ballot: HashMap::with_hasher(FixedState::with_seed(seed)),
            names: BTreeMap::new(),
            queued: 0,
            ends: Timers::new(),
            placeholders: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_ballot.len() + self.queued
    }

    pub(crate) fn next_at(&self) -> Instant {
        self.ends.next_at()
    }

    /// Whether a change of this name is under way here.
    pub(crate) fn is_changing(&self, label: &Label) -> bool {
        self.names.contains_key(label.name().as_bytes())
    }

    /// P6: whether a release of this tenure is under way here.
    pub(crate) fn is_releasing(&self, tenure: Tenure) -> bool {
        let releases =
            |change: &Change| matches!(change.goal, Goal::Release { tenure: it } if it == tenure);
        !self.by_ballot.is_empty()
            && (self.by_ballot.values().any(releases)
                || self.names.values().any(|queue| queue.iter().any(releases)))
    }

    /// The name that a change is about.
    pub(crate) fn label_of(&self, ballot: Ballot) -> Option<&Label> {
        self.by_ballot.get(&ballot).map(|change| &change.label)
    }

    /// The key of a change that has no ballot yet. No node has the id 0.
    fn placeholder(&mut self) -> Ballot {
        self.placeholders = (self.placeholders + 1) % Ballot::COUNTER_LIMIT;
        Ballot::from_u64(self.placeholders << 10).expect("the counter is in its range")
    }

    fn ballots(&self) -> Vec<Ballot> {
        let mut ballots: Vec<Ballot> = self.by_ballot.keys().copied().collect();
        ballots.sort_unstable();
        ballots
    }

    /// The changes that have an answer to wait for, and whether each stores its value already.
    #[cfg(feature = "digest")]
    pub(crate) fn phases(&self) -> Vec<(Ballot, bool)> {
        let ballots = self.ballots().into_iter();
        ballots
            .filter_map(|ballot| match self.by_ballot[&ballot].phase {
                Phase::Pausing => None,
                Phase::Preparing { .. } => Some((ballot, false)),
                Phase::Storing { .. } => Some((ballot, true)),
            })
            .collect()
    }

    /// Hashes the changes in the order of their ballots, with every set of acceptors mapped.
    #[cfg(feature = "digest")]
    pub(crate) fn digest(
        &self,
        place: impl Fn(MemberSet) -> MemberSet,
        hasher: &mut impl core::hash::Hasher,
    ) {
        for ballot in self.ballots() {
            let mut change = self.by_ballot[&ballot].clone();
            match &mut change.phase {
                Phase::Pausing => {}
                Phase::Preparing { promises, refused } => {
                    promises.iter_mut().for_each(|it| it.member = place(it.member));
                    promises.sort_unstable_by_key(|it| it.member);
                    *refused = place(*refused);
                }
                Phase::Storing { stored, refused, .. } => {
                    *stored = place(*stored);
                    *refused = place(*refused);
                }
            }
            core::hash::Hash::hash(&(ballot, change), hasher);
        }
        core::hash::Hash::hash(&self.names, hasher);
    }
}

impl Change {
    fn new(tokens: Vec<Token>, label: Label, goal: Goal, deadline: Instant) -> Self {
        Self {
            tokens,
            label,
            goal,
            acquire: None,
            deadline,
            started_at: Instant::ZERO,
            phase: Phase::Pausing,
            earlier: Vec::new(),
            tries: 0,
        }
    }

    /// Whether the change goes on although no caller waits any more.
    fn is_background(&self) -> bool {
        matches!(self.goal, Goal::Release { .. })
    }

    /// K12: another attempt may have to know what this one stored.
    fn give_up_attempt(&mut self, ballot: Ballot) {
        if matches!(self.phase, Phase::Storing { .. }) {
            self.earlier.push(ballot);
        }
        self.phase = Phase::Pausing;
    }
}

impl Proposer {
    /// K8: sets when a tenure ends. If it only prolongs, a later end stays.
    pub(crate) fn keep(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        token: Token,
        label: Label,
        (tenure, lasts, prolongs): (Tenure, Lasts, bool),
    ) {
        if self.is_released(tenure) {
            return env.out.emit(Event::NotHeld { token, tenure });
        }
        let deadline = self.deadline(env.config, now, Duration::ZERO, Ttl::MAX);
        let goal = Goal::Keep { tenure, lasts, prolongs };
        self.begin_change(env, now, Change::new(alloc::vec![token], label, goal, deadline));
    }

    /// K8: ends a tenure that the register holds or may hold. Without a caller, it goes on until
    /// it succeeds or M has passed.
    pub(crate) fn release_durable(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        tokens: Vec<Token>,
        label: Label,
        tenure: Tenure,
        answer_by: Instant,
    ) {
        let goal = Goal::Release { tenure };
        let deadline = if tokens.is_empty() { self.background_until(env, now) } else { answer_by };
        self.begin_change(env, now, Change::new(tokens, label, goal, deadline));
    }

    fn background_until(&self, env: &Env<'_>, now: Instant) -> Instant {
        now.after(env.cell().max_lease().as_duration())
    }

    /// K5, K7: brings the members to the same value.
    pub(crate) fn check(&mut self, env: &mut Env<'_>, now: Instant, label: Label) {
        let deadline = self.deadline(env.config, now, Duration::ZERO, Ttl::MAX);
        self.begin_change(env, now, Change::new(Vec::new(), label, Goal::Check, deadline));
    }

    /// K9: a majority accepted this tenure, and none of them holds the name by its register. So the
    /// Accepts are promises for this ballot, and the value is stored next.
    pub(crate) fn store_granted(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        (token, label): (Token, Label),
        (tenure, lasts): (Tenure, Lasts),
        asked_at: Instant,
    ) {
        let deadline = self.deadline(env.config, now, Duration::ZERO, Ttl::MAX);
        let goal = Goal::Keep { tenure, lasts, prolongs: false };
        let mut change = Change::new(alloc::vec![token], label.clone(), goal, deadline);
        change.acquire = Some(Acquired { asked_at });
        let name: Box<[u8]> = label.name().as_bytes().into();
        if self.changes.names.contains_key(&name) {
            return self.begin_change(env, now, change);
        }
        let value = SentValue::Held { tenure, fence: tenure, lasts: Some(lasts) };
        let outcome = Outcome::Kept { fence: tenure, lasts };
        self.changes.names.insert(name, VecDeque::new());
        change.tries = 1;
        self.begin_store(env, now, tenure.ballot(), change, (label, value, outcome));
    }

    /// Begins a change, or queues it behind another of the same name.
    fn begin_change(&mut self, env: &mut Env<'_>, now: Instant, change: Change) {
        let name = change.label.name().as_bytes();
        if let Some(queue) = self.changes.names.get_mut(name) {
            queue.push_back(change);
            self.changes.queued += 1;
            return;
        }
        let name: Box<[u8]> = name.into();
        self.changes.names.insert(name, VecDeque::new());
        self.attempt(env, now, change);
    }

    /// K6: phase 1, with a fresh ballot.
    fn attempt(&mut self, env: &mut Env<'_>, now: Instant, mut change: Change) {
        change.tries += 1;
        change.started_at = now;
        let fresh = if change.tries > TRIES_MAX { None } else { self.next_tenure(env, now) };
        let Some(fresh) = fresh else {
            // Without a ballot there is nothing to wait for but the disk, or the members.
            if now >= change.deadline || change.tries > TRIES_MAX {
                return self.end_unanswered(env, now, change);
            }
            let place = self.changes.placeholder();
            return self.pause(env, now, place, change);
        };
        let ballot = fresh.ballot();
        let body = DurableBody::Prepare { label: change.label.clone(), ballot };
        change.phase = Phase::Preparing { promises: Vec::new(), refused: MemberSet::EMPTY };
        self.insert_change(env, now, ballot, change);
        env.broadcast(body.into());
    }

    fn insert_change(&mut self, env: &Env<'_>, now: Instant, ballot: Ballot, change: Change) {
        let check_at = now.after(self.attempt_timeout(env.config)).min(change.deadline.max(now));
        self.changes.ends.push(check_at.max(now), ballot);
        self.changes.by_ballot.insert(ballot, change);
    }

    /// The next attempt begins after a random pause that grows with the attempts.
    fn pause(&mut self, env: &Env<'_>, now: Instant, ballot: Ballot, mut change: Change) {
        change.give_up_attempt(ballot);
        let least = env.config.backoff_min.max(self.network_trip);
        let most = env.config.backoff_max.max(self.network_trip.saturating_mul(8));
        let span = least.saturating_mul(1 << change.tries.min(16)).min(most);
        let again_at = now.after(span / 2).after(self.rng.below(span));
        self.changes.ends.push(again_at, ballot);
        self.changes.by_ballot.insert(ballot, change);
    }

    /// K7: phase 2.
    fn begin_store(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        ballot: Ballot,
        mut change: Change,
        (label, value, outcome): (Label, SentValue, Outcome),
    ) {
        change.started_at = now;
        let body = DurableBody::Store { label: label.clone(), ballot, value };
        let (stored, refused) = (MemberSet::EMPTY, MemberSet::EMPTY);
        let no_room = None;
        let is_done = false;
        change.phase = Phase::Storing { label, value, outcome, stored, refused, no_room, is_done };
        self.insert_change(env, now, ballot, change);
        env.broadcast(body.into());
    }

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

    fn resend_change(&self, env: &mut Env<'_>, ballot: Ballot, members: MemberSet) {
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
    fn undo_acquire(&mut self, env: &mut Env<'_>, now: Instant, change: &Change) {
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
    fn next_change(&mut self, env: &mut Env<'_>, now: Instant, label: &Label) {
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
    fn end_unanswered(&mut self, env: &mut Env<'_>, now: Instant, change: Change) {
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
