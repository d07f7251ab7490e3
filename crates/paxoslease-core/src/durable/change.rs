//! The one way to change a register (K6 to K9): ask a majority for promises, compute the next
//! value, store it at a majority.
//!
//! The changes of one name at one node go one after the other, so that they do not outbid each
//! other. A change that was outbid by another node begins anew with a fresh ballot after a random
//! pause. A durable acquire begins with the second phase: its Accepts are promises for its ballot.

mod answers;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::durable::decide::{Goal, Outcome, Promised};
use crate::durable::message::{DurableBody, SentValue, StoreRefusal};
use crate::outbox::Token;
use crate::protocol::proposer::{Env, Proposer};
use crate::timers::Timers;
use crate::{Ballot, Event, Instant, Label, Lasts, MemberSet, Tenure, Ttl};

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
}
