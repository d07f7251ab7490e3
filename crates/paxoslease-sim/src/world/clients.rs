//! The actions of clients: acquire, renew, release, leave, turn to another node (P5 to P8, T2).

use std::time::Duration;

use paxoslease_core::{Belief, Instant, Lasts, Name, Token, Ttl};

use super::{World, WorldEvent};
use crate::algorithm::{Algorithm, Answer, Command, Process};
use crate::checker::Claim;
use crate::client::{Client, Habits, Pending, State};
use crate::clock::Clock;
use crate::trace::{TraceEvent, TrueTime};
use crate::world::ClientId;

/// The longest time until a node notices that a connection was closed.
const CLOSE_NANOS_MAX: u64 = 20_000_000;
/// Set in the tokens of durable acquires.
pub(super) const DURABLE_ACQUIRE: u64 = 1 << 31;
/// How many renewals in a thousand of a careless client ask for too long a ttl.
const NAIVE_TTL_PERMILLE: u32 = 100;

impl<A: Algorithm> World<A> {
    /// Adds a client for one name. With habits it acts by itself, beginning now.
    pub fn add_client(&mut self, clock: Clock, name: usize, habits: Option<Habits>) -> ClientId {
        let id = self.clients.len() as u32;
        let mut client = Client::new(clock, name, habits);
        client.node = self.client_rng.between(1, self.nodes.len() as u64) as u16;
        self.clients.push(client);
        if let Some(habits) = habits {
            let think = self.client_rng.span(habits.think);
            self.wake_in(id, think);
        }
        ClientId(id)
    }

    fn client(&mut self, id: u32) -> &mut Client {
        &mut self.clients[id as usize]
    }

    fn client_now(&self, id: u32) -> Instant {
        self.clients[id as usize].clock.read(self.now)
    }

    fn wake_in(&mut self, id: u32, span: Duration) {
        let at = self.client_now(id).after(span);
        self.wake_at(id, at);
    }

    fn wake_at(&mut self, id: u32, at: Instant) {
        let at = self.clients[id as usize].clock.first_shows(at).max(self.now);
        self.client(id).wake_at = at;
        self.schedule(at, 0, WorldEvent::Woken { client: id });
    }

    /// Sends a request; the time is read first (T2).
    pub(super) fn ask(&mut self, id: u32, node: u16, command: Command) {
        let (sent_at, sent_at_true) = (self.client_now(id), self.now);
        let client = self.client(id);
        client.asked_count += 1;
        let is_durable = matches!(command, Command::AcquireDurable { .. });
        let kind = if is_durable { DURABLE_ACQUIRE } else { 0 };
        let token = Token(u64::from(id) << 32 | kind | u64::from(client.asked_count));
        client.node = node;
        let name = client.name;
        let fence_before = self.checker.highest_fence(name);
        let pending = Pending { token, command, node, sent_at, sent_at_true, fence_before };
        self.client(id).note(pending);
        self.counts.events += 1;
        let names = &self.setup.names;
        self.tracer.record(self.now, || {
            let what = match command {
                Command::Acquire { .. } => "acquire",
                Command::Renew { .. } => "renew",
                Command::Release { .. } => "release",
                Command::AcquireDurable { .. } => "acquire durable",
                Command::Keep { .. } => "keep",
                Command::ReleaseDurable { .. } => "release durable",
                Command::Abandon => "leave",
            };
            TraceEvent::Asked { client: id, node, text: format!("{what} {}", names[name]) }
        });
        self.send_command(id, node, token, command);
    }

    fn send_command(&mut self, client: u32, node: u16, token: Token, command: Command) {
        self.tracer.hash(&[self.now.0, 9, u64::from(node), token.0]);
        // An operation that is carried out twice is two operations, and the second one may come
        // after a newer one (K10). So its command is sent once.
        let is_operation = matches!(command, Command::AcquireDurable { .. } | Command::Keep { .. });
        let copies_max = if is_operation { 1 } else { usize::MAX };
        let copies = self.setup.client_link.copies(&mut self.rng);
        for delay in copies.into_iter().flatten().take(copies_max) {
            self.schedule_in(delay, node, WorldEvent::Requested { client, token, command });
        }
    }

    /// A node receives a client's command.
    pub(super) fn requested(&mut self, node: u16, client: u32, token: Token, command: Command) {
        let text = self.setup.names[self.clients[client as usize].name].clone();
        let name = Name::new(&text).expect("worlds have valid names");
        self.with(node, |process, now| process.handle_command(now, token, name, command));
    }

