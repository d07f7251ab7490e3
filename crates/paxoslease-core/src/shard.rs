//! One shard: acceptor and proposer of the names that one thread owns, behind commands, `handle_*`
//! and `poll_*`. The only public access to the protocol.
//!
//! The same inputs give the same outputs. The caller reads the clock after it received an input and
//! passes it as `now`. It sends what [`Shard::poll_transmit`] returns, acts on
//! [`Shard::poll_event`], and calls [`Shard::handle_timeout`] when [`Shard::poll_timeout`] says so.

mod counters;
mod tuning;
mod view;

pub use view::Snapshot;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::outbox::{Body, Event, Outbox, To, Token, Transmit};
use crate::protocol::acceptor::{Acceptor, SnapshotLease};
use crate::protocol::proposer::{Env, Proposer, Renewal};
use crate::protocol::record::{Ceilings, Record};
use crate::queueing::hints;
use crate::queueing::queue::Waiter;
use crate::queueing::waiting::Freed;
use crate::rules::Rule;
use crate::{
    Ballot, CommandError, Config, Holder, Instant, Label, Lasts, MemberSet, Message, Name, NodeId,
    Refusal, Reply, Request, Tenure, Ttl,
};

/// How a node starts (protocol section 6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Start {
    /// The cell is new, so no lease can be live: there is no quarantine.
    NewCell {
        /// Ballots begin above this counter.
        counter: u64,
        /// Whether there is a disk for the stable record.
        disk: bool,
    },
    /// R3: after a crash, with an intact record.
    Crash(Record),
    /// R5, R6: without a record; only a bound on the leases that may be live is known.
    NoRecord {
        /// Ballots begin above this counter: the wall clock in ms << 10.
        counter: u64,
        /// The longest ttl of these leases: M, or an older and longer M.
        longest: Ttl,
        /// Whether there is a disk for the stable record.
        disk: bool,
    },
}

/// A request for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Acquire<'a> {
    /// Comes back in the event that answers.
    pub token: Token,
    /// The name to lease.
    pub name: Name<'a>,
    /// The client's text.
    pub holder: Holder<'a>,
    /// How long others are excluded.
    pub ttl: Duration,
    /// How long to wait while another client holds the name; zero for not at all.
    pub wait: Duration,
}

/// A request to prolong a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Renew<'a> {
    /// Comes back in the event that answers.
    pub token: Token,
    /// The leased name.
    pub name: Name<'a>,
    /// The holder's text, for acceptors that lost it; [`Holder::NONE`] for the text stored here.
    pub holder: Holder<'a>,
    /// The tenure that was granted to the client (P7).
    pub tenure: Tenure,
    /// How long others are excluded from now on.
    pub ttl: Duration,
}

/// Borrows the proposer's environment field by field, so that the proposer itself stays free.
macro_rules! env {
    ($shard:expr) => {
        $crate::protocol::proposer::Env {
            config: &$shard.config,
            ceilings: &mut $shard.ceilings,
            out: &mut $shard.out,
            learners: &$shard.learners,
            watched: $shard.watched,
        }
    };
}

pub(crate) use env;

/// The acceptor and the proposer of some names of one node.
#[derive(Clone, Debug)]
pub struct Shard {
    pub(crate) config: Config,
    /// This node as a set of one; `None` if it is not a member.
    pub(crate) own: Option<MemberSet>,
    /// `None` in a node that only proposes.
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) proposer: Proposer,
    pub(crate) ceilings: Ceilings,
    pub(crate) out: Outbox,
    pub(crate) learners: Vec<NodeId>,
    /// R1, R3: the floor and the end of the quarantine of this start, for a node that becomes a
    /// member later (C8). A node that has never voted has no floor.
    pub(crate) started: (Ballot, Instant),
    pub(crate) watched: bool,
    /// Requests that wait for a higher ceiling on disk.
    pub(crate) deferred: VecDeque<(NodeId, Body)>,
    pub(crate) drops: [u64; Refusal::ALL.len()],
}

