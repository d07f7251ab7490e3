//! A cell of three in memory: real shards, real frames, no network and no disk. Everything a node
//! does for a request but its sockets, on one thread.
//!
//! Clients are closed loops: each acquires, releases and goes on to the next name, or renews. What
//! is ready for a peer goes in one frame. Time is virtual and moves at a fixed pace per pair,
//! so that timers, releases remembered and sweeps are there at the load the goal asks for.

use std::time::Duration;

use paxoslease_bench::clock;
use paxoslease_bench::report::{Goal, Section};
use paxoslease_core::{
    Acquire, Cell, Config, Drift, Event, Holder, Instant, NodeId, Shard, Start, Tenure, To, Token,
    Ttl,
};
use paxoslease_wire::{FrameReader, FrameWriter};

use crate::memory::Heap;
use crate::names::{HOLDER, Names};

const NODES: usize = 3;
/// Names the clients go through when they are timed; none is wanted by two at once.
const NAMES: u32 = 1 << 16;
/// Virtual time that passes for each answer to a client: 300 thousand pairs are a second.
const PACE: Duration = Duration::from_nanos(1_000_000_000 / 600_000);
const TTL: Duration = Duration::from_secs(10);
/// Slots swept between two rounds of messages.
const SWEPT: u32 = 64;

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Acquire, release, next name.
    Pairs,
    /// Renew what is held, one name after another.
    Renewals,
}

struct Node {
    shard: Shard,
    /// What each node is still to be sent; its own place stays empty.
    outgoing: [FrameWriter; NODES],
}

/// What went between nodes.
#[derive(Clone, Copy, Default)]
struct Traffic {
    messages: u64,
    frames: u64,
    bytes: u64,
}

pub(crate) struct Rig {
    nodes: [Node; NODES],
    names: Names,
    /// By name: whose it was last.
    tenures: Vec<Option<Tenure>>,
    next_name: usize,
    now: Instant,
    load: Load,
    answered: u64,
    traffic: Traffic,
}

impl Rig {
    /// A cell and its clients, all asking for the first time.
    pub(crate) fn new(in_flight: u32, names: u32) -> Self {
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
        let mut rig = Self {
            nodes,
            names: Names::of(0..names),
            tenures: vec![None; names as usize],
            next_name: 0,
            now,
            load: Load::Pairs,
            answered: 0,
            traffic: Traffic::default(),
        };
        for client in 0..in_flight as usize {
            rig.acquire(client % NODES);
        }
        rig
    }

    /// Takes a lease on every name, then has the clients renew them.
    pub(crate) fn hold_all_and_renew(&mut self, in_flight: u32) {
        self.load = Load::Renewals;
        self.run(u64::from(in_flight));
        while self.next_name > 0 {
            self.acquire(0);
            self.run(1);
        }
        assert!(self.tenures.iter().all(Option::is_some), "nobody is in the way");
        for client in 0..in_flight as usize {
            self.renew(client % NODES);
        }
    }

    fn next_name(&mut self) -> usize {
        let name = self.next_name;
        self.next_name = (name + 1) % self.tenures.len();
        name
    }

    /// Requests carry their name as their token.
    fn acquire(&mut self, at: usize) {
        let name = self.next_name();
        let acquire = Acquire {
            token: Token(name as u64),
            name: self.names.get(name),
            holder: Holder::new(HOLDER).expect("in bounds"),
            ttl: TTL,
            wait: Duration::ZERO,
        };
        self.nodes[at].shard.acquire(self.now, acquire).expect("within bounds");
    }

    fn renew(&mut self, at: usize) {
        let name = self.next_name();
        let texts = (self.names.get(name), Holder::NONE);
        let tenure = self.tenures[name].expect("every name is held");
        let shard = &mut self.nodes[at].shard;
        shard.renew(self.now, Token(name as u64), texts, tenure, TTL).expect("within bounds");
    }

    fn release(&mut self, at: usize, token: Token, tenure: Tenure) {
        let name = self.names.get(token.0 as usize);
        let shard = &mut self.nodes[at].shard;
        shard.release(self.now, token, name, tenure, TTL).expect("within bounds");
    }

    /// Goes on until clients got this many answers more.
    pub(crate) fn run(&mut self, answers: u64) {
        let until = self.answered + answers;
        while self.answered < until {
            let before = self.answered;
            (0..NODES).for_each(|at| self.serve_clients(at));
            (0..NODES).for_each(|at| self.send(at));
            (0..NODES).for_each(|at| self.receive(at));
            let passed = PACE * u32::try_from(self.answered - before).expect("few at a time");
            self.now = self.now.after(passed);
        }
    }

