//! A cell of three in memory: real shards and frames, no network and no disk, on one thread.
//!
//! Clients are closed loops: each one acquires and releases name after name, or renews, or waits
//! for the one name that all want. Messages for a peer go in one frame. Virtual time advances by a
//! fixed span per answer, so that timers and sweeps cost what they cost under the load of the
//! goals. If nothing else can happen, it advances to the next alarm.

use std::time::Duration;

use paxoslease_core::{
    Acquire, Cell, Config, Drift, Event, Holder, Instant, NodeId, Renew, Shard, Start, Tenure, To,
    Token, Ttl,
};
use paxoslease_wire::{FrameReader, FrameWriter};

use super::names::{HOLDER, Names};

const NODES: usize = 3;
/// Virtual time per answer to a client: 300,000 pairs take a second.
const PACE: Duration = Duration::from_nanos(1_000_000_000 / 600_000);
const TTL: Duration = Duration::from_secs(10);
/// Slots swept between two rounds of messages.
const SWEPT: u32 = 64;

/// Longer than any run.
const WAIT: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    Pairs,
    Renewals,
    /// All clients want the same name.
    HandOvers,
}

struct Node {
    shard: Shard,
    /// One per node; the own one stays empty.
    outgoing: [FrameWriter; NODES],
}

pub(crate) struct Rig {
    nodes: [Node; NODES],
    names: Names,
    /// The last tenure of each name.
    tenures: Vec<Option<Tenure>>,
    next_name: usize,
    now: Instant,
    load: Load,
    answered: u64,
    frames: u64,
}

impl Rig {
    /// A cell whose clients have sent their first acquires.
    pub(crate) fn new(in_flight: u32, names: u32) -> Self {
        let mut rig = Self::idle(Load::Pairs, names);
        for client in 0..in_flight as usize {
            rig.acquire_next(client % NODES);
        }
        rig
    }

    /// A cell with clients of one node that all want the same name.
    pub(crate) fn contended(clients: u32) -> Self {
        let mut rig = Self::idle(Load::HandOvers, 1);
        for client in 0..u64::from(clients) {
            rig.acquire(0, Token(client), WAIT);
        }
        rig
    }

    fn idle(load: Load, names: u32) -> Self {
        let ids = [1, 2, 3].map(|id| NodeId::new(id).expect("a node id"));
        let max_lease = Ttl::from_millis(60_000).expect("not zero");
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        let cell = Cell::new(&ids, max_lease, drift).expect("a cell");
        let now = Instant::from_nanos(1_000_000_000);
        let nodes = ids.map(|id| {
            let start = Start::NewCell { counter: 0, disk: false };
            let shard = Shard::start(Config::new(id, cell, 7), now, start);
            Node { shard, outgoing: ids.map(|_| FrameWriter::new(id)) }
        });
        Self {
            nodes,
            names: Names::of(0..names),
            tenures: vec![None; names as usize],
            next_name: 0,
            now,
            load,
            answered: 0,
            frames: 0,
        }
    }

    /// Acquires every name, then lets the clients renew the leases.
    pub(crate) fn hold_all_and_renew(&mut self, in_flight: u32) {
        self.load = Load::Renewals;
        self.run(u64::from(in_flight));
        while self.next_name > 0 {
            self.acquire_next(0);
            self.run(1);
        }
        assert!(self.tenures.iter().all(Option::is_some), "no other client contends");
        for client in 0..in_flight as usize {
            self.renew(client % NODES);
        }
    }

    fn next_name(&mut self) -> usize {
        let name = self.next_name;
        self.next_name = (name + 1) % self.tenures.len();
        name
    }

    /// The token of a request is its name, or its client if there is one name only.
    fn name_of(&self, token: Token) -> usize {
        token.0 as usize % self.tenures.len()
    }

    fn acquire_next(&mut self, at: usize) {
        let token = Token(self.next_name() as u64);
        self.acquire(at, token, Duration::ZERO);
    }

    fn acquire(&mut self, at: usize, token: Token, wait: Duration) {
        let name = self.names.get(self.name_of(token));
        let holder = Holder::new(HOLDER).expect("in bounds");
        let acquire = Acquire { token, name, holder, ttl: TTL, wait };
        self.nodes[at].shard.acquire(self.now, acquire).expect("within bounds");
    }

