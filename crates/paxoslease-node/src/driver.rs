//! One shard of a node, without its thread: the protocol's state, peers, guards and pending
//! requests. Bytes, commands and the time go in; bytes, answers and wake-ups come out.
//!
//! The event loop drives it with real sockets and the real clock. A simulated world drives the same
//! code with its own. The driver reads no clock and never blocks.

mod callers;
mod counters;
mod lists;
mod members;
mod peers;
mod requests;
mod semaphores;
mod sockets;
mod status;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::LazyCell;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

#[cfg(not(feature = "trace"))]
use paxoslease_core::Shard;
use paxoslease_core::{
    BallotProblem, DurableWrite, Instant, MemberSet, Message, Name, NodeId, Record, Refusal,
    Snapshot,
};
use paxoslease_holder::Change;
use paxoslease_holder::transport::{Due, Guard, Guards, Subscription};
#[cfg(feature = "trace")]
use paxoslease_trace::TracedShard as Shard;
use paxoslease_wire::{FrameKind, FrameReader, split_frame};

use callers::Callers;
use counters::{Counters, DropReason};
use lists::Lists;
use peers::{Greeted, IS_STOPPING, Who, kind_of, refusal_of};

#[cfg(feature = "simulation")]
pub(crate) use lists::{SLOTS_PER_TURN as LIST_SLOTS_PER_TURN, WAITING_MAX as LISTS_WAITING_MAX};
use members::Decisions;
pub(crate) use members::ShardView;
pub(crate) use peers::{Identity, PeerTimeouts, Peers};
use semaphores::Semaphores;
pub(crate) use sockets::Sockets;
pub use sockets::{ConnId, Connections};

use crate::board::Board;
use crate::clock::CounterBound;
use crate::command::Command;
use crate::log_throttle::LogThrottle;
use crate::request::{Answer, Hint, ReplyTo};

/// How often entries are swept without load, and how often a node without entries looks.
const HOUSEKEEPING: Duration = Duration::from_millis(50);
const HOUSEKEEPING_IDLE: Duration = Duration::from_millis(500);
/// The most entries that one sweep looks at.
const SWEPT_MAX: u32 = 4096;
/// Under load, a sweep follows after this many messages: names may have come and gone.
const MESSAGES_PER_SWEEP: u32 = 1024;
const PUBLISHED_EVERY: Duration = Duration::from_millis(500);
/// More than a greeting takes. A connection that sends more before it was greeted is closed, so
/// that its buffer stays small.
const GREETING_LEN_MAX: usize = 4096;
/// How long a node that stops waits for the confirmation of its last releases.
const FAREWELL_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Driver {
    shard: Shard,
    started_at: Instant,
    counter_bound: CounterBound,
    /// Limits log lines about peers that would use up the ballots.
    alarms: LogThrottle,
    /// Limits log lines about acquires that wait for a majority.
    waits: LogThrottle,
    /// The problem that was logged last.
    ballot_problem: Option<BallotProblem>,
    peers: Peers,
    guards: Guards,
    callers: Callers,
    subscriptions: Vec<Subscription>,
    /// Callers that wait until a majority can be reached.
    ready_waiters: Vec<oneshot::Sender<()>>,
    /// Peers that connected again. Messages on the old connection may be lost.
    reconnected: Vec<NodeId>,
    counters: Counters,
    /// Records for the disk.
    records: Vec<Record>,
    /// Changes of registers for the disk, in order.
    durable_writes: Vec<(u64, DurableWrite)>,
    /// Tasks to wake once everything is sent.
    wakers: Vec<Waker>,
    messages_since_sweep: u32,
    housekeeping_at: Instant,
    published_at: Instant,
    publish_at: Instant,
    quarantined: bool,
    longest_turn: Duration,
    /// Set by [`Command::Stop`]: the node no longer waits for its last releases then.
    leaving_until: Option<Instant>,
    /// Guards whose leases a node that stops has not released yet.
    handing_over: Vec<Guard>,
    lists: Lists,
    semaphores: Semaphores,
    /// Answers for front-ends and other threads.
    answers: Vec<(ReplyTo, Answer)>,
    /// Shards whose front-ends want hints, and the new hints.
    hinted: Vec<u16>,
    hints: Vec<Hint>,
    /// In the first shard of a node whose members can change.
    decisions: Option<Decisions>,
    /// What the first shard knows of this one.
    told_first_shard: Option<ShardView>,
    /// What goes to other shards of this node.
    posts: Vec<(u16, Command)>,
    board: Arc<Board>,
}

