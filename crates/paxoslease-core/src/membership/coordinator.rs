//! The coordinator of a decision (C5), and the one that sees a change through (C7, U2).
//!
//! A coordinator votes first itself, so its number is on disk before any peer learns of it. It
//! keeps nothing about a change outside the configuration: any member of the old set can take over.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::time::Duration;

use super::configuration::{Birth, Change, ChangeError, Configuration, Member, Members};
use super::decision::Decider;
use super::message::{DecisionNumber, MembershipEvent, MembershipMessage, NodeView, PeerState};
use crate::protocol::proposer::{learnt_up_to, refused_above};
use crate::rules::Rule;
use crate::{Ballot, Instant, NodeId, Token};

/// An attempt without a quorum is repeated with a higher number after this time, and up to twice
/// this time.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest pause of a coordinator that met a higher number.
const BACKOFF_MAX: Duration = Duration::from_millis(200);
/// The longest pause of a coordinator whose End was refused (C6, C10).
const RETRY_MAX: Duration = Duration::from_secs(1);
/// An administrator hears that there is no quorum after this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the coordinator of a joint epoch polls.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// A State older than this does not count.
const STATE_AGE_MAX: Duration = Duration::from_secs(1);
/// A member of the old set takes over after this silence, and `TAKE_OVER_PLACE` more per place.
const TAKE_OVER: Duration = Duration::from_secs(2);
const TAKE_OVER_PLACE: Duration = Duration::from_secs(1);

/// The last State of a node.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) birth: Birth,
    pub(crate) state: PeerState,
    at: Instant,
}

/// One attempt to decide, with one number.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    n: DecisionNumber,
    change: Change,
    token: Option<Token>,
    /// `None` in phase 1, the proposed value in phase 2.
    value: Option<Configuration>,
    /// Who voted in this phase.
    voters: BTreeSet<NodeId>,
    /// Who refused.
    rejected_by: BTreeSet<NodeId>,
    /// At the founding, the births that the voters told.
    births: BTreeMap<NodeId, Birth>,
    top: u64,
    /// The accepted value with the highest number among the promises.
    seen: Option<(DecisionNumber, Configuration)>,
    retry_at: Instant,
    deadline: Instant,
}

impl Hash for Round {
    /// Without instants.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.n, &self.change, self.token, &self.value, &self.voters).hash(hasher);
        (&self.births, self.top, &self.seen, &self.rejected_by).hash(hasher);
    }
}

impl Decider {
    /// Proposes a change, for an administrator. The answer is [`MembershipEvent::Decided`],
    /// [`MembershipEvent::Superseded`] or [`MembershipEvent::NoQuorum`]. Before `Begin`, the caller
    /// has polled the new members: their births come from there (C7).
    ///
    /// # Errors
    /// When the change is not possible; then nothing was changed, and no event follows.
    pub fn begin(
        &mut self,
        now: Instant,
        token: Token,
        change: Change,
        view: &NodeView,
    ) -> Result<(), ChangeError> {
        let configuration = &self.stable.configuration;
        configuration.after(&change, Ballot::ZERO)?;
        if !self.is_voter() {
            return Err(ChangeError::NotMember);
        }
        if self.round.as_ref().is_some_and(|round| round.token.is_some()) {
            return Err(ChangeError::ChangeUnderWay);
        }
        if !self.has_changed_over() {
            return Err(ChangeError::ChangingOver);
        }
        self.propose(now, change, Some(token), now.after(REQUEST_TIMEOUT));
        self.settle(now, view);
        Ok(())
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, view: &NodeView) {
        if self.round.as_ref().is_some_and(|round| now >= round.retry_at.min(round.deadline)) {
            self.retry(now);
        }
        if self.tick_at.is_some_and(|at| now >= at) {
            if self.stable.configuration.is_joint() && !self.leads {
                self.leads = true;
                self.abort_at = now.after(self.config.patience);
            }
            self.tick_at = Some(now.after(POLL_EVERY));
            let leads = self.leads && !self.is_stuck(now);
            self.send_poll(None, leads);
            self.advance(now, view);
        }
        self.settle(now, view);
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let round = self.round.as_ref().map(|round| round.retry_at.min(round.deadline));
        round.into_iter().chain(self.tick_at).min()
    }