impl Shard {
    /// Starts a shard. The settings must have passed [`Config::check`].
    #[must_use]
    pub fn start(config: Config, now: Instant, start: Start) -> Self {
        let (counter, ceilings, longest) = match start {
            Start::NewCell { counter, disk } => {
                (counter, Self::ceilings(&config, now, disk, counter, None), None)
            }
            Start::Crash(record) => {
                let ceilings = Ceilings::stable(config.rules, now, record);
                (record.ballot_ceiling, ceilings, record.lease_ceiling)
            }
            Start::NoRecord { counter, longest, disk } => {
                let ceilings = Self::ceilings(&config, now, disk, counter, Some(longest));
                (counter, ceilings, Some(longest))
            }
        };
        let longest = longest.map_or(Duration::ZERO, Ttl::as_duration);
        let drift = config.cell.drift().with_rules(config.rules);
        let over_at = now.after(drift.quarantine_span(longest));
        let has_forgotten = matches!(start, Start::NoRecord { .. });
        let asks_first = config.asks_first;
        let mut shard = Self::new(config, counter, ceilings, over_at, has_forgotten);
        if asks_first {
            shard.proposer.hold_ballots(Instant::MAX);
            shard.proposer.draw_first_ballot();
        } else if has_forgotten {
            shard.proposer.hold_ballots(over_at);
        }
        if matches!(start, Start::NewCell { .. }) {
            shard.started.0 = Ballot::ZERO;
        }
        shard
    }

