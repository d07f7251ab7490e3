//! The world that a sequence of steps creates, and its reports to the checker.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::{Belief, Cell, Drift, Instant, Name, NodeId, Rules, Tenure, Token, Ttl};
use paxoslease_sim::algorithm::{Answer, Boot, Command, Disk, Output, Tuning};
use paxoslease_sim::trace::TrueTime;
use paxoslease_sim::{
    Algorithm as _, Checker, Checks, Claim, Clock, Node, PaxosLease, Process, Stored, Violation,
};

use super::{CellStep, Setup};

const MEMBERS: usize = 3;
const NAMES: [&str; 2] = ["jobs/1", "jobs/2"];
const CLIENTS: usize = 4;
const MAX_LEASE: u32 = 1000;
const DRIFT_PPM: u32 = 1000;
/// The most packets in flight; beyond that the oldest are lost.
const PACKETS_MAX: usize = 128;
/// The most answers that a client has not read.
const ANSWERS_MAX: usize = 16;
const SETTLED_MAX: usize = 512;
/// What wall clocks show when the world begins, in milliseconds.
const WALL_MILLIS: u64 = 1_700_000_000_000;

pub(super) struct World {
    algorithm: PaxosLease,
    cell: Cell,
    tuning: Tuning,
    now: TrueTime,
    members: Vec<NodeState>,
    packets: VecDeque<Packet>,
    clients: Vec<Client>,
    tokens: u64,
    checker: Checker,
}

/// A node, running or not.
struct NodeState {
    clock: Clock,
    disk: Option<Disk>,
    process: Option<Node>,
    has_run: bool,
    /// The record that is being written, and the durable one that the node has not been told of.
    writing: Option<Vec<u8>>,
    written: Option<Vec<u8>>,
}

struct Packet {
    from: usize,
    to: usize,
    bytes: Rc<[u8]>,
}

struct Client {
    clock: Clock,
    name: usize,
    belief: Option<Belief>,
    asked: Vec<Asked>,
    answers: VecDeque<(Token, Answer)>,
}

/// A request without an answer yet.
#[derive(Clone, Copy)]
struct Asked {
    token: Token,
    node: usize,
    is_acquire: bool,
    sent_at: Instant,
    sent_at_true: TrueTime,
}

impl World {
    pub(super) fn new(rules: Rules, setup: Setup) -> Self {
        let nodes = MEMBERS + usize::from(setup.proposer);
        let ids: Vec<NodeId> = (0..MEMBERS).map(node_id).collect();
        let max_lease = Ttl::from_millis(MAX_LEASE).expect("not zero");
        let drift = Drift::new(DRIFT_PPM, Duration::ZERO).expect("in bounds");
        let cell = Cell::new(&ids, max_lease, drift).expect("a cell");
        let clock = |place: usize| {
            let ppm = [0, -(DRIFT_PPM as i32), DRIFT_PPM as i32, 0][rate(setup.rates, place)];
            Clock::new(Duration::from_secs(1000 + place as u64), ppm, Duration::ZERO)
        };
        let members = (0..nodes).map(|place| NodeState {
            clock: clock(place),
            disk: setup.disks.then(Disk::default),
            process: None,
            has_run: false,
            writing: None,
            written: None,
        });
        let clients = (0..CLIENTS).map(|place| Client {
            clock: clock(nodes + place),
            name: usize::from(place + 1 == CLIENTS),
            belief: None,
            asked: Vec::new(),
            answers: VecDeque::new(),
        });
        let mut world = Self {
            algorithm: PaxosLease { rules, prepared_only: setup.prepared_only },
            cell,
            tuning: Tuning { reclaim_after: Duration::from_millis(50), ..Tuning::default() },
            now: TrueTime(0),
            members: members.collect(),
            packets: VecDeque::new(),
            clients: clients.collect(),
            tokens: 0,
            checker: Checker::new(Checks::ALL, MEMBERS as u16, nodes, NAMES.len()),
        };
        (0..nodes).for_each(|node| world.start(node));
        world.settle();
        world
    }