    fn serve_clients(&mut self, at: usize) {
        while let Some(event) = self.nodes[at].shard.poll_event() {
            self.answered += 1;
            match (event, self.load) {
                (Event::Granted { token, tenure, .. }, Load::Pairs) => {
                    self.release(at, token, tenure);
                }
                (Event::Granted { token, tenure, .. }, Load::Renewals) => {
                    self.tenures[token.0 as usize] = Some(tenure);
                }
                (Event::Released { held: true, confirmed: true, .. }, _) => self.acquire(at),
                (Event::Renewed { .. }, _) => self.renew(at),
                (other, _) => panic!("nobody is in the way, yet: {other:?}"),
            }
        }
        let shard = &mut self.nodes[at].shard;
        if shard.poll_timeout().is_some_and(|due_at| due_at <= self.now) {
            shard.handle_timeout(self.now);
        }
        shard.sweep(self.now, SWEPT);
    }

    /// Packs what is ready, one frame for each peer.
    fn send(&mut self, at: usize) {
        let Node { shard, outgoing } = &mut self.nodes[at];
        let cell = shard.config().cell;
        while let Some(transmit) = shard.poll_transmit() {
            let message = transmit.message();
            let mut push = |to: NodeId| {
                self.traffic.messages += 1;
                assert!(outgoing[place(to)].push(&message), "a frame has room for all in flight");
            };
            match transmit.to {
                To::Members(set) => cell.nodes(set).for_each(&mut push),
                To::Node(node) => push(node),
            }
        }
        for writer in outgoing.iter_mut().filter(|writer| writer.is_open()) {
            self.traffic.frames += 1;
            self.traffic.bytes += writer.finish(shard.counter()).len() as u64;
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
            receiver.shard.observe_counter(header.counter);
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

/// The best of some runs: a shared machine only ever makes a run slower.
struct Best {
    per_second: f64,
    traffic: Traffic,
    allocations: usize,
}

const OPERATIONS: u64 = 300_000;

fn best_of(runs: u32, rig: &mut Rig, answers_each: u64) -> Best {
    // Queues and tables reach the size they keep.
    rig.run(answers_each * OPERATIONS);
    rig.traffic = Traffic::default();
    let heap_before = Heap::now();
    let mut shortest = Duration::MAX;
    for _ in 0..runs {
        let before = clock::thread_time();
        rig.run(answers_each * OPERATIONS);
        shortest = shortest.min(clock::thread_time() - before);
    }
    Best {
        per_second: OPERATIONS as f64 / shortest.as_secs_f64(),
        traffic: rig.traffic,
        allocations: Heap::now().allocations - heap_before.allocations,
    }
}

pub(crate) fn measure(runs: u32) -> Section {
    let mut section =
        Section::new("cell", "Cell of three in memory, through the codec, one thread");
    for in_flight in [64, 512] {
        let pairs = best_of(runs, &mut Rig::new(in_flight, NAMES), 2);
        let total = f64::from(runs) * OPERATIONS as f64;
        let label = |what: &str| format!("{what}, {in_flight} in flight");
        let goal = Goal::AtLeast(300_000.0);
        section.goal(label("acquire+release"), pairs.per_second, "pairs/s", goal);
        let Traffic { messages, frames, bytes } = pairs.traffic;
        section.figure(label("messages between nodes"), messages as f64 / total, "/pair");
        section.figure(label("bytes between nodes"), bytes as f64 / total, "/pair");
        section.figure(label("messages in a frame"), messages as f64 / frames as f64, "");
        section.goal(
            label("allocations"),
            pairs.allocations as f64 / total,
            "/pair",
            Goal::AtMost(0.0),
        );
        let mut rig = Rig::new(in_flight, NAMES);
        rig.hold_all_and_renew(in_flight);
        let renewals = best_of(runs, &mut rig, 1);
        section.figure(label("renew"), renewals.per_second, "renewals/s");
        section.figure(
            label("allocations while renewing"),
            renewals.allocations as f64 / total,
            "/renewal",
        );
    }
    section.note(format!(
        "The best of {runs} runs of {OPERATIONS}, by the thread's own time, over {NAMES} names."
    ));
    section
}