impl Driver {
    pub(crate) fn new(
        mut shard: Shard,
        counter_bound: CounterBound,
        peers: Peers,
        seed: u64,
        now: Instant,
        board: Arc<Board>,
    ) -> Self {
        let quarantined = !shard.quarantine_remaining(now).is_zero();
        shard.set_counter_bound(counter_bound.at(now));
        let mut driver = Self {
            shard,
            started_at: now,
            counter_bound,
            alarms: LogThrottle::default(),
            waits: LogThrottle::default(),
            ballot_problem: None,
            peers,
            guards: Guards::new(seed, now),
            callers: Callers::default(),
            subscriptions: Vec::new(),
            ready_waiters: Vec::new(),
            reconnected: Vec::new(),
            counters: Counters::default(),
            records: Vec::new(),
            durable_writes: Vec::new(),
            wakers: Vec::new(),
            messages_since_sweep: 0,
            housekeeping_at: now,
            published_at: now,
            publish_at: now,
            quarantined,
            longest_turn: Duration::ZERO,
            leaving_until: None,
            handing_over: Vec::new(),
            lists: Lists::default(),
            semaphores: Semaphores::default(),
            answers: Vec::new(),
            hinted: Vec::new(),
            hints: Vec::new(),
            decisions: None,
            told_first_shard: None,
            posts: Vec::new(),
            board,
        };
        driver.act(now);
        driver.show(now);
        driver
    }

    /// A node connected to this one.
    pub(crate) fn accepted(&mut self, sockets: &mut impl Sockets, now: Instant, conn: ConnId) {
        if self.peers.accepted(sockets, now, conn) {
            self.counters.dropped(DropReason::Refused, 1);
        }
    }

    /// A connection that this node dialled is established.
    pub(crate) fn connected(&mut self, sockets: &mut impl Sockets, now: Instant, conn: ConnId) {
        self.peers.connected(sockets, now, conn);
    }

    /// A connection broke.
    pub(crate) fn closed(&mut self, now: Instant, conn: ConnId, why: &str) {
        if self.peers.who(conn) == Who::Unidentified {
            // It closed before it identified itself, or failed its TLS handshake.
            self.counters.dropped(DropReason::Refused, 1);
        }
        self.peers.closed(now, conn, why);
    }

    /// A connection has room again.
    pub(crate) fn writable(&mut self, sockets: &mut impl Sockets, conn: ConnId) {
        self.peers.writable(sockets, conn, self.shard.counter());
    }