    /// R4: starts after a clean stop, with its snapshot. *Before* this call, the caller has deleted
    /// the snapshot and synced its folder, so that it cannot be used again.
    pub fn start_from_snapshot<'a>(
        config: Config,
        now: Instant,
        record: Record,
        leases: impl IntoIterator<Item = SnapshotLease<'a>>,
    ) -> Self {
        let ceilings = Ceilings::stable(config.rules, now, record);
        let mut shard = Self::new(config, record.ballot_ceiling, ceilings, now, false);
        if let Some(acceptor) = &mut shard.acceptor {
            for lease in leases {
                acceptor.restore(&shard.config, now, lease);
            }
        }
        shard
    }

    fn ceilings(
        config: &Config,
        now: Instant,
        disk: bool,
        counter: u64,
        longest: Option<Ttl>,
    ) -> Ceilings {
        if disk {
            let record = Record { ballot_ceiling: counter, lease_ceiling: longest };
            Ceilings::stable(config.rules, now, record)
        } else {
            Ceilings::none(now)
        }
    }

    fn new(
        mut config: Config,
        counter: u64,
        ceilings: Ceilings,
        quarantine_until: Instant,
        has_forgotten: bool,
    ) -> Self {
        config.cell = config.cell.with_rules(config.rules);
        let counter = counter.min(Ballot::COUNTER_LIMIT);
        let floor = if config.rules.on(Rule::FloorStartsAtCeiling) {
            Ballot::above_counter(counter)
        } else {
            Ballot::ZERO
        };
        let own = config.cell.member(config.node).filter(|_| config.knows_members);
        let acceptor = Acceptor::new(&config, floor, quarantine_until, has_forgotten);
        let acceptor = own.is_some().then_some(acceptor);
        let counter = if config.rules.on(Rule::CounterStartsAtCeiling) { counter } else { 0 };
        let proposer = Proposer::new(config.seed, counter);
        let mut shard = Self {
            config,
            own,
            acceptor,
            proposer,
            ceilings,
            out: Outbox::default(),
            learners: Vec::new(),
            started: (floor, quarantine_until),
            watched: false,
            deferred: VecDeque::new(),
            drops: [0; Refusal::ALL.len()],
        };
        // The first block of ballots is reserved before the first request.
        shard.request_write();
        shard
    }

    /// R4: stops answering for good and returns the live leases. `None` for a node that only
    /// proposes, and in quarantine.
    #[must_use]
    pub fn stop(self, now: Instant) -> Option<Snapshot> {
        let allowed = !self.config.rules.on(Rule::NoSnapshotFromQuarantine);
        let (acceptor, epoch) = (self.acceptor?, self.config.cell.epoch());
        (allowed || !acceptor.is_quarantined(now)).then_some(Snapshot { acceptor, now, epoch })
    }

    /// Requests a lease. The answer is [`Event::Granted`], [`Event::Denied`] or
    /// [`Event::NoQuorum`].
    ///
    /// # Errors
    /// When the ttl is out of bounds or the shard is full; then nothing was changed.
    pub fn acquire(&mut self, now: Instant, acquire: Acquire<'_>) -> Result<(), CommandError> {
        self.acquire_for(now, acquire, None)
    }

    /// `lasts` is set for a durable lease (K9).
    #[inline]
    pub(crate) fn acquire_for(
        &mut self,
        now: Instant,
        acquire: Acquire<'_>,
        lasts: Option<Lasts>,
    ) -> Result<(), CommandError> {
        let Acquire { token, name, holder, ttl, wait } = acquire;
        let ttl = self.config.cell.ttl(ttl).map_err(CommandError::Ttl)?;
        self.room_for_a_round()?;
        if self.waiters() >= self.config.limits.waiters_max {
            return Err(CommandError::TooManyWaiters(self.config.limits.waiters_max));
        }
        let reserved_until = self.reserved_until(now, name);
        self.with_proposer(now, |proposer, env| {
            let waiter = Waiter {
                token,
                label: Label::new(name, holder),
                ttl,
                lasts,
                asked_at: now,
                wait_ends_at: now.after(wait),
                deadline: proposer.deadline(env.config, now, wait, ttl),
            };
            proposer.acquire(env, now, waiter, reserved_until);
        });
        Ok(())
    }

    /// P8: the client of an acquire is gone. Returns whether the request was still open. If not, it
    /// was answered, and the caller must release a lease that was granted.
    pub fn abandon(&mut self, now: Instant, name: Name<'_>, token: Token) -> bool {
        self.with_proposer(now, |proposer, env| proposer.abandon(env, now, name, token))
    }

    /// P5, P7: prolongs a tenure that was granted to the client, through any node. The answer is
    /// [`Event::Renewed`], [`Event::NotHeld`] or [`Event::NoQuorum`].
    ///
    /// # Errors
    /// When the ttl is out of bounds or the shard is full; then nothing was changed.
    pub fn renew(&mut self, now: Instant, renew: Renew<'_>) -> Result<(), CommandError> {
        let Renew { token, name, holder, tenure, ttl } = renew;
        let ttl = match (self.config.cell.ttl(ttl), self.config.rules.on(Rule::RenewTtlIsBounded)) {
            (Ok(ttl), _) => ttl,
            (Err(_), false) => Ttl::from_duration(ttl).unwrap_or(Ttl::MAX),
            (Err(error), true) => return Err(CommandError::Ttl(error)),
        };
        self.room_for_a_round()?;
        let label = self.known_label(now, name, holder, tenure);
        self.with_proposer(now, |proposer, env| {
            let deadline = proposer.deadline(env.config, now, Duration::ZERO, ttl);
            let renewal = Renewal { token, label, deadline, resend_at: now };
            proposer.renew(env, now, renewal, tenure, ttl);
        });
        Ok(())
    }

    /// The name with the holder text that the client gave, or else with the one stored here.
    fn known_label(&self, now: Instant, name: Name<'_>, holder: Holder<'_>, t: Tenure) -> Label {
        if holder == Holder::NONE
            && let Some(table) = self.acceptor.as_ref().map(Acceptor::table)
            && let Some(stored) = table.find(name).map(|slot| table.entry(slot))
            && stored.register.live(now).is_some_and(|live| live.tenure == t)
        {
            return stored.label.clone();
        }
        Label::new(name, holder)
    }

    /// P6: ends a tenure, through any node. The holder has dropped its belief already. The answer
    /// is [`Event::Released`], once a majority confirmed and at the latest after `patience`. The
    /// Release is repeated until every acceptor has confirmed, or the lease is over.
    ///
    /// # Errors
    /// When the shard is full; then nothing was changed.
    pub fn release(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
        tenure: Tenure,
        patience: Duration,
    ) -> Result<(), CommandError> {
        self.room_for_a_round()?;
        let answer_by = now.after(patience.min(self.config.cell.max_lease().as_duration()));
        let label = Label::new(name, Holder::NONE);
        let frees = self.is_waited_for(name)
            && self.live_tenure(now, name).is_none_or(|live| live == tenure);
        let turns = if frees { self.turns(now, name, self.config.node) } else { Vec::new() };
        let nodes_before = self.nodes_before(&turns);
        self.with_proposer(now, |proposer, env| {
            proposer.release(env, now, token, label, tenure, answer_by);
            if turns.is_empty() {
                env.out.send_majority_first(tenure);
            }
            if frees {
                let freed = Freed { released_here: true, nodes_before, is_turn: false };
                proposer.on_freed(env, now, name, freed);
            }
        });
        self.send_freed(name, &turns);
        Ok(())
    }

    /// P10: asks which live lease of a name a majority stores. The answer is [`Event::Inspected`]
    /// or [`Event::NoQuorum`].
    ///
    /// # Errors
    /// When the shard is full; then nothing was changed.
    pub fn inspect(
        &mut self,
        now: Instant,
        token: Token,
        name: Name<'_>,
    ) -> Result<(), CommandError> {
        self.room_for_a_round()?;
        let label = Label::new(name, Holder::NONE);
        self.with_proposer(now, |proposer, env| proposer.inspect(env, now, token, label));
        Ok(())
    }

    pub(crate) fn room_for_a_round(&self) -> Result<(), CommandError> {
        let max = self.config.limits.rounds_max;
        if self.proposer.in_flight() < max { Ok(()) } else { Err(CommandError::TooManyRounds(max)) }
    }

    /// Handles a message from a peer.
    ///
    /// # Errors
    /// When the message was dropped; then nothing was changed. A stale or duplicated message is
    /// normal input, not an error.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: NodeId,
        message: Message<'_>,
    ) -> Result<(), Refusal> {
        let outcome = match &message {
            Message::Request(request) => self.handle_request(now, from, request),
            Message::Reply(reply) => self.handle_reply(now, from, reply),
            Message::Durable(message) => self.handle_durable(now, from, message),
            Message::Hint(hint) => {
                self.handle_hint(now, *hint);
                Ok(())
            }
        };
        if let Err(refusal) = outcome {
            self.drops[refusal as usize] += 1;
        }
        outcome
    }

    fn handle_request(
        &mut self,
        now: Instant,
        from: NodeId,
        request: &Request<'_>,
    ) -> Result<(), Refusal> {
        let refused = match self.ask_acceptor(now, from, request) {
            Ok(None) => Ok(()),
            Ok(Some(reply)) => {
                self.out.send(To::Node(from), reply);
                Ok(())
            }
            Err(refusal) => Err(refusal),
        };
        // Requests wait also at a node that does not vote yet.
        match *request {
            Request::Release { name, tenure, id } => self.note_freed(now, from, name, (tenure, id)),
            Request::Propose { name, .. } => self.note_taken(now, name),
            Request::Prepare { .. }
            | Request::Renew { .. }
            | Request::Heal { .. }
            | Request::Inspect { .. } => {}
        }
        refused
    }

    /// The acceptor's answer; `None` for a Heal in a stable epoch, and while a request waits for
    /// the disk.
    fn ask_acceptor(
        &mut self,
        now: Instant,
        from: NodeId,
        request: &Request<'_>,
    ) -> Result<Option<Body>, Refusal> {
        if self.acceptor.as_ref().is_some_and(Acceptor::has_forgotten) {
            self.learn_floor(now);
        }
        if !self.answers(request) {
            return Err(Refusal::NotAcceptor);
        }
        let Some(acceptor) = &mut self.acceptor else { return Err(Refusal::NotAcceptor) };
        let ceilings = &mut self.ceilings;
        let bound = self.proposer.counter_refused_above();
        let admitted = acceptor.admit(&self.config, ceilings, bound, now, from, request);
        let answer = match admitted {
            Ok(()) => acceptor.answer(&self.config, ceilings, now, from, request),
            Err(Refusal::RecordBehind) if self.deferred.len() < self.config.limits.deferred_max => {
                self.deferred.push_back((from, Body::copied(*request)));
                Ok(None)
            }
            Err(refusal) => Err(refusal),
        };
        #[expect(clippy::question_mark, reason = "`?` would move the answer, which is large")]
        if answer.is_err() {
            return answer;
        }
        if let Some(ballot) = request.ballot() {
            self.proposer.observe(ballot.counter());
        }
        if let Request::Release { tenure, .. } = *request {
            // A6: a request that waits for the disk must not store the tenure later.
            self.deferred.retain(|(_, body)| body.stores() != Some(tenure));
        }
        self.request_write();
        if self.watched
            && let Ok(Some(answer)) = &answer
        {
            self.watch_request(now, from, request, answer);
        }
        answer
    }

    fn handle_reply(
        &mut self,
        now: Instant,
        from: NodeId,
        reply: &Reply<'_>,
    ) -> Result<(), Refusal> {
        let Some(member) = self.config.cell.member(from) else { return Err(Refusal::NotMember) };
        if self.config.cell.is_joint() && !self.counts_in_joint_epoch(member, reply) {
            return Err(Refusal::NotMember);
        }
        let bound = self.proposer.counter_refused_above();
        if reply.promised().is_some_and(|promised| promised.counter() > bound) {
            return Err(Refusal::BallotExhausting);
        }
        self.with_proposer(now, |proposer, env| proposer.handle_reply(env, now, member, reply));
        Ok(())
    }

    /// Acts on the wake-ups that are due. A late call costs time, never safety.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.with_proposer(now, |proposer, env| proposer.handle_timeout(env, now));
        self.look_after_registers(now);
    }

    /// R5: an acceptor without a record has lost its promises. When its quarantine is over, it
    /// promises above every counter that it has heard of, so that no tenure granted from then on is
    /// below one that was granted before.
    #[cold]
    fn learn_floor(&mut self, now: Instant) {
        if let Some(acceptor) = &mut self.acceptor
            && acceptor.take_forgotten(now)
            && self.config.rules.on(Rule::RecordlessFloorIsLearnt)
        {
            acceptor.raise_floor(Ballot::above_counter(self.proposer.counter()));
        }
    }

    /// A7, R2: sweeps up to `slots_max` slots and lowers the lease ceiling. Call it regularly.
    pub fn sweep(&mut self, now: Instant, slots_max: u32) {
        self.learn_floor(now);
        if let Some(acceptor) = &mut self.acceptor {
            let expired = hints::expired_hints(self.watched, &mut self.out);
            acceptor.sweep(&self.config, now, slots_max, expired);
            let quarantined = acceptor.is_quarantined(now);
            self.ceilings.advance_window(now, quarantined);
            self.request_write();
        }
    }

    /// A7: reclaims as many names as were added since the last call. Call it between sweeps while
    /// many requests come.
    pub fn keep_up(&mut self, now: Instant, slots_max: u32) {
        if let Some(acceptor) = &mut self.acceptor {
            let expired = hints::expired_hints(self.watched, &mut self.out);
            acceptor.sweep_owed(&self.config, now, slots_max, expired);
        }
    }

    /// The record of an [`Event::Persist`] is on disk.
    pub fn record_written(&mut self, now: Instant, record: Record) {
        if !self.ceilings.written(record) {
            return;
        }
        // These go before the next write, which may lower the ceiling again.
        self.answer_deferred(now);
        self.request_write();
    }

    /// Answers the requests that waited for the disk, unless they have to wait on.
    pub(crate) fn answer_deferred(&mut self, now: Instant) {
        for _ in 0..self.deferred.len() {
            let Some((from, body)) = self.deferred.pop_front() else { break };
            if from == self.config.node {
                self.ask_own(now, &body);
                self.with_proposer(now, |_, _| {});
                continue;
            }
            let handled = match body.message() {
                Message::Request(request) => self.handle_request(now, from, &request),
                Message::Durable(message) => self.handle_durable(now, from, &message),
                Message::Reply(_) | Message::Hint(_) => Ok(()),
            };
            if let Err(refusal) = handled {
                self.drops[refusal as usize] += 1;
            }
        }
    }

    /// Runs the proposer. Then this node's own acceptor answers the requests sent to it, in place,
    /// until there are none.
    pub(crate) fn with_proposer<T>(
        &mut self,
        now: Instant,
        run: impl FnOnce(&mut Proposer, &mut Env<'_>) -> T,
    ) -> T {
        let result = run(&mut self.proposer, &mut env!(self));
        if let Some(own) = self.own {
            while let Some((place, body)) = self.out.take_for(own) {
                let agrees = self.ask_own(now, &body);
                self.out.put_back(place, body, agrees);
            }
        }
        self.request_write();
        result
    }

    /// Returns whether this node's own acceptor did as it was asked.
    fn ask_own(&mut self, now: Instant, body: &Body) -> bool {
        let Some(own) = self.own else { return false };
        let request = match body.message() {
            Message::Request(request) => request,
            Message::Durable(message) => return self.ask_own_register(now, own, &message),
            Message::Reply(_) | Message::Hint(_) => return false,
        };
        let request = &request;
        match self.ask_acceptor(now, self.config.node, request).as_ref().map(Option::as_ref) {
            Ok(Some(body)) => match body.message() {
                Message::Reply(reply) => {
                    self.proposer.handle_reply(&mut env!(self), now, own, &reply);
                    return !reply.is_refusal();
                }
                Message::Durable(message) => {
                    self.proposer.on_durable(&mut env!(self), now, own, &message);
                }
                Message::Request(_) | Message::Hint(_) => {}
            },
            Ok(None) => {}
            Err(refusal) => self.drops[*refusal as usize] += 1,
        }
        false
    }

    pub(crate) fn request_write(&mut self) {
        // R1: well ahead of need, also if a peer's counter is a whole block ahead.
        self.ceilings.admits_counter(self.proposer.counter() + 1);
        if let Some(record) = self.ceilings.poll_write() {
            self.out.persist(record);
        }
    }

    /// The next message to send to its receivers.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.out.pop_transmit()
    }

    /// The next event to act on.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.out.pop_event()
    }

    /// When to call [`Self::handle_timeout`]. The wake-up may be stale.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let acceptor = self.acceptor.as_ref();
        let registers = acceptor.map_or(Instant::MAX, |it| it.registers.next_at());
        let wake_at = self.proposer.next_wake_at().min(registers);
        (wake_at < Instant::MAX).then_some(wake_at)
    }

    /// Sets whether grants, releases and expiries at this node become [`Event::HeldHint`],
    /// [`Event::FreedHint`] and [`Event::ExpiredHint`].
    pub fn set_watched(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// The list of members that this node started with is that of a cell without epochs, as its
    /// members say.
    pub fn members_are_fixed(&mut self) {
        self.config.knows_members = true;
    }

    /// Sets the nodes without an acceptor that hear of grants and releases of this node.
    pub fn set_learners(&mut self, learners: Vec<NodeId>) {
        self.learners = learners;
    }

    /// Sets the acceptors that the network can reach; at the start, all. A hint: rounds do not wait
    /// for the answers of the others.
    pub fn set_reachable(&mut self, now: Instant, reachable: MemberSet) {
        let silent = self.config.cell.everyone().without(reachable);
        self.with_proposer(now, |proposer, env| proposer.set_silent(env, now, silent));
    }

    /// A peer is connected again, and messages from and to it were lost. Requests that the
    /// acceptors in `back` have not answered are repeated, and all waiters retry soon, because they
    /// may have missed a Release. A node that only proposes repeats its own Releases: without a
    /// member in `back`, nothing is to be done. A hint: without it, waiters retry after a second or
    /// more.
    pub fn handle_reconnect(&mut self, now: Instant, back: MemberSet) {
        if back.is_empty() {
            return;
        }
        self.with_proposer(now, |proposer, env| {
            proposer.resend(env, now, back);
            proposer.retry_waiters(env, now);
        });
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.registers.check_all(&self.config, now, false);
        }
    }
}
