//! One node's part in the decisions about members: it votes (C3), keeps its votes on disk (W1, W2),
//! and adopts what was decided (C2). `coordinator.rs` has the part that proposes.
//!
//! Like a shard, it does no I/O: the caller passes messages, time and written records in, and takes
//! messages and events out. A node has one decider, whatever the number of its shards.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::configuration::{Birth, Configuration, Member, Members};
use super::coordinator::{Heard, Round};
use super::message::{
    ConfigRefusal, DecisionNumber, MembershipEvent, MembershipMessage, NodeView, PeerState,
    StableConfiguration, Vote,
};
use crate::protocol::proposer::refused_above;
use crate::rules::{Rule, Rules};
use crate::{Ballot, Drift, Instant, NodeId, Rng, Ttl};

/// C10: how long a voter asks to wait while registers of durable leases have not moved yet.
const REGISTERS_WAIT: Duration = Duration::from_secs(1);
/// A1: how far above the numbers that a node knows in an epoch the next one may be. No honest
/// coordinator makes that many attempts.
const NUMBER_STEP_MAX: u64 = 1 << 20;

/// The settings of a decider.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DeciderConfig {
    /// This node.
    pub node: NodeId,
    /// The birth of its data_dir; [`Birth::UNKNOWN`] for a node without one, which never votes.
    pub birth: Birth,
    /// Whether this node founds the cell with the list of epoch 0 (U2). If not, that list is for
    /// first contact only.
    pub founds: bool,
    /// The nodes in the list of the node's settings. C11: an operator vouches for those that this
    /// node never knew as members.
    pub contacts: Vec<NodeId>,
    /// The assumptions about the clocks of the cell.
    pub drift: Drift,
    /// A change is aborted when no majority of the new set votes for this long (C7).
    pub patience: Duration,
    /// Seed of the random delays between coordinators.
    pub seed: u64,
    /// All rules, except in tests that switch one off.
    pub rules: Rules,
}

impl DeciderConfig {
    /// Settings with the usual patience of 2 s.
    #[must_use]
    pub const fn new(node: NodeId, birth: Birth, drift: Drift, seed: u64) -> Self {
        Self {
            node,
            birth,
            founds: true,
            contacts: Vec::new(),
            drift,
            patience: Duration::from_secs(2),
            seed,
            rules: Rules::ALL,
        }
    }
}

/// When all shards had changed over to the adopted configuration, and the longest lease then.
#[derive(Clone, Copy, Debug)]
struct ChangedOver {
    at: Instant,
    longest: Option<Ttl>,
}

/// One node's voter, coordinator and learner of configurations.
#[derive(Clone, Debug)]
pub struct Decider {
    pub(super) config: DeciderConfig,
    pub(super) rng: Rng,
    /// The configuration in force, and the vote, which may be ahead of the disk.
    pub(super) stable: StableConfiguration,
    /// A configuration that was decided and is not on disk yet.
    adopting: Option<Configuration>,
    writing: Option<StableConfiguration>,
    /// When `writing` began.
    writing_since: Instant,
    /// Whether something is to be written after `writing`.
    is_dirty: bool,
    /// W1: the answers that wait for `writing`, and those that wait for the write after it. A
    /// coordinator is owed only the answer to its last request.
    answers: BTreeMap<NodeId, MembershipMessage>,
    answers_next: BTreeMap<NodeId, MembershipMessage>,
    changed: Option<ChangedOver>,
    /// Whether `changed` counts from a start. Only a mutant asks.
    is_restarted: bool,
    /// `top` when the adoption began. Only a mutant uses it.
    top_early: u64,
    pub(super) round: Option<Round>,
    /// The highest number that a voter reported in this epoch.
    pub(super) promised_seen: Option<DecisionNumber>,
    /// Whether this node coordinates the joint epoch (C7).
    pub(super) leads: bool,
    /// Whether this node tells a stable epoch to its members: it decided it, or it has started and
    /// does not know whether it did.
    pub(super) spreads: bool,
    /// When to poll next, or to take over; `None` if there is nothing to do.
    pub(super) tick_at: Option<Instant>,
    pub(super) abort_at: Instant,
    /// The nodes whose States count.
    pub(super) polled: BTreeSet<NodeId>,
    pub(super) heard: BTreeMap<NodeId, Heard>,
    /// Messages of this node to itself.
    inbox: VecDeque<MembershipMessage>,
    transmits: VecDeque<(NodeId, MembershipMessage)>,
    events: VecDeque<MembershipEvent>,
}