    /// Begins an attempt with a number above every number this node has seen in this epoch.
    fn propose(&mut self, now: Instant, change: Change, token: Option<Token>, deadline: Instant) {
        let seen = self.promised_seen.max(self.stable.vote.promised);
        let counter = seen.map_or(0, |seen| seen.counter) + 1;
        let (node, birth) = self.own();
        let names = self.config.rules.on(Rule::NumberNamesBirth);
        let n = DecisionNumber { counter, node, birth: if names { birth } else { Birth::UNKNOWN } };
        self.round = Some(Round {
            n,
            change,
            token,
            value: None,
            voters: BTreeSet::new(),
            rejected_by: BTreeSet::new(),
            births: BTreeMap::new(),
            top: 0,
            seen: None,
            retry_at: now.after(ATTEMPT_TIMEOUT + self.rng.below(ATTEMPT_TIMEOUT)),
            deadline,
        });
        let epoch = self.next_epoch();
        self.ask_own_first(MembershipMessage::ConfPrepare { epoch, n });
    }

    /// Sends a request to this node's own voter. The others get it once that has voted (C5).
    fn ask_own_first(&mut self, request: MembershipMessage) {
        if !self.config.rules.on(Rule::CoordinatorNumberIsDurable) {
            self.ask_others(&request);
        }
        self.send(self.config.node, request);
    }

    fn ask_others(&mut self, request: &MembershipMessage) {
        let rules = self.config.rules;
        let configuration = &self.stable.configuration;
        let is_voter =
            |member: &&Member| configuration.is_voter(rules, (member.node, member.birth));
        let voters = configuration.members().filter(is_voter).map(|member| member.node).collect();
        self.send_all(voters, request);
    }

    /// Sends to every receiver except this node.
    fn send_all(&mut self, mut receivers: BTreeSet<NodeId>, message: &MembershipMessage) {
        receivers.remove(&self.config.node);
        for node in receivers {
            self.send(node, message.clone());
        }
    }

    /// Whether an answer counts, and is the first of its voter. When this node's own voter has
    /// answered, the others are asked.
    fn answered(
        &mut self,
        from: (NodeId, Birth),
        epoch: u32,
        n: DecisionNumber,
        phase2: bool,
    ) -> bool {
        let rules = self.config.rules;
        let is_voter = self.stable.configuration.is_voter(rules, from);
        let counts = epoch == self.next_epoch() || !rules.on(Rule::AnswerCountsInItsEpoch);
        let Some(round) = &mut self.round else { return false };
        if !is_voter || !counts || n != round.n || phase2 != round.value.is_some() {
            return false;
        }
        let is_first = round.voters.insert(from.0);
        if epoch == 1 {
            round.births.insert(from.0, from.1);
        }
        let is_durable = rules.on(Rule::CoordinatorNumberIsDurable);
        if is_first && from.0 == self.config.node && is_durable {
            let request = match round.value.clone() {
                Some(value) => MembershipMessage::ConfAccept { epoch, n, value },
                None => MembershipMessage::ConfPrepare { epoch, n },
            };
            self.ask_others(&request);
        }
        is_first
    }

    pub(super) fn on_promise(
        &mut self,
        from: (NodeId, Birth),
        (epoch, n): (u32, DecisionNumber),
        (accepted, top): (Option<(DecisionNumber, Configuration)>, u64),
        view: &NodeView,
    ) {
        // A1: it would use up the ballots.
        let floor = accepted.as_ref().map_or(0, |(_, value)| value.floor().counter());
        let is_exhausting =
            top > learnt_up_to(view.counter_bound) || floor > refused_above(view.counter_bound);
        if is_exhausting || !self.answered(from, epoch, n, false) {
            return;
        }
        let rules = self.config.rules;
        let configuration = &self.stable.configuration;
        let Some(round) = &mut self.round else { return };
        round.top = round.top.max(top);
        let number =
            |seen: &Option<(DecisionNumber, Configuration)>| seen.as_ref().map(|(n, _)| *n);
        if number(&accepted) > number(&round.seen) && rules.on(Rule::CoordinatorTakesSeenValue) {
            round.seen = accepted;
        }
        if !configuration.is_quorum(rules, &round.voters) {
            return;
        }
        let value = match &round.seen {
            Some((_, value)) => value.clone(),
            None => {
                let floor = if rules.on(Rule::FloorCoversPromises) {
                    Ballot::above_counter(round.top.min(Ballot::COUNTER_LIMIT))
                } else {
                    Ballot::ZERO
                };
                let change = with_births(configuration, &round.change, &round.births);
                match configuration.after(&change, floor) {
                    Ok(value) => value,
                    // A change was legal in this epoch when the round began, so it still is.
                    Err(_) => return,
                }
            }
        };
        round.voters.clear();
        round.value = Some(value.clone());
        self.ask_own_first(MembershipMessage::ConfAccept { epoch, n, value });
    }