    /// Bytes arrived; `now` was read after that. Returns how many were consumed. The rest is the
    /// beginning of a frame, which the caller shows again with the bytes that follow.
    pub(crate) fn received(
        &mut self,
        sockets: &mut impl Sockets,
        now: Instant,
        conn: ConnId,
        bytes: &[u8],
    ) -> usize {
        // Also the beginning of a long frame is a sign of life.
        self.peers.heard(conn, now);
        let mut rest = bytes;
        loop {
            let (frame, after) = match split_frame(rest) {
                Ok(Some(split)) => split,
                Ok(None) if rest.len() > GREETING_LEN_MAX && self.peers.speaker(conn).is_none() => {
                    self.hang_up(sockets, now, conn, "it sent more than a greeting");
                    return bytes.len();
                }
                Ok(None) => return bytes.len() - rest.len(),
                Err(error) => {
                    let why = format!("it sent an invalid frame: {error}");
                    self.hang_up(sockets, now, conn, &why);
                    return bytes.len();
                }
            };
            let outcome = match self.peers.speaker(conn) {
                Some(from) => self.listen(now, conn, from, frame),
                None if self.peers.who(conn) == Who::Closed => return bytes.len(),
                None => {
                    match self.peers.greeted(sockets, now, conn, frame, &mut self.counters) {
                        Greeted::Up => {}
                        Greeted::HandedOver => return bytes.len() - rest.len(),
                        Greeted::Closed => return bytes.len(),
                    }
                    self.met(now, conn)
                }
            };
            if let Err(why) = outcome {
                if why == IS_STOPPING {
                    self.peers.hang_up(sockets, now, conn, &why);
                    return bytes.len();
                }
                self.peers.say_farewell(sockets, conn, &why, self.shard.counter());
                self.hang_up(sockets, now, conn, &why);
                return bytes.len();
            }
            rest = after;
        }
    }

    /// A peer has greeted. Its acceptor promises at least the counter that its node started with,
    /// and would reject the first ballots of a node that started earlier and does not know that.
    fn met(&mut self, now: Instant, conn: ConnId) -> Result<(), String> {
        let Some((node, boot)) = self.peers.speaker(conn).zip(self.peers.boot_of(conn)) else {
            return Ok(());
        };
        self.reconnected.push(node);
        self.observe(now, node, boot)?;
        let epoch = self.peers.epoch_of(node);
        self.heard_epoch(now, node, epoch);
        self.met_decider(now);
        Ok(())
    }

    fn hang_up(&mut self, sockets: &mut impl Sockets, now: Instant, conn: ConnId, why: &str) {
        self.counters.dropped(DropReason::Malformed, 1);
        self.peers.hang_up(sockets, now, conn, why);
    }

    /// A frame from a peer that was greeted. An error is the reason to close the connection.
    fn listen(
        &mut self,
        now: Instant,
        conn: ConnId,
        from: NodeId,
        frame: &[u8],
    ) -> Result<(), String> {
        match kind_of(frame)? {
            FrameKind::Messages => {}
            FrameKind::Ping | FrameKind::Pong => {
                let own_counter = self.shard.counter();
                if let Some(told) = self.peers.heartbeat(conn, now, frame, own_counter) {
                    self.observe(now, from, told.counter)?;
                    self.shard.heard_counter(from, told.remembers);
                    self.heard_epoch(now, from, told.epoch);
                    if told.has_caught_up {
                        self.reconnected.push(from);
                    }
                }
                return Ok(());
            }
            FrameKind::Hello => return Err("it greeted twice".to_owned()),
            FrameKind::Membership => return self.listen_to_decider(now, from, frame),
            // The peer stops; or it greeted before it had read our greeting, and refuses us now.
            FrameKind::Farewell => return Err(refusal_of(frame)),
        }
        let messages = FrameReader::new(frame).map_err(|error| format!("bad frame: {error}"))?;
        let header = messages.header();
        if header.sender != from {
            return Err(format!("it is node {from} and sent as node {}", header.sender));
        }
        self.observe(now, from, header.counter)?;
        if self.shard.admit_epoch(header.epoch).is_err() {
            return Ok(());
        }
        self.shard.prefetch(messages.clone().filter_map(|message| match message {
            Ok(Message::Request(request)) => Some(request.name().as_bytes()),
            _ => None,
        }));
        for message in messages {
            let message = message.map_err(|error| format!("bad message: {error}"))?;
            self.counters.received(&message);
            self.messages_since_sweep += 1;
            if matches!(&message, Message::Reply(reply) if reply.is_refusal()) {
                self.peers.hold_nothing_back();
            }
            let outcome = self.shard.handle_message(now, from, message);
            if outcome == Err(Refusal::BallotExhausting) {
                return Err(self.alarm(now, from));
            }
        }
        Ok(())
    }