impl Decider {
    /// Starts from the record, or from the epoch 0 of [`Configuration::unfounded`]. The node then
    /// calls [`Self::shards_changed`] when its shards have started with that configuration.
    #[must_use]
    pub fn start(config: DeciderConfig, now: Instant, stable: StableConfiguration) -> Self {
        let spreads = stable.configuration.epoch() > 0 && !stable.configuration.is_joint();
        let mut decider = Self {
            rng: Rng::seeded(config.seed),
            config,
            stable,
            adopting: None,
            writing: None,
            writing_since: now,
            is_dirty: false,
            answers: BTreeMap::new(),
            answers_next: BTreeMap::new(),
            changed: None,
            is_restarted: true,
            top_early: 0,
            round: None,
            promised_seen: None,
            leads: false,
            spreads,
            tick_at: None,
            abort_at: now,
            polled: BTreeSet::new(),
            heard: BTreeMap::new(),
            inbox: VecDeque::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        };
        decider.set_tick(now);
        decider
    }

    /// The configuration that this node has adopted.
    #[must_use]
    pub const fn configuration(&self) -> &Configuration {
        &self.stable.configuration
    }

    /// Whether this node coordinates the change under way.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.leads
    }

    /// In a joint epoch, how long this node still refuses to vote for End; `None` before its shards
    /// have changed over.
    #[must_use]
    pub fn drain_left(&self, now: Instant) -> Option<Duration> {
        let changed = self.changed.filter(|_| self.stable.configuration.is_joint())?;
        Some(self.drain_span(changed.longest).saturating_sub(now.since(changed.at)))
    }

    /// The last State of a node, with its birth.
    #[must_use]
    pub fn heard(&self, node: NodeId) -> Option<(Birth, &PeerState)> {
        self.heard.get(&node).map(|heard| (heard.birth, &heard.state))
    }

    /// Forgets every State, so that [`Self::heard`] has only the answers to the next Poll.
    pub fn forget_states(&mut self) {
        self.heard.clear();
        self.polled.clear();
    }

    /// C6: the wait of a voter whose longest lease is this one.
    #[must_use]
    pub fn wait_for(&self, longest: Option<Ttl>) -> Duration {
        self.drain_span(longest)
    }

    /// The next message to send, and its receiver.
    pub fn poll_transmit(&mut self) -> Option<(NodeId, MembershipMessage)> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<MembershipEvent> {
        self.events.pop_front()
    }

    /// Handles a message from a peer. A stale or duplicated message is normal input.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: (NodeId, Birth),
        message: MembershipMessage,
        view: &NodeView,
    ) {
        self.handle(now, from, message, view);
        self.settle(now, view);
    }

    /// C1: a peer's frame says its epoch. Sends Config to a peer that is behind, and Learn to one
    /// that is ahead. The caller limits how often it asks for that.
    pub fn heard_epoch(&mut self, from: NodeId, epoch: u32) {
        let own = self.stable.configuration.epoch();
        if epoch > own {
            self.send(from, MembershipMessage::Learn { epoch });
        } else if epoch < own {
            self.tell(from);
        }
    }

    /// C9, C11: only a node that was a member tells Config. No other node would be believed.
    fn tell(&mut self, to: NodeId) {
        if self.stable.configuration.past().contains(&self.own()) {
            self.send(to, MembershipMessage::Config(self.stable.configuration.clone()));
        }
    }

    /// Sends Poll to the members and to nodes that may become members. [`Self::heard`] has the
    /// answers.
    pub fn poll(&mut self, candidates: Option<&Members>) {
        self.send_poll(candidates, false);
    }

    /// C2: all shards of this node have changed over to the configuration of this epoch. `longest`
    /// is the highest `lease_ceiling` of any shard at this moment.
    pub fn shards_changed(&mut self, now: Instant, epoch: u32, longest: Option<Ttl>) {
        if epoch == self.stable.configuration.epoch() && self.changed.is_none() {
            self.changed = Some(ChangedOver { at: now, longest });
        }
    }

    /// The record of the last [`MembershipEvent::Persist`] is durable.
    pub fn record_written(&mut self, now: Instant, view: &NodeView) {
        let Some(StableConfiguration { configuration, .. }) = self.writing.take() else { return };
        for (to, message) in mem::take(&mut self.answers) {
            self.send(to, message);
        }
        if self.adopting.as_ref() == Some(&configuration) {
            self.adopting = None;
        }
        if configuration.epoch() > self.stable.configuration.epoch() {
            self.adopt(now, configuration);
        }
        self.settle(now, view);
    }

    /// Whether a write has taken longer than others wait for a coordinator. Such a node must not
    /// keep others from taking over.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.writing.is_some() && now >= self.writing_since.after(self.config.patience)
    }

    /// Handles the messages of this node to itself, then begins a write if one is due.
    pub(super) fn settle(&mut self, now: Instant, view: &NodeView) {
        while let Some(message) = self.inbox.pop_front() {
            self.handle(now, self.own(), message, view);
        }
        if self.writing.is_none() && mem::take(&mut self.is_dirty) {
            let record = match &self.adopting {
                Some(next) => {
                    StableConfiguration { configuration: next.clone(), vote: Vote::default() }
                }
                None => self.stable.clone(),
            };
            self.writing = Some(record.clone());
            self.writing_since = now;
            self.answers = mem::take(&mut self.answers_next);
            self.emit(MembershipEvent::Persist(record));
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        from: (NodeId, Birth),
        message: MembershipMessage,
        view: &NodeView,
    ) {
        use MembershipMessage as M;
        match message {
            M::ConfPrepare { epoch, n } => {
                if self.may_vote(from, epoch, n) {
                    self.vote_prepare(from.0, epoch, n, view);
                }
            }
            M::ConfAccept { epoch, n, value } => {
                if self.may_vote(from, epoch, n) {
                    self.vote_accept(now, from.0, (epoch, n, value), view);
                }
            }
            M::ConfPromise { epoch, n, accepted, top } => {
                self.on_promise(from, (epoch, n), (accepted, top), view);
            }
            M::ConfAccepted { epoch, n } => self.on_accepted(now, from, (epoch, n), view),
            M::ConfReject { epoch, promised, wait } => {
                self.on_reject(now, from, (epoch, promised), wait);
            }
            M::Learn { epoch } => {
                if epoch <= self.stable.configuration.epoch() && epoch > 0 {
                    self.tell(from.0);
                }
            }
            M::Config(configuration) => self.on_config(now, from, configuration, view),
            M::Poll { epoch, leads } => {
                if leads {
                    self.on_leader(now, from, epoch);
                }
                self.heard_epoch(from.0, epoch);
                self.send(from.0, M::State(self.state(now, view)));
            }
            M::State(state) => self.on_state(now, from, state, view),
        }
    }

    /// C3: whether this node votes on a request of this coordinator for this epoch.
    fn may_vote(&mut self, from: (NodeId, Birth), epoch: u32, n: DecisionNumber) -> bool {
        let rules = self.config.rules;
        let next = self.stable.configuration.epoch().saturating_add(1);
        if epoch != next {
            self.heard_epoch(from.0, epoch.saturating_sub(1));
        }
        let has_changed = self.adopting.is_none() && self.changed.is_some();
        let configuration = &self.stable.configuration;
        (epoch == next || !rules.on(Rule::VoteOnlyInOwnEpoch))
            && (has_changed || !rules.on(Rule::VotesAfterAllShardsChanged))
            && self.is_voter()
            && configuration.is_voter(rules, from)
            && n.node == from.0
            && (n.birth == from.1 || !rules.on(Rule::NumberNamesBirth))
            && self.is_near(n)
    }

    /// A1: no peer can use up the numbers of an epoch with a few messages. A number far above all
    /// that this node knows is brought near instead, so that repeated attempts reach any number.
    pub(super) fn near(&self, n: DecisionNumber) -> DecisionNumber {
        let known = self.promised_seen.max(self.stable.vote.promised);
        let counter_max = known.map_or(0, |known| known.counter).saturating_add(NUMBER_STEP_MAX);
        let counter = n.counter.min(counter_max).min(Ballot::COUNTER_LIMIT - 1);
        DecisionNumber { counter, ..n }
    }

    /// Whether a voter takes this number. If not, it takes a higher one next time.
    fn is_near(&mut self, n: DecisionNumber) -> bool {
        let near = self.near(n);
        if near != n {
            self.promised_seen = self.promised_seen.max(Some(near));
        }
        near == n
    }

    fn vote_prepare(&mut self, from: NodeId, epoch: u32, n: DecisionNumber, view: &NodeView) {
        let vote = &mut self.stable.vote;
        if Some(n) < vote.promised {
            let promised = vote.promised;
            let wait = Duration::ZERO;
            return self.send(from, MembershipMessage::ConfReject { epoch, promised, wait });
        }
        let is_known = Some(n) == vote.promised;
        vote.promised = Some(n);
        let accepted = vote.accepted.clone();
        let is_late = self.config.rules.on(Rule::TopReadAfterSeal);
        let top = if is_late { view.top } else { self.top_early };
        let promise = MembershipMessage::ConfPromise { epoch, n, accepted, top };
        self.answer_durably(from, promise, is_known);
    }

    fn vote_accept(
        &mut self,
        now: Instant,
        from: NodeId,
        (epoch, n, value): (u32, DecisionNumber, Configuration),
        view: &NodeView,
    ) {
        let configuration = &self.stable.configuration;
        let is_end = configuration.ends_with(&value);
        let is_legal = (configuration.is_legal_successor(&value)
            || !self.config.rules.on(Rule::VoteOnlyInOwnEpoch))
            && value.floor().counter() <= refused_above(view.counter_bound);
        let wait = if is_end { self.end_wait(now, from, view) } else { Duration::ZERO };
        let promised = self.stable.vote.promised;
        if Some(n) < promised || !is_legal || !wait.is_zero() {
            return self.send(from, MembershipMessage::ConfReject { epoch, promised, wait });
        }
        let vote = Vote { promised: Some(n), accepted: Some((n, value)) };
        let is_known = vote == self.stable.vote;
        self.stable.vote = vote;
        self.answer_durably(from, MembershipMessage::ConfAccepted { epoch, n }, is_known);
    }

    /// C6, C10: how long this node still refuses to vote for End.
    fn end_wait(&self, now: Instant, from: NodeId, view: &NodeView) -> Duration {
        let rules = self.config.rules;
        let is_skipped = !rules.on(Rule::EveryVoterWaits) && from != self.config.node
            || !rules.on(Rule::EndWaits)
            || !rules.on(Rule::WaitCountsAnewAfterRestart) && self.is_restarted;
        match self.changed {
            Some(changed) if !is_skipped => {
                let left = self.drain_span(changed.longest).saturating_sub(now.since(changed.at));
                if view.registers_left > 0 { left.max(REGISTERS_WAIT) } else { left }
            }
            _ => Duration::ZERO,
        }
    }

    /// C6: `D = r * longest + 2g`.
    pub(super) fn drain_span(&self, longest: Option<Ttl>) -> Duration {
        let longest = longest.map_or(Duration::ZERO, Ttl::as_duration);
        if !self.config.rules.on(Rule::EndWaits) {
            return Duration::ZERO;
        }
        if !self.config.rules.on(Rule::WaitCoversLongestTtl) {
            return longest / 2;
        }
        let drift = self.config.drift;
        drift.quarantine_span(longest).saturating_add(drift.granularity().saturating_mul(2))
    }

    /// A peer says that this configuration was decided.
    fn on_config(
        &mut self,
        now: Instant,
        from: (NodeId, Birth),
        configuration: Configuration,
        view: &NodeView,
    ) {
        let epoch = configuration.epoch();
        if epoch <= self.known().epoch() {
            return;
        }
        if let Some(why) = self.refusal(from, &configuration, view) {
            return self.emit(MembershipEvent::ConfigRefused { from: from.0, epoch, why });
        }
        let (node, birth) = self.own();
        let is_other = |past: &(NodeId, Birth)| past.0 == node && past.1 != birth;
        if configuration.past().iter().any(is_other)
            && self.config.rules.on(Rule::VoterIsTheBirthListed)
        {
            // The member of this id is another disk: this node must not act in its place.
            return self.emit(MembershipEvent::DiskLost { epoch });
        }
        self.learn(now, from.0, configuration, view);
    }

    /// C11: why this node does not believe a peer that tells a configuration.
    fn refusal(
        &self,
        from: (NodeId, Birth),
        configuration: &Configuration,
        view: &NodeView,
    ) -> Option<ConfigRefusal> {
        let rules = self.config.rules;
        let known = self.known();
        // Every configuration of a cell lists all that were members before (C4).
        if !known.past().iter().all(|past| configuration.past().contains(past)) {
            return Some(ConfigRefusal::OtherCell);
        }
        if !self.is_believed(from) && rules.on(Rule::ConfigFromMembers) {
            return Some(ConfigRefusal::NotMember);
        }
        if !known.may_lead_to(configuration) && rules.on(Rule::ConfigFollows) {
            return Some(ConfigRefusal::NotSuccessor);
        }
        // A1: it would use up the ballots.
        let is_exhausting = configuration.floor().counter() > refused_above(view.counter_bound);
        is_exhausting.then_some(ConfigRefusal::FloorTooHigh)
    }

    /// C11: whether this node believes a Config of this peer: of a member that it knows, or of a
    /// node in its own list that it never knew as a member. A configuration that is not on disk
    /// yet could be forgotten, so the members before it are believed, too.
    fn is_believed(&self, (node, birth): (NodeId, Birth)) -> bool {
        let is_peer = |member: &Member| {
            member.node == node && (member.birth == birth || member.birth == Birth::UNKNOWN)
        };
        let mut known = self.adopting.iter().chain([&self.stable.configuration]);
        let is_new = self.known().past().iter().all(|past| past.0 != node);
        known.any(|configuration| configuration.members().any(is_peer))
            || is_new && self.config.contacts.contains(&node)
    }

    /// The last configuration that this node believes to be decided.
    fn known(&self) -> &Configuration {
        self.adopting.as_ref().unwrap_or(&self.stable.configuration)
    }

    /// Begins the adoption of a configuration that was decided (C2).
    pub(super) fn learn(
        &mut self,
        now: Instant,
        from: NodeId,
        configuration: Configuration,
        view: &NodeView,
    ) {
        let epoch = configuration.epoch();
        if epoch <= self.known().epoch() {
            return;
        }
        self.emit(MembershipEvent::Learnt { from, epoch });
        self.top_early = view.top;
        self.is_dirty = true;
        self.answers_next.clear();
        if self.config.rules.on(Rule::AdoptionIsDurableFirst) {
            self.adopting = Some(configuration);
        } else {
            self.adopt(now, configuration);
        }
    }

    fn adopt(&mut self, now: Instant, configuration: Configuration) {
        self.end_round(&configuration);
        self.stable =
            StableConfiguration { configuration: configuration.clone(), vote: Vote::default() };
        self.promised_seen = None;
        self.changed = None;
        self.is_restarted = false;
        self.set_tick(now);
        self.emit(MembershipEvent::Adopt(configuration));
    }

    pub(super) fn state(&self, now: Instant, view: &NodeView) -> PeerState {
        let configuration = &self.stable.configuration;
        let is_member = configuration.is_member(self.config.node, self.config.birth);
        let changed = self.changed;
        PeerState {
            epoch: configuration.epoch(),
            voting: if configuration.epoch() == 0 {
                self.is_voter()
            } else {
                is_member && changed.is_some() && view.quarantine_left.is_zero()
            },
            quarantine_left: view.quarantine_left,
            longest: changed.and_then(|changed| changed.longest),
            in_epoch_for: changed.map(|changed| now.since(changed.at)),
            registers_left: view.registers_left,
            reaches: view.reaches.clone(),
        }
    }

    /// C3: whether this node votes on the next configuration.
    pub(super) fn is_voter(&self) -> bool {
        let configuration = &self.stable.configuration;
        (self.config.founds || configuration.epoch() > 0)
            && configuration.is_voter(self.config.rules, self.own())
    }

    pub(super) const fn own(&self) -> (NodeId, Birth) {
        (self.config.node, self.config.birth)
    }

    pub(super) fn has_changed_over(&self) -> bool {
        self.changed.is_some() && self.adopting.is_none()
    }

    /// W1: answers once the vote is on disk. After a duplicate request it may be there already.
    fn answer_durably(&mut self, to: NodeId, message: MembershipMessage, is_known: bool) {
        let is_durable = is_known && self.writing.is_none() && !self.is_dirty;
        self.is_dirty |= !is_durable;
        if is_durable || !self.config.rules.on(Rule::VoteIsDurable) {
            self.send(to, message);
        } else {
            self.answers_next.insert(to, message);
        }
    }

    pub(super) fn send(&mut self, to: NodeId, message: MembershipMessage) {
        if to == self.config.node {
            self.inbox.push_back(message);
        } else {
            self.transmits.push_back((to, message));
        }
    }

    pub(super) fn emit(&mut self, event: MembershipEvent) {
        self.events.push_back(event);
    }
}

#[cfg(feature = "digest")]
impl core::hash::Hash for Decider {
    /// For checkers: everything except instants, random numbers, and hints that other nodes gave.
    fn hash<H: core::hash::Hasher>(&self, hasher: &mut H) {
        (&self.stable, &self.adopting, &self.writing, self.is_dirty).hash(hasher);
        (&self.answers, &self.answers_next, &self.round, self.promised_seen).hash(hasher);
        (self.changed.is_some(), self.is_restarted, self.leads).hash(hasher);
    }
}