    pub(super) fn on_accepted(
        &mut self,
        now: Instant,
        from: (NodeId, Birth),
        (epoch, n): (u32, DecisionNumber),
        view: &NodeView,
    ) {
        if !self.answered(from, epoch, n, true) {
            return;
        }
        let configuration = &self.stable.configuration;
        let Some(Round { voters, value: Some(value), .. }) = &self.round else { return };
        if !configuration.is_quorum(self.config.rules, voters) {
            return;
        }
        let value = value.clone();
        self.learn(now, self.config.node, value, view);
    }

    pub(super) fn on_reject(
        &mut self,
        now: Instant,
        from: (NodeId, Birth),
        (epoch, promised): (u32, Option<DecisionNumber>),
        wait: Duration,
    ) {
        let promised = promised.map(|n| self.near(n));
        let counts = epoch == self.next_epoch()
            && self.stable.configuration.is_voter(self.config.rules, from);
        let Some(round) = self.round.as_mut().filter(|_| counts) else { return };
        // A voter refuses an attempt once. More than that would only delay the answers of others.
        if !round.rejected_by.insert(from.0) {
            return;
        }
        if promised > Some(round.n) {
            self.promised_seen = self.promised_seen.max(promised);
            round.retry_at = now.after(self.rng.below(BACKOFF_MAX));
        }
        if !wait.is_zero() {
            round.retry_at = now.after(wait.min(RETRY_MAX));
        }
    }

    fn retry(&mut self, now: Instant) {
        let Some(Round { change, token, deadline, .. }) = self.round.clone() else { return };
        match token {
            Some(token) if now >= deadline => {
                self.round = None;
                self.emit(MembershipEvent::NoQuorum { token });
            }
            Some(_) => self.propose(now, change, token, deadline),
            // The next poll shows what is to be done now.
            None => self.round = None,
        }
    }

    /// The epoch of a round is over: answers the administrator. The coordinator that decided tells
    /// the members of both epochs, now that the configuration is on its disk: newcomers alone would
    /// not be believed (C11). Then it leads the joint epoch, or tells the stable one again.
    pub(super) fn end_round(&mut self, adopted: &Configuration) {
        (self.leads, self.spreads) = (false, false);
        let Some(round) = self.round.take() else { return };
        let has_decided = round.value.as_ref() == Some(adopted);
        if has_decided {
            let members = self.stable.configuration.members().chain(adopted.members());
            let receivers = members.map(|member| member.node).collect();
            self.send_all(receivers, &MembershipMessage::Config(adopted.clone()));
        }
        self.leads = adopted.is_joint() && has_decided;
        self.spreads = !adopted.is_joint() && has_decided;
        let Some(token) = round.token else { return };
        let wanted = self.stable.configuration.after(&round.change, adopted.floor());
        let epoch = adopted.epoch();
        self.emit(if wanted.as_ref() == Ok(adopted) {
            MembershipEvent::Decided { token, epoch }
        } else {
            MembershipEvent::Superseded { token, epoch }
        });
    }

    /// Sets the timer of a new epoch: to poll at once, to take over later, or none.
    pub(super) fn set_tick(&mut self, now: Instant) {
        let configuration = &self.stable.configuration;
        let place = configuration.old().iter().position(|member| member.node == self.config.node);
        let is_voter = self.is_voter();
        self.abort_at = now.after(self.config.patience);
        self.tick_at = match place {
            _ if self.spreads => Some(now),
            Some(_) if is_voter && (configuration.epoch() == 0 || self.leads) => Some(now),
            Some(place) if is_voter && configuration.is_joint() => {
                Some(now.after(TAKE_OVER + TAKE_OVER_PLACE * place as u32))
            }
            _ => None,
        };
    }

    /// Another member leads: this node waits, and yields if it leads too and has the higher id.
    pub(super) fn on_leader(&mut self, now: Instant, from: (NodeId, Birth), epoch: u32) {
        let configuration = &self.stable.configuration;
        if configuration.is_joint()
            && epoch == configuration.epoch()
            && configuration.is_voter(self.config.rules, from)
            && (!self.leads || from.0 < self.config.node)
        {
            self.leads = false;
            self.set_tick(now);
        }
    }

    pub(super) fn on_state(
        &mut self,
        now: Instant,
        from: (NodeId, Birth),
        state: PeerState,
        view: &NodeView,
    ) {
        self.heard_epoch(from.0, state.epoch);
        if self.polled.contains(&from.0) {
            self.heard.insert(from.0, Heard { birth: from.1, state, at: now });
        }
        self.advance(now, view);
    }