    /// A client receives an answer.
    pub(super) fn answered(&mut self, id: u32, token: Token, answer: Answer) {
        if self.client(id).state == State::Gone || self.is_slow(id, token, answer) {
            return;
        }
        let Some(pending) = self.client(id).take(token) else { return };
        let state = self.client(id).state;
        self.client(id).answers += 1;
        let rules = self.algorithm.rules();
        let drift = self.setup.cell.drift().with_rules(rules);
        let ends_at = |waited, ttl| drift.remote_belief_ends_at(pending.sent_at, waited, ttl);
        match (pending.command, answer) {
            (
                Command::Acquire { .. } | Command::AcquireDurable { .. },
                Answer::Granted { tenure, ttl, waited },
            ) => {
                let client = self.client(id);
                client.grants += 1;
                client.stands = matches!(pending.command, Command::AcquireDurable { .. });
                client.is_standing = false;
                let belief = Belief::granted(tenure, ends_at(waited, ttl));
                client.belief = Some(belief.with_rules(rules));
                self.believe(id, &pending);
                self.begin_holding(id);
            }
            (Command::Acquire { .. } | Command::AcquireDurable { .. }, _)
                if state == State::Acquiring =>
            {
                self.idle(id);
            }
            // A renewal that began before an operation gives no belief beyond its end (K10).
            (Command::Renew { .. }, Answer::Renewed { .. }) if self.client(id).stands => {}
            (Command::Renew { .. }, Answer::Renewed { tenure, ttl, .. }) => {
                if let Some(belief) = &mut self.client(id).belief {
                    belief.renewed(tenure, ends_at(Duration::ZERO, ttl));
                }
                self.believe(id, &pending);
                self.plan_renewal(id);
            }
            (Command::Keep { tenure: kept, .. }, Answer::Kept { tenure, lasts }) => {
                let until = ends_at(Duration::ZERO, lasts.capped(Ttl::MAX));
                let now = self.client_now(id);
                let client = self.client(id);
                // The fence of the tenure may have risen. A belief that is over stays so.
                let is_current = client.tenure() == Some(kept) && client.is_held(now);
                client.is_standing &= client.tenure() != Some(kept);
                if is_current {
                    client.belief = Some(Belief::granted(tenure, until).with_rules(rules));
                    self.believe(id, &pending);
                }
                self.plan_renewal(id);
            }
            (Command::Keep { .. } | Command::Renew { .. }, Answer::NotHeld)
                if state == State::Holding =>
            {
                let now = self.client_now(id);
                if !self.client(id).is_held(now) {
                    self.idle(id);
                }
            }
            (Command::Release { .. } | Command::ReleaseDurable { .. }, _)
                if state == State::Releasing =>
            {
                self.idle(id);
            }
            (Command::Acquire { .. } | Command::AcquireDurable { .. }, _)
            | (Command::Renew { .. } | Command::Keep { .. } | Command::Abandon, _)
            | (Command::Release { .. } | Command::ReleaseDurable { .. }, _) => {}
        }
    }

    /// A slow client acts on an answer much later.
    fn is_slow(&mut self, client: u32, token: Token, answer: Answer) -> bool {
        let Some(habits) = self.client(client).habits else { return false };
        if habits.slow_permille == 0 || !self.client_rng.chance(habits.slow_permille) {
            return false;
        }
        let delay = self.client_rng.below(habits.slow_max.as_nanos() as u64);
        self.schedule_in(delay, 0, WorldEvent::Answered { client, token, answer });
        true
    }

    /// Shows the checker a client's belief.
    fn believe(&mut self, id: u32, pending: &Pending) {
        let now = self.client_now(id);
        let client = &self.clients[id as usize];
        let Some(belief) = client.belief.filter(|belief| belief.is_held(now)) else { return };
        let (name, tenure) = (client.name, belief.tenure());
        let until = client.clock.first_shows(belief.ends_at());
        let since = pending.sent_at_true;
        // A durable lease is in registers, and not in the entries of acceptors.
        let claim = Claim { client: id, tenure, since, until, is_backed: !client.stands };
        self.tracer.hash(&[self.now.0, 10, u64::from(id), tenure.fence(), until.0]);
        let (node, text) = (pending.node, &self.setup.names[name]);
        self.tracer.record(self.now, || {
            let (name, fence) = (text.clone(), tenure.fence());
            TraceEvent::Believes { client: id, node, name, fence, until }
        });
        self.checker.believes(self.now, name, claim);
        self.trace_violations();
    }

    /// A client ended its belief early.
    fn yield_belief(&mut self, id: u32) {
        let name = self.clients[id as usize].name;
        let text = &self.setup.names[name];
        self.tracer.record(self.now, || TraceEvent::Yielded { client: id, name: text.clone() });
        self.checker.yields(name, id);
    }