    pub(super) fn violation(&self) -> Option<Violation> {
        self.checker.violations().first().cloned()
    }

    pub(super) fn step(&mut self, step: CellStep) {
        // Every step has an instant of its own.
        self.now.0 += 1000;
        let node_of = |number: u8| usize::from(number) % self.members.len();
        let client_of = |number: u8| usize::from(number) % CLIENTS;
        match step {
            CellStep::Pass { millis } => self.pass(u64::from(millis) * 4),
            CellStep::Deliver { packet } => {
                if let Some(place) = self.place(packet)
                    && let Some(packet) = self.packets.remove(place)
                {
                    self.deliver(packet.from, packet.to, &packet.bytes);
                }
            }
            CellStep::Repeat { packet } => {
                if let Some(place) = self.place(packet) {
                    let Packet { from, to, ref bytes } = self.packets[place];
                    let bytes = Rc::clone(bytes);
                    self.deliver(from, to, &bytes);
                }
            }
            CellStep::Lose { packet } => {
                if let Some(place) = self.place(packet) {
                    self.packets.remove(place);
                }
            }
            CellStep::DeliverTo { node } => self.deliver_to(node_of(node)),
            CellStep::Settle => self.settle(),
            CellStep::Wake { node } => self.with(node_of(node), Process::handle_timeout),
            CellStep::Sweep { node } => self.with(node_of(node), Process::handle_tick),
            CellStep::Write { node } => self.write(node_of(node)),
            CellStep::Confirm { node } => self.confirm(node_of(node)),
            CellStep::Crash { node, written } => self.crash(node_of(node), written),
            CellStep::Stop { node } => self.stop(node_of(node)),
            CellStep::Start { node } => self.start(node_of(node)),
            CellStep::Acquire { client, node, ttl, wait } => {
                let wait = Duration::from_millis(u64::from(wait) * 8);
                self.acquire(client_of(client), node_of(node), ttl_of(ttl), wait);
            }
            CellStep::Renew { client, node, ttl } => {
                self.renew(client_of(client), node_of(node), ttl_of(ttl));
            }
            CellStep::Release { client, node } => self.release(client_of(client), node_of(node)),
            CellStep::Leave { client, told } => self.leave(client_of(client), told),
            CellStep::Read { client, answer } => self.read(client_of(client), answer),
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now.0 += millis * 1_000_000;
    }

    fn place(&self, packet: u8) -> Option<usize> {
        let count = self.packets.len();
        (count > 0).then(|| usize::from(packet) % count)
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.with(to, |node, now| node.handle_message(now, node_id(from), bytes));
    }

    fn deliver_to(&mut self, node: usize) {
        let (theirs, others) = self.packets.drain(..).partition(|packet| packet.to == node);
        self.packets = others;
        let theirs: VecDeque<Packet> = theirs;
        for Packet { from, to, bytes } in theirs {
            self.deliver(from, to, &bytes);
        }
    }

    fn settle(&mut self) {
        for _ in 0..SETTLED_MAX {
            for node in 0..self.members.len() {
                self.write(node);
                self.confirm(node);
            }
            let Some(Packet { from, to, bytes }) = self.packets.pop_front() else { break };
            self.deliver(from, to, &bytes);
        }
    }

    /// Calls a running node, then carries out its outputs.
    fn with(&mut self, place: usize, call: impl FnOnce(&mut Node, Instant)) {
        let member = &mut self.members[place];
        let Some(process) = &mut member.process else { return };
        call(process, member.clock.read(self.now));
        let outputs: Vec<Output> = std::iter::from_fn(|| process.poll_output()).collect();
        self.check_stored(place);
        for output in outputs {
            match output {
                Output::Send(packet) => {
                    self.checker.sent(self.now, place, &packet);
                    let to = usize::from(packet.to.get()) - 1;
                    self.packets.push_back(Packet { from: place, to, bytes: packet.bytes });
                }
                Output::Persist(bytes) => {
                    self.members[place].writing = Some(bytes);
                }
                Output::Answer(token, answer) => self.answer(token, answer),
            }
        }
        let lost = self.packets.len().saturating_sub(PACKETS_MAX);
        self.packets.drain(..lost);
    }

    fn check_stored(&mut self, place: usize) {
        if place >= MEMBERS {
            return;
        }
        for name in 0..NAMES.len() {
            let stored = self.stored(place, name);
            if stored != self.checker.stored(place, name) {
                self.checker.stores(self.now, place, name, stored);
            }
        }
    }

    fn stored(&self, place: usize, name: usize) -> Stored {
        let node = &self.members[place];
        let view = node.process.as_ref().and_then(|process| process.view(name_of(name)));
        Stored::seen(view, &node.clock, self.now, self.checker.stored(place, name))
    }

    fn write(&mut self, place: usize) {
        let member = &mut self.members[place];
        if let (Some(bytes), Some(disk)) = (member.writing.take(), &mut member.disk) {
            disk.record = Some(bytes.clone());
            member.written = Some(bytes);
        }
    }

    fn confirm(&mut self, place: usize) {
        if let Some(bytes) = self.members[place].written.take() {
            self.with(place, |node, now| node.handle_persisted(now, &bytes));
        }
    }

    fn start(&mut self, place: usize) {
        if self.members[place].process.is_some() {
            return;
        }
        // R5 counts by the wall clock: no two starts fall into the same millisecond.
        self.pass(1);
        let now_true = self.now;
        let member = &mut self.members[place];
        let boot = Boot {
            node: node_id(place),
            cell: &self.cell,
            tuning: &self.tuning,
            seed: now_true.0 ^ place as u64,
            now: member.clock.read(now_true),
            new_cell: !member.has_run,
            wall_millis: WALL_MILLIS + now_true.0 / 1_000_000,
            disk: member.disk.as_mut(),
        };
        member.process = Some(self.algorithm.start(boot));
        member.has_run = true;
        if place < MEMBERS {
            let stored: Vec<Stored> =
                (0..NAMES.len()).map(|name| self.stored(place, name)).collect();
            self.checker.started(now_true, place, &stored);
        }
        self.with(place, |_, _| {});
    }

    fn crash(&mut self, place: usize, written: bool) {
        if self.members[place].process.take().is_some() {
            if written {
                self.write(place);
            }
            self.end(place, true);
        }
    }

    fn stop(&mut self, place: usize) {
        let member = &mut self.members[place];
        let Some(process) = member.process.take() else { return };
        process.stop(member.clock.read(self.now), member.disk.as_mut());
        let forgotten = member.disk.as_ref().is_none_or(|disk| disk.snapshot.is_none());
        // A clean stop waits for the disk.
        self.write(place);
        self.end(place, forgotten);
    }

    fn end(&mut self, place: usize, forgotten: bool) {
        let member = &mut self.members[place];
        (member.writing, member.written) = (None, None);
        self.checker.ended(self.now, place, forgotten);
    }

    fn ask(&mut self, client: usize, node: usize, is_acquire: bool) -> Token {
        self.tokens += 1;
        let token = Token((client as u64) << 32 | self.tokens);
        let asker = &mut self.clients[client];
        let sent_at = asker.clock.read(self.now);
        let asked = Asked { token, node, is_acquire, sent_at, sent_at_true: self.now };
        asker.asked.push(asked);
        token
    }

    fn acquire(&mut self, client: usize, node: usize, ttl: Duration, wait: Duration) {
        // The client ignores answers to its earlier acquires.
        self.clients[client].asked.retain(|asked| !asked.is_acquire);
        let token = self.ask(client, node, true);
        let name = name_of(self.clients[client].name);
        let command = Command::Acquire { name, ttl, wait };
        self.with(node, |node, now| node.handle_command(now, token, command));
    }

    /// Renews even a tenure that is over, as careless clients do (P5).
    fn renew(&mut self, client: usize, node: usize, ttl: Duration) {
        let belief = self.clients[client].belief.filter(|belief| !belief.is_released());
        let Some(tenure) = belief.map(|belief| belief.tenure()) else { return };
        let token = self.ask(client, node, false);
        let name = name_of(self.clients[client].name);
        let command = Command::Renew { name, tenure, ttl };
        self.with(node, |node, now| node.handle_command(now, token, command));
    }

    /// P6: ends the belief, then sends the Release.
    fn release(&mut self, client: usize, node: usize) {
        let leaver = &mut self.clients[client];
        let (name, now) = (leaver.name, leaver.clock.read(self.now));
        let Some(belief) = &mut leaver.belief else { return };
        let (tenure, patience) = (belief.tenure(), belief.remaining(now));
        belief.release();
        if !belief.is_held(now) {
            self.checker.yields(name, client as u32);
        }
        self.checker.released(name, tenure);
        let patience = patience.max(Duration::from_millis(1));
        let token = self.ask(client, node, false);
        let command = Command::Release { name: name_of(name), tenure, patience };
        self.with(node, |node, now| node.handle_command(now, token, command));
    }

    /// P8.
    fn leave(&mut self, client: usize, told: bool) {
        let name = name_of(self.clients[client].name);
        let (acquires, others): (Vec<Asked>, Vec<Asked>) =
            self.clients[client].asked.drain(..).partition(|asked| asked.is_acquire);
        self.clients[client].asked = others;
        for Asked { token, node, .. } in acquires.into_iter().filter(|_| told) {
            self.with(node, |node, now| node.handle_gone(now, token, name));
        }
    }

    fn answer(&mut self, token: Token, answer: Answer) {
        let client = &mut self.clients[(token.0 >> 32) as usize];
        match answer {
            Answer::Granted { tenure, .. } => {
                self.checker.granted(self.now, client.name, tenure, true);
            }
            Answer::Renewed { tenure, .. } => {
                self.checker.granted(self.now, client.name, tenure, false);
            }
            Answer::Denied
            | Answer::NoQuorum
            | Answer::NotHeld
            | Answer::Released
            | Answer::Refused => {}
        }
        if client.answers.len() < ANSWERS_MAX {
            client.answers.push_back((token, answer));
        }
    }

    fn read(&mut self, client: usize, answer: u8) {
        let reader = &mut self.clients[client];
        let count = reader.answers.len();
        if count == 0 {
            return;
        }
        let Some((token, answer)) = reader.answers.remove(usize::from(answer) % count) else {
            return;
        };
        let Some(place) = reader.asked.iter().position(|asked| asked.token == token) else {
            return;
        };
        let asked = reader.asked.remove(place);
        let rules = self.algorithm.rules;
        let drift = self.cell.drift().with_rules(rules);
        let ends_at = |waited, ttl| drift.remote_belief_ends_at(asked.sent_at, waited, ttl);
        match answer {
            Answer::Granted { tenure, ttl, waited } if asked.is_acquire => {
                let belief = Belief::granted(tenure, ends_at(waited, ttl));
                reader.belief = Some(belief.with_rules(rules));
            }
            Answer::Renewed { tenure, ttl, .. } => {
                if let Some(belief) = &mut reader.belief {
                    belief.renewed(tenure, ends_at(Duration::ZERO, ttl));
                }
            }
            _ => return,
        }
        self.believe(client, asked.sent_at_true);
    }

    fn believe(&mut self, client: usize, since: TrueTime) {
        let believer = &self.clients[client];
        let now = believer.clock.read(self.now);
        let Some(belief) = believer.belief.filter(|belief| belief.is_held(now)) else { return };
        let until = believer.clock.first_shows(belief.ends_at());
        let tenure: Tenure = belief.tenure();
        let claim = Claim { client: client as u32, tenure, since, until };
        self.checker.believes(self.now, believer.name, claim);
    }
}

fn rate(rates: u32, place: usize) -> usize {
    (rates >> (place * 2) & 3) as usize
}

fn node_id(place: usize) -> NodeId {
    NodeId::new(place as u16 + 1).expect("in bounds")
}

fn name_of(name: usize) -> Name<'static> {
    Name::new(NAMES[name]).expect("in bounds")
}

/// 50 ms up to a little more than `max_lease`, which is refused.
fn ttl_of(number: u8) -> Duration {
    Duration::from_millis(50 + u64::from(number) * 4)
}