    /// U2, C7: proposes what is due in this epoch, if this node is the one to do it.
    fn advance(&mut self, now: Instant, view: &NodeView) {
        if self.spreads {
            self.stop_spreading();
        }
        if self.round.is_some() || !self.has_changed_over() {
            return;
        }
        let change = if self.stable.configuration.epoch() == 0 {
            self.founding(now)
        } else if self.leads {
            self.ending(now, view)
        } else {
            None
        };
        if let Some(change) = change {
            self.propose(now, change, None, Instant::MAX);
        }
    }

    /// Polls end when a majority of the members has adopted the configuration: they need no removed
    /// node any more to learn it.
    fn stop_spreading(&mut self) {
        let configuration = &self.stable.configuration;
        let has_adopted = |member: &&Member| {
            let heard = self.heard.get(&member.node);
            let adopted = |heard: &Heard| {
                heard.birth == member.birth && heard.state.epoch >= configuration.epoch()
            };
            (member.node, member.birth) == self.own() || heard.is_some_and(adopted)
        };
        if configuration.old().majority(has_adopted) {
            self.spreads = false;
            self.tick_at = None;
        }
    }

    /// U2: the member with the lowest id founds the cell once it has heard all the others.
    fn founding(&self, now: Instant) -> Option<Change> {
        let list = self.stable.configuration.old();
        if list.first().is_none_or(|first| first.node != self.config.node) {
            return None;
        }
        let birth = |member: &Member| {
            if member.node == self.config.node {
                return Some(self.config.birth);
            }
            let heard = self.heard.get(&member.node)?;
            let is_fresh = now.since(heard.at) <= STATE_AGE_MAX;
            (is_fresh && heard.state.epoch == 0 && heard.state.voting).then_some(heard.birth)
        };
        let told = |member: &Member| Some(Member { birth: birth(member)?, ..member.clone() });
        let members = list.iter().map(told).collect::<Option<Vec<_>>>()?;
        Members::new(members).ok().map(Change::Same)
    }

    /// C7, C10: End when both sets have waited, Abort when no majority of the new set votes.
    fn ending(&mut self, now: Instant, view: &NodeView) -> Option<Change> {
        let own = self.state(now, view);
        let configuration = &self.stable.configuration;
        let new = configuration.new_set()?;
        let state = |member: &Member| {
            if (member.node, member.birth) == self.own() {
                return Some(&own);
            }
            let heard = self.heard.get(&member.node)?;
            let is_fresh = heard.birth == member.birth && now.since(heard.at) <= STATE_AGE_MAX;
            (is_fresh && heard.state.epoch == configuration.epoch()).then_some(&heard.state)
        };
        let states = || configuration.members().filter_map(state);
        let drain_max = states().map(|state| self.drain_span(state.longest)).max()?;
        let has_waited =
            |state: &PeerState, span: Duration| state.in_epoch_for.is_some_and(|time| time >= span);
        let would_end = |state: &PeerState| {
            has_waited(state, self.drain_span(state.longest)) && state.registers_left == 0
        };
        let has_new = new.majority(|member| state(member).is_some_and(|state| state.voting));
        let is_drained = would_end(&own)
            && configuration.old().majority(|member| state(member).is_some_and(would_end))
            && new.majority(|member| state(member).is_some_and(|s| has_waited(s, drain_max)));
        if has_new {
            self.abort_at = now.after(self.config.patience);
            return is_drained.then_some(Change::End);
        }
        (now >= self.abort_at).then_some(Change::Abort)
    }

    pub(super) fn send_poll(&mut self, candidates: Option<&Members>, leads: bool) {
        let configuration = &self.stable.configuration;
        let epoch = configuration.epoch();
        let asked =
            configuration.members().chain(candidates.into_iter().flat_map(|set| set.iter()));
        let receivers: BTreeSet<NodeId> = asked.map(|member| member.node).collect();
        self.polled.extend(&receivers);
        self.send_all(receivers, &MembershipMessage::Poll { epoch, leads });
    }

    const fn next_epoch(&self) -> u32 {
        self.stable.configuration.epoch().saturating_add(1)
    }
}

/// U2: the founding lists the births that the voters told with their promises.
fn with_births(
    configuration: &Configuration,
    change: &Change,
    births: &BTreeMap<NodeId, Birth>,
) -> Change {
    let Change::Same(list) = change else { return change.clone() };
    if configuration.epoch() > 0 {
        return change.clone();
    }
    let told = |member: &Member| {
        let birth = births.get(&member.node).copied().unwrap_or(member.birth);
        Member { birth, ..member.clone() }
    };
    Members::new(list.iter().map(told).collect()).map_or_else(|_| change.clone(), Change::Same)
}