    fn idle(&mut self, id: u32) {
        self.client(id).state = State::Idle;
        if let Some(habits) = self.client(id).habits {
            let think = self.client_rng.span(habits.think);
            self.wake_in(id, think);
        }
    }

    fn begin_holding(&mut self, id: u32) {
        let now = self.client_now(id);
        self.client(id).state = State::Holding;
        if let Some(habits) = self.client(id).habits {
            let hold = self.client_rng.span(habits.hold);
            self.client(id).hold_until = now.after(hold);
            self.plan_renewal(id);
        }
    }

    fn plan_renewal(&mut self, id: u32) {
        let client = self.client(id);
        if client.state == State::Holding && client.habits.is_some() {
            let (third, hold_until) = (client.ttl / 3, client.hold_until);
            let renew_at = self.client_now(id).after(third);
            self.wake_at(id, renew_at.min(hold_until));
        }
    }

    /// A client's wake-up is due.
    pub(super) fn woken(&mut self, id: u32) {
        let (now_true, now) = (self.now, self.client_now(id));
        let client = self.client(id);
        let Some(habits) = client.habits else { return };
        if client.wake_at != now_true {
            return;
        }
        client.wake_at = TrueTime(u64::MAX);
        self.counts.events += 1;
        self.tracer.hash(&[now_true.0, 11, u64::from(id)]);
        match self.client(id).state {
            State::Idle => self.begin_acquire(id, habits),
            State::Acquiring => {
                // No answer: the node may be down. Leave it and turn to another one (P7, P8).
                self.leave(id);
                self.client(id).node = self.another_node(id);
                self.idle(id);
            }
            State::Holding => self.continue_holding(id, habits, now),
            State::Releasing => {
                self.client(id).node = self.another_node(id);
                self.idle(id);
            }
            State::Gone => self.idle(id),
        }
    }

    fn begin_acquire(&mut self, id: u32, habits: Habits) {
        let ttl = self.client_rng.span(habits.ttl);
        let vanishes = self.client_rng.chance(habits.vanish_permille);
        let node = self.client(id).node;
        let client = self.client(id);
        client.ttl = ttl;
        client.state = State::Acquiring;
        client.pending.retain(|pending| !pending.is_acquire());
        let is_durable =
            habits.durable_permille > 0 && self.client_rng.chance(habits.durable_permille);
        if is_durable {
            let lasts = self.lasting(habits);
            self.ask(id, node, Command::AcquireDurable { lasts, wait: habits.wait });
        } else {
            self.ask_as(id, node, habits, Command::Acquire { ttl, wait: habits.wait });
        }
        if vanishes {
            let lives = self.client_rng.up_to(habits.patience);
            self.vanish_later(id, lives);
        } else {
            self.wake_in(id, habits.wait + habits.patience);
        }
    }

    /// Sends a command. A careless client sends it again with the same token, as a client library
    /// does that retries.
    fn ask_as(&mut self, id: u32, node: u16, habits: Habits, command: Command) {
        self.ask(id, node, command);
        if habits.naive {
            let token = self.client(id).pending.last().expect("just asked").token;
            self.send_command(id, node, token, command);
        }
    }

    /// A client leaves: it does nothing more for this time, and its node learns that it left.
    fn vanish_later(&mut self, id: u32, span: Duration) {
        self.leave(id);
        let client = self.client(id);
        client.state = State::Gone;
        client.belief = None;
        client.pending.clear();
        self.wake_in(id, span);
    }

    /// P8: the client abandons its acquires.
    fn leave(&mut self, id: u32) {
        self.close_connections(id, Pending::is_acquire);
        self.client(id).pending.retain(|pending| !pending.is_acquire());
    }

    /// Closes the connections with these open requests; their nodes notice.
    fn close_connections(&mut self, client: u32, closes: impl Fn(&Pending) -> bool) {
        for open in self.client(client).pending.clone().into_iter().filter(closes) {
            let delay = self.client_rng.below(CLOSE_NANOS_MAX);
            let (token, command) = (open.token, Command::Abandon);
            self.schedule_in(delay, open.node, WorldEvent::Requested { client, token, command });
        }
    }