    fn renew(&mut self, at: usize) {
        let next = self.next_name();
        let (token, name, holder) = (Token(next as u64), self.names.get(next), Holder::NONE);
        let tenure = self.tenures[next].expect("every name is held");
        let renew = Renew { token, name, holder, tenure, ttl: TTL };
        self.nodes[at].shard.renew(self.now, renew).expect("within bounds");
    }

    fn release(&mut self, at: usize, token: Token, tenure: Tenure) {
        let name = self.names.get(self.name_of(token));
        let shard = &mut self.nodes[at].shard;
        shard.release(self.now, token, name, tenure, TTL).expect("within bounds");
    }

    /// Runs until clients have this many more answers.
    pub(crate) fn run(&mut self, answers: u64) {
        let until = self.answered + answers;
        while self.answered < until {
            let (answered, frames) = (self.answered, self.frames);
            (0..NODES).for_each(|at| self.serve_clients(at));
            (0..NODES).for_each(|at| self.send(at));
            (0..NODES).for_each(|at| self.receive(at));
            let passed = PACE * u32::try_from(self.answered - answered).expect("few at a time");
            self.now = self.now.after(passed);
            if (answered, frames) == (self.answered, self.frames) {
                self.pass_to_next_alarm();
            }
        }
    }

    fn pass_to_next_alarm(&mut self) {
        let alarms = self.nodes.iter().filter_map(|node| node.shard.poll_timeout());
        self.now = self.now.max(alarms.min().expect("a timer is set"));
    }

    fn serve_clients(&mut self, at: usize) {
        while let Some(event) = self.nodes[at].shard.poll_event() {
            self.answered += 1;
            match (event, self.load) {
                (Event::Granted { token, tenure, .. }, Load::Pairs | Load::HandOvers) => {
                    self.release(at, token, tenure);
                }
                (Event::Granted { token, tenure, .. }, Load::Renewals) => {
                    self.tenures[token.0 as usize] = Some(tenure);
                }
                (Event::Released { held: Some(true), confirmed: true, token }, Load::HandOvers) => {
                    self.acquire(at, token, WAIT);
                }
                (Event::Released { held: Some(true), confirmed: true, .. }, _) => {
                    self.acquire_next(at)
                }
                (Event::Renewed { .. }, _) => self.renew(at),
                (other, _) => panic!("no other client contends, but: {other:?}"),
            }
        }
        let shard = &mut self.nodes[at].shard;
        if shard.poll_timeout().is_some_and(|due_at| due_at <= self.now) {
            shard.handle_timeout(self.now);
        }
        shard.sweep(self.now, SWEPT);
    }

    /// Writes pending messages, one frame for each peer.
    fn send(&mut self, at: usize) {
        let Node { shard, outgoing } = &mut self.nodes[at];
        let cell = shard.config().cell;
        while let Some(transmit) = shard.poll_transmit() {
            let message = transmit.message();
            let mut push = |to: NodeId| {
                assert!(outgoing[place(to)].push(&message), "a frame has room for all in flight");
            };
            match transmit.to {
                To::Members(set) => cell.nodes(set).for_each(&mut push),
                To::Node(node) => push(node),
            }
        }
        for writer in outgoing.iter_mut().filter(|writer| writer.is_open()) {
            self.frames += 1;
            writer.finish(shard.counter());
        }
    }

    fn receive(&mut self, at: usize) {
        for from in (0..NODES).filter(|from| *from != at) {
            let [sender, receiver] =
                self.nodes.get_disjoint_mut([from, at]).expect("two different nodes");
            let writer = &mut sender.outgoing[at];
            if writer.finished().is_empty() {
                continue;
            }
            let frame = FrameReader::new(writer.finished()).expect("one whole frame");
            let header = frame.header();
            receiver.shard.observe_counter(header.counter).expect("an honest counter");
            for message in frame {
                let message = message.expect("what was encoded decodes");
                let handled = receiver.shard.handle_message(self.now, header.sender, message);
                assert_eq!(handled, Ok(()));
            }
            writer.clear();
        }
    }
}

fn place(node: NodeId) -> usize {
    usize::from(node.get()) - 1
}