    /// A peer's counter, from a heartbeat or the header of a frame.
    fn observe(&mut self, now: Instant, from: NodeId, counter: u64) -> Result<(), String> {
        self.shard.observe_counter(counter).map_err(|_| self.alarm(now, from))
    }

    /// A1: a peer's counter is beyond the bound. Logs that, and returns the reason to disconnect.
    fn alarm(&mut self, now: Instant, from: NodeId) -> String {
        let why = "it sent a ballot counter that is decades ahead of our wall clock";
        if self.alarms.again(now).is_some() {
            let bound = self.shard.counter_bound();
            tracing::error!(
                peer = %from,
                bound,
                "a peer sent a ballot counter beyond the bound and was disconnected: it is broken \
                 or hostile, or the wall clock there or here is wrong by decades. Correct the \
                 clock, or replace the cell's authority; see \"Ballots\" in docs/operating.md"
            );
        }
        why.to_owned()
    }

    pub(crate) fn command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Request(from, request) => self.request(now, from, request),
            Command::Serve(request) => self.serve(now, request),
            Command::Watch(subscription) => {
                self.subscriptions.retain(Subscription::is_open);
                self.subscriptions.push(subscription);
                self.set_watched();
            }
            Command::Status(reply) => {
                // The board is never behind a status that a caller has seen.
                self.show(now);
                // The caller may have left.
                let _gone = reply.send(self.status(now));
            }
            Command::Ready(reply) => {
                self.ready_waiters.retain(|reply| !reply.is_closed());
                self.ready_waiters.push(reply);
                self.tell_ready_waiters(now);
            }
            Command::RecordWritten(record) => {
                self.shard.record_written(now, record);
                self.tell_ready_waiters(now);
            }
            Command::DurableWritten(sequence) => self.shard.durable_written(now, sequence),
            Command::DurableRoom(has_room) => self.shard.set_durable_room(has_room),
            Command::ConfigurationWritten => self.configuration_written(now),
            Command::Adopt(configuration) => {
                self.adopt(now, &configuration);
                self.tell_first_shard(now);
            }
            Command::ShardChanged(shard, view) => self.shard_changed_over(now, shard, view),
            Command::Stop => self.leave(now),
        }
    }

    /// Does everything that is due.
    pub(crate) fn tick(&mut self, sockets: &mut impl Sockets, now: Instant) {
        self.shard.handle_timeout(now);
        let quarantine = self.shard.quarantine_remaining(now);
        let disconnected = self.peers.tick(sockets, now, self.shard.counter(), quarantine);
        self.counters.dropped(DropReason::Refused, disconnected);
        self.tick_decisions(now);
        while let Some((guard, due)) = self.guards.due(now) {
            match due {
                Due::Renew => self.renew(now, guard),
                // The core repeats a request that a member does not answer.
                Due::Late { .. } => {}
                Due::Lose => self.lose(now, guard),
            }
        }
        let is_idle = self.shard.entries() == 0 && !self.quarantined;
        if !is_idle {
            self.housekeeping_at = self.housekeeping_at.min(now.after(HOUSEKEEPING));
        }
        if now >= self.housekeeping_at {
            self.shard.sweep(now, SWEPT_MAX);
            self.messages_since_sweep = 0;
            let pause = if is_idle { HOUSEKEEPING_IDLE } else { HOUSEKEEPING };
            self.housekeeping_at = now.after(pause);
            self.shard.set_counter_bound(self.counter_bound.at(now));
            self.note_quarantine(now);
            self.note_ballots(now);
            self.note_round_trips();
            self.choose_prompt(now);
            if let Some(waits_for) = self.next_wait_to_log(now) {
                tracing::info!("an acquire of this process waits for a majority: {waits_for}");
            }
        } else if self.messages_since_sweep >= MESSAGES_PER_SWEEP {
            self.shard.keep_up(now, SWEPT_MAX);
            self.messages_since_sweep = 0;
        }
        if now >= self.publish_at {
            let last_at = std::mem::replace(&mut self.published_at, now);
            self.counters.turn_rates(now.since(last_at));
            self.publish_at = now.after(PUBLISHED_EVERY);
            self.publish(now);
            self.tell_news(now);
        }
        if self.peers.take_changed() {
            self.note_up(now);
        }
        self.lists.turn(now, &self.shard, self.peers.identity.shard, &mut self.answers);
    }

    /// Sends to peers, one write per connection. Call [`Self::act`] before.
    pub(crate) fn flush(&mut self, sockets: &mut impl Sockets, now: Instant) {
        while let Some(transmit) = self.shard.poll_transmit() {
            let counter = self.shard.counter();
            self.peers.push(now, &transmit, counter, &mut self.counters);
        }
        if self.is_leaving() {
            self.peers.hold_nothing_back();
        }
        self.peers.flush(sockets, now, self.shard.counter());
    }

    /// Tells subscribers of a change. It is made once if there are any, however many there are.
    fn announce(&mut self, name: Name<'_>, change: impl FnOnce() -> Change) {
        let change = LazyCell::new(|| Arc::new(change()));
        self.subscriptions.retain(Subscription::is_open);
        let told = self.subscriptions.iter().filter(|one| one.wants(name));
        self.counters.missed(told.filter(|one| !one.offer(&change)).count() as u64);
        self.set_watched();
    }

    fn set_watched(&mut self) {
        self.shard.set_watched(!self.subscriptions.is_empty() || !self.hinted.is_empty());
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_at(&self) -> Instant {
        let next = [
            self.shard.poll_timeout(),
            self.guards.next_at(),
            Some(self.peers.next_alarm_at),
            Some(self.peers.held_back_until()),
            Some(self.decisions_at()),
            Some(self.housekeeping_at),
            Some(self.publish_at),
            self.leaving_until,
            self.may_hand_over().then_some(Instant::ZERO),
            // Lists go on in the next turn.
            (!self.lists.is_empty()).then_some(Instant::ZERO),
        ];
        next.into_iter().flatten().min().unwrap_or(Instant::MAX)
    }

    pub(crate) fn next_record(&mut self) -> Option<Record> {
        self.records.pop()
    }

    /// The changes of registers since the last call, in order, with their numbers.
    pub(crate) fn take_durable_writes(&mut self) -> Vec<(u64, DurableWrite)> {
        std::mem::take(&mut self.durable_writes)
    }

    pub(crate) fn wakers(&mut self) -> impl Iterator<Item = Waker> + '_ {
        self.wakers.drain(..)
    }

    pub(crate) fn uptime(&self, now: Instant) -> Duration {
        now.since(self.started_at)
    }

    /// Whether a request waits for the answers of peers.
    pub(crate) fn awaits_votes(&self) -> bool {
        self.shard.in_flight() > 0
    }

    /// One turn of the loop took this long.
    pub(crate) fn worked(&mut self, span: Duration) {
        self.longest_turn = self.longest_turn.max(span);
    }

    /// The thread was paused for this long.
    pub(crate) fn paused(&mut self, span: Duration) {
        self.counters.paused();
        tracing::warn!(?span, "this thread was paused; leases may have been lost meanwhile");
    }

    fn note_up(&mut self, now: Instant) {
        self.peers.note_quorum(now);
        if !self.shard.config().knows_members && self.peers.follows_fixed_list() {
            self.shard.members_are_fixed();
        }
        let cell = self.shard.config().cell;
        let learners = self.peers.up().filter(|node| cell.member(*node).is_none()).collect();
        self.shard.set_learners(learners);
        let members = |nodes: &mut dyn Iterator<Item = NodeId>| {
            let places = nodes.filter_map(|node| cell.member(node));
            places.fold(MemberSet::EMPTY, MemberSet::with)
        };
        let reachable = members(&mut self.peers.up().chain([self.peers.identity.node]));
        self.shard.set_reachable(now, reachable);
        let reconnected = members(&mut self.reconnected.drain(..));
        self.shard.handle_reconnect(now, reconnected);
        self.choose_prompt(now);
        self.show(now);
        self.tell_ready_waiters(now);
    }

    fn choose_prompt(&mut self, now: Instant) {
        let is_member = self.shard.config().cell.member(self.peers.identity.node).is_some();
        let votes = is_member && self.shard.quarantine_remaining(now).is_zero();
        self.peers.choose_prompt(now, votes);
    }

    fn note_quarantine(&mut self, now: Instant) {
        if self.quarantined && self.shard.quarantine_remaining(now).is_zero() {
            self.quarantined = false;
            tracing::info!("quarantine is over: this node votes");
            self.show(now);
            self.tell_ready_waiters(now);
        }
    }

    /// Logs when rounds cannot begin any more, and when they can again. The record writer itself
    /// logs that the record is behind.
    fn note_ballots(&mut self, now: Instant) {
        let problem = self.shard.ballot_problem();
        let problem = problem.filter(|problem| *problem != BallotProblem::RecordBehind);
        if std::mem::replace(&mut self.ballot_problem, problem) == problem {
            return;
        }
        match problem {
            Some(problem) => tracing::error!(
                counter = self.shard.counter(),
                "{problem}: this node begins no round, and its clients get NOQUORUM; see \
                 \"Ballots\" in docs/operating.md"
            ),
            None => tracing::info!("this node issues ballots again"),
        }
        self.show(now);
        self.tell_ready_waiters(now);
    }

    fn note_round_trips(&mut self) {
        let cell = self.shard.config().cell;
        let is_member = |node| cell.member(node).is_some();
        if let Some(round_trip) = self.peers.longest_round_trip(is_member) {
            self.shard.set_round_trip(round_trip);
        }
        if let Some(round_trip) = self.peers.longest_round_trip(|_| true) {
            self.shard.set_turn_trip(round_trip);
        }
        if let Some(heard_after) = self.peers.longest_ignorance(is_member) {
            self.shard.set_reclaim_trip(heard_after);
        }
    }

    /// Stops serving: refuses the requests that wait, and releases the leases that are held.
    fn leave(&mut self, now: Instant) {
        if self.leaving_until.is_some() {
            return;
        }
        // Leases that were granted in this very turn are released as well.
        self.act(now);
        self.leaving_until = Some(now.after(FAREWELL_MAX));
        self.refuse_waiting_acquires(now);
        self.lists.refuse(&mut self.answers);
        self.handing_over = self.guards.give_up();
        self.hand_over(now);
    }

    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving_until.is_some()
    }

    /// Whether a node that stops may end now: its releases are confirmed and its clients are told,
    /// or it waited long enough for that.
    pub(crate) fn may_go(&self, now: Instant, clients_done: bool) -> bool {
        self.leaving_until.is_some_and(|until| {
            let nothing_left = clients_done
                && self.handing_over.is_empty()
                && self.callers.is_empty()
                && self.peers.unsent() == 0;
            now >= until || nothing_left
        })
    }

    /// Simulates a crash. Returns the tickets of the guards: their holders go on believing until
    /// their leases end.
    #[cfg(feature = "simulation")]
    pub(crate) fn die(mut self) -> Vec<Arc<paxoslease_holder::transport::Ticket>> {
        self.guards.orphan()
    }

    /// The protocol's state, for checkers.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) const fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Tells all peers that this node stops.
    pub(crate) fn say_farewell(&mut self, sockets: &mut impl Sockets) {
        self.peers.stop(sockets, self.shard.counter());
    }

    /// R4: stops answering, and returns the leases for a snapshot.
    pub(crate) fn stop(mut self, now: Instant) -> Option<Snapshot> {
        self.publish(now);
        self.shard.stop(now)
    }
}