    fn continue_holding(&mut self, id: u32, habits: Habits, now: Instant) {
        let held = self.client(id).is_held(now);
        if now >= self.client(id).hold_until {
            if self.client_rng.chance(habits.lapse_permille) {
                return self.idle(id);
            }
            let node = self.renewing_node(id, habits);
            self.release_held(id, node);
            return self.wake_in(id, habits.patience);
        }
        if !held && !habits.naive {
            return self.idle(id);
        }
        let node = self.renewing_node(id, habits);
        if node != self.client(id).node {
            self.close_connections(id, |open| matches!(open.command, Command::Renew { .. }));
        }
        let mut ttl = self.client_rng.span(habits.ttl);
        if habits.naive && self.client_rng.chance(NAIVE_TTL_PERMILLE) {
            ttl *= 3;
        }
        let Some(tenure) = self.client(id).tenure() else { return self.idle(id) };
        if habits.durable_permille > 0 && held {
            let draws = self.client_rng.chance(habits.durable_permille);
            if self.client(id).stands || draws {
                self.set_end(id, node, habits, now);
                return self.plan_renewal(id);
            }
        }
        self.ask_as(id, node, habits, Command::Renew { tenure, ttl });
        self.plan_renewal(id);
    }

    /// How long a durable lease is to last.
    fn lasting(&mut self, habits: Habits) -> Lasts {
        let longest = self.setup.cell.max_lease().as_duration() * 3;
        let span = self.client_rng.span((habits.ttl.0, longest));
        Lasts::from_millis(span.as_millis() as u64).expect("at least 1 ms")
    }

    /// K10: gives up the belief beyond the new end, then sets it. While the last operation has no
    /// answer, there is no other.
    fn set_end(&mut self, id: u32, node: u16, habits: Habits, now: Instant) {
        if self.client(id).is_standing {
            return;
        }
        let lasts = self.lasting(habits);
        let rules = self.algorithm.rules();
        let drift = self.setup.cell.drift().with_rules(rules);
        let until = drift.belief_ends_at(now, lasts.capped(Ttl::MAX));
        let client = self.client(id);
        let Some(belief) = client.belief else { return };
        (client.stands, client.is_standing) = (true, true);
        let tenure = belief.tenure();
        let is_sooner = until < belief.ends_at();
        if is_sooner {
            client.belief = Some(Belief::granted(tenure, until).with_rules(rules));
        }
        self.ask(id, node, Command::Keep { tenure, lasts });
        // From now on the belief rests on registers, and not on the entries of acceptors.
        self.yield_belief(id);
        let asked = *self.client(id).pending.last().expect("just asked");
        self.believe(id, &asked);
    }

    fn renewing_node(&mut self, id: u32, habits: Habits) -> u16 {
        if self.client_rng.chance(habits.wander_permille) {
            self.another_node(id)
        } else {
            self.client(id).node
        }
    }

    fn another_node(&mut self, id: u32) -> u16 {
        let count = self.nodes.len() as u64;
        let node = self.client_rng.between(1, count) as u16;
        if node == self.client(id).node { (u64::from(node) % count) as u16 + 1 } else { node }
    }

    /// P6: ends the belief, then sends the Release.
    pub(super) fn release_held(&mut self, id: u32, node: u16) {
        let now = self.client_now(id);
        let client = self.client(id);
        let Some(belief) = &mut client.belief else { return };
        let (tenure, patience) = (belief.tenure(), belief.remaining(now));
        belief.release();
        client.state = State::Releasing;
        let name = client.name;
        if !client.is_held(now) {
            self.yield_belief(id);
        }
        self.checker.released(name, tenure);
        let patience = patience.max(Duration::from_millis(1));
        let is_durable = self.client(id).stands;
        self.ask(
            id,
            node,
            if is_durable {
                Command::ReleaseDurable { tenure, patience }
            } else {
                Command::Release { tenure, patience }
            },
        );
    }

    /// Replaces the habits of every client, and resets its counts.
    pub(crate) fn calm_clients(&mut self, habits: Option<Habits>) {
        for client in &mut self.clients {
            client.habits = habits;
            client.grants = 0;
            client.answers = 0;
        }
    }

    /// A name without a grant since the clients were last calmed.
    pub(crate) fn without_grant(&self) -> Option<usize> {
        let mut names = self.clients.iter().map(|client| client.name);
        names.find(|name| {
            !self.clients.iter().any(|client| client.name == *name && client.grants > 0)
        })
    }

    /// The name of a client without an answer since it was last calmed.
    pub(crate) fn without_answer(&self) -> Option<usize> {
        self.clients.iter().find(|client| client.answers == 0).map(|client| client.name)
    }

    /// The number of requests and rounds for which running nodes keep state.
    pub(crate) fn in_flight(&self) -> usize {
        self.nodes.iter().filter_map(|node| node.process.as_ref()).map(Process::in_flight).sum()
    }
}
