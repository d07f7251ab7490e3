//! A cell of real shards, joined by a list of messages that the test delivers in any order.
//!
//! The test moves the time; a node's clock is that time plus an offset. No message is delivered,
//! lost or repeated, and no record becomes durable, unless the test says so.
#![expect(dead_code, reason = "each test file uses the part it needs")]

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use paxoslease_core::*;

pub(crate) const NAME: &str = "jobs/nightly";
pub(crate) const TTL: Duration = Duration::from_secs(10);
pub(crate) const NO_WAIT: Duration = Duration::ZERO;
/// Longer than any lease of the tests, and as long as M.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn node(id: u16) -> NodeId {
    NodeId::new(id).expect("a node id")
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text).expect("a name")
}

/// A message in flight.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) transmit: Transmit,
}

impl Letter {
    pub(crate) fn kind(&self) -> &'static str {
        self.transmit.message().kind()
    }
}

pub(crate) struct TestCell {
    pub(crate) now: Instant,
    /// The offset of each node's clock, by id.
    pub(crate) ahead: BTreeMap<u16, Duration>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) letters: Vec<Letter>,
    pub(crate) events: Vec<(NodeId, Event)>,
    /// Records that nodes want to write.
    pub(crate) writes: VecDeque<(NodeId, Record)>,
    /// The disks for durable leases, by node.
    pub(crate) disks: BTreeMap<NodeId, TestDisk>,
    pub(crate) sent: usize,
}

/// What a node's disk has, and the writes that are not on it yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestDisk {
    registers: BTreeMap<String, DurableRegister>,
    queue: VecDeque<(u64, DurableWrite)>,
}

impl TestDisk {
    /// The first write is on disk. Returns its number.
    fn write(&mut self) -> Option<u64> {
        let (sequence, write) = self.queue.pop_front()?;
        match write {
            DurableWrite::Register(register) => {
                self.registers.insert(register.name().to_string(), register);
            }
            DurableWrite::Forget(label) => drop(self.registers.remove(&label.name().to_string())),
            DurableWrite::Clear => self.registers.clear(),
            DurableWrite::Tick => {}
        }
        Some(sequence)
    }
}

impl TestCell {
    /// Members 1 to `members`, then `proposers` nodes without an acceptor.
    pub(crate) fn new(members: u16, proposers: u16) -> Self {
        Self::with(members, proposers, |_| {})
    }

    pub(crate) fn with(members: u16, proposers: u16, adjust: impl Fn(&mut Config)) -> Self {
        Self::started(members, proposers, adjust, Start::NewCell { counter: 0, disk: false })
    }

    pub(crate) fn started(
        members: u16,
        proposers: u16,
        adjust: impl Fn(&mut Config),
        start: Start,
    ) -> Self {
        let cell = cell(members);
        let now = Instant::ZERO.after(Duration::from_secs(1000));
        let shards = (1..=members + proposers)
            .map(|id| {
                let mut config = Config::new(node(id), cell, u64::from(id));
                adjust(&mut config);
                Shard::start(config, now, start)
            })
            .collect();
        Self {
            now,
            ahead: BTreeMap::new(),
            shards,
            letters: Vec::new(),
            events: Vec::new(),
            writes: VecDeque::new(),
            disks: BTreeMap::new(),
            sent: 0,
        }
    }

    /// The reading of a node's clock.
    pub(crate) fn clock(&self, id: u16) -> Instant {
        self.now.after(self.ahead.get(&id).copied().unwrap_or_default())
    }

    /// Writes all records that the nodes ask for.
    pub(crate) fn write_records(&mut self) {
        while let Some((node, record)) = self.writes.pop_front() {
            let now = self.clock(node.get());
            self.shard(node.get()).record_written(now, record);
            self.collect();
        }
    }

    /// A node crashes and starts with its record. Messages that it sent stay in flight, writes that
    /// it asked for are lost.
    pub(crate) fn crash(&mut self, id: u16) {
        self.writes.retain(|(node, _)| node.get() != id);
        let now = self.clock(id);
        let shard = self.shard(id);
        let (config, record) = (shard.config().clone(), shard.record());
        *shard = Shard::start(config, now, Start::Crash(record));
        if let Some(disk) = self.disks.get_mut(&node(id)) {
            disk.queue.clear();
            let registers: Vec<DurableRegister> = disk.registers.values().cloned().collect();
            registers.into_iter().for_each(|it| self.shard(id).restore_durable(now, it));
        }
        self.collect();
    }

    /// Brings the first write of a node to its disk. Returns whether there was one.
    pub(crate) fn write_disk(&mut self, id: u16) -> bool {
        let Some(sequence) = self.disks.entry(node(id)).or_default().write() else { return false };
        let now = self.clock(id);
        self.shard(id).durable_written(now, sequence);
        self.collect();
        true
    }

    /// Delivers all letters and writes all records, but nothing of durable leases.
    pub(crate) fn accept(&mut self) {
        self.settle();
        self.write_records();
        self.settle();
    }

    /// Delivers all letters and brings all writes to the disks, until nothing is left.
    pub(crate) fn settle_durably(&mut self) {
        let ids: Vec<u16> = self.shards.iter().map(|shard| shard.config().node.get()).collect();
        loop {
            self.settle();
            self.write_records();
            let written = ids.iter().filter(|id| self.write_disk(**id)).count();
            if written == 0 && self.letters.is_empty() {
                return;
            }
        }
    }

    /// Passes time in steps of ten milliseconds, with all letters and writes each time.
    pub(crate) fn live_durably(&mut self, span: Duration) {
        for _ in 0..span.as_millis() / 10 {
            self.pass(Duration::from_millis(10));
            self.settle_durably();
        }
    }

    pub(crate) fn acquire_durable(&mut self, id: u16, token: u64, lasts: Lasts) {
        let now = self.clock(id);
        let command = acquire_command(token, NO_WAIT, TTL);
        self.shard(id).acquire_durable(now, command, lasts).expect("room");
        self.collect();
    }

    pub(crate) fn keep(&mut self, id: u16, token: u64, tenure: Tenure, lasts: Lasts) {
        let now = self.clock(id);
        let label = Label::new(name(NAME), Holder::NONE);
        self.shard(id).keep(now, Token(token), label, tenure, lasts).expect("room");
        self.collect();
    }

    /// The tenure and the fence that the register of [`NAME`] holds at a member.
    pub(crate) fn durably_held(&mut self, id: u16) -> Option<(Tenure, Tenure)> {
        let now = self.clock(id);
        self.shard(id).durably_held(now, name(NAME))
    }

    /// A node stops cleanly and starts again with its snapshot. Returns whether there was one; if
    /// not, the node starts as after a crash.
    pub(crate) fn restart(&mut self, id: u16, down: Duration) -> bool {
        let stopped_at = self.clock(id);
        let shard = self.shard(id).clone();
        let (config, record) = (shard.config().clone(), shard.record());
        let snapshot = shard.stop(stopped_at);
        self.now = self.now.after(down);
        let now = self.clock(id);
        let Some(snapshot) = snapshot else {
            self.crash(id);
            return false;
        };
        let leases: Vec<SnapshotLease<'_>> = snapshot.leases().collect();
        *self.shard(id) = Shard::start_from_snapshot(config, now, record, leases);
        self.collect();
        true
    }

    pub(crate) fn shard(&mut self, id: u16) -> &mut Shard {
        self.shards.iter_mut().find(|shard| shard.config().node == node(id)).expect("a shard")
    }

    pub(crate) fn acquire_for(&mut self, id: u16, token: u64, wait: Duration, ttl: Duration) {
        let now = self.clock(id);
        self.shard(id).acquire(now, acquire_command(token, wait, ttl)).expect("in bounds");
        self.collect();
    }

    pub(crate) fn release(&mut self, id: u16, token: u64, tenure: Tenure) {
        let now = self.clock(id);
        self.shard(id).release(now, Token(token), name(NAME), tenure, TTL).expect("in bounds");
        self.collect();
    }

    /// Takes all messages and events from the shards.
    pub(crate) fn collect(&mut self) {
        for shard in &mut self.shards {
            let from = shard.config().node;
            let cell = shard.config().cell;
            while let Some(transmit) = shard.poll_transmit() {
                for to in transmit.receivers(&cell) {
                    self.sent += 1;
                    self.letters.push(Letter { from, to, transmit: transmit.clone() });
                }
            }
            while let Some(event) = shard.poll_event() {
                match &event {
                    Event::Persist(record) => self.writes.push_back((from, *record)),
                    Event::Durable { sequence, write } => {
                        let queue = &mut self.disks.entry(from).or_default().queue;
                        queue.push_back((*sequence, (**write).clone()));
                    }
                    _ => {}
                }
                self.events.push((from, event));
            }
        }
    }

    /// Delivers one letter, which stays in the test's hands.
    pub(crate) fn deliver(&mut self, letter: &Letter) -> Result<(), Refusal> {
        let Letter { from, to, transmit } = letter;
        let now = self.clock(to.get());
        let outcome = self.shard(to.get()).handle_message(now, *from, transmit.message());
        self.collect();
        outcome
    }

    /// Removes and returns the letters that match.
    pub(crate) fn take(&mut self, matching: impl Fn(&Letter) -> bool) -> Vec<Letter> {
        let (taken, left) = self.letters.drain(..).partition(|letter| matching(letter));
        self.letters = left;
        taken
    }

    /// Delivers all letters in order, and the letters that follow from them.
    pub(crate) fn settle(&mut self) {
        while !self.letters.is_empty() {
            let letter = self.letters.remove(0);
            // A test that checks refusals delivers its letters itself.
            let _ = self.deliver(&letter);
        }
    }

    /// Passes time a millisecond at a time, and delivers all letters each time.
    pub(crate) fn run(&mut self, span: Duration) {
        for _ in 0..span.as_millis() {
            self.pass(Duration::from_millis(1));
            self.settle();
        }
    }

    /// Passes time and wakes all nodes once.
    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
        for place in 0..self.shards.len() {
            let now = self.clock(self.shards[place].config().node.get());
            self.shards[place].handle_timeout(now);
        }
        self.collect();
    }

    /// Hands a message to a node directly, without a letter.
    pub(crate) fn tell(&mut self, to: u16, from: u16, message: Message<'_>) -> Result<(), Refusal> {
        let now = self.clock(to);
        let outcome = self.shard(to).handle_message(now, node(from), message);
        self.collect();
        outcome
    }

    /// The register of [`NAME`] in an acceptor.
    pub(crate) fn register(&mut self, id: u16) -> Register {
        self.shard(id).register(name(NAME)).unwrap_or_default()
    }

    /// The tenure of [`NAME`] that is live in an acceptor.
    pub(crate) fn live(&mut self, id: u16) -> Option<Tenure> {
        let now = self.clock(id);
        self.register(id).live(now).map(|live| live.tenure)
    }

    /// All state of a node that a message could change.
    pub(crate) fn state(&mut self, id: u16) -> State {
        let shard = self.shard(id);
        let mut rounds: Vec<Round> = shard.rounds().cloned().collect();
        rounds.sort_unstable_by_key(|round| round.ballot);
        State {
            register: shard.register(name(NAME)),
            entries: shard.entries(),
            floor: shard.floor(),
            counter: shard.counter(),
            record: shard.record(),
            rounds,
            waiters: shard.waiters(),
            wake_at: shard.poll_timeout(),
        }
    }

    /// The belief of a holder on its node's clock, from its grant and renewals.
    pub(crate) fn belief(&self, token: u64) -> Option<Belief> {
        let ends_at = |node: &NodeId, started_at, ttl| {
            let shard = self.shards.iter().find(|shard| shard.config().node == *node)?;
            Some(shard.config().cell.drift().belief_ends_at(started_at, ttl))
        };
        let mut belief: Option<Belief> = None;
        for (node, event) in &self.events {
            match (event, &mut belief) {
                (Event::Granted { token: Token(t), tenure, ttl, started_at, .. }, _)
                    if *t == token =>
                {
                    belief = Some(Belief::granted(*tenure, ends_at(node, *started_at, *ttl)?));
                }
                (Event::Renewed { tenure, ttl, started_at, .. }, Some(belief)) => {
                    belief.renewed(*tenure, ends_at(node, *started_at, *ttl)?);
                }
                _ => {}
            }
        }
        belief
    }

    /// The tenure that was granted to a request.
    pub(crate) fn granted(&self, token: u64) -> Option<Tenure> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Granted { token: Token(t), tenure, .. } if *t == token => Some(*tenure),
            _ => None,
        })
    }

    /// The tenure that was granted last.
    pub(crate) fn last_granted(&self) -> Tenure {
        let granted = self.events.iter().rev().find_map(|(_, event)| match event {
            Event::Granted { tenure, .. } => Some(*tenure),
            _ => None,
        });
        granted.expect("a grant")
    }

    /// The events that answer a request.
    pub(crate) fn answers(&self, token: u64) -> Vec<&Event> {
        let events = self.events.iter().map(|(_, event)| event);
        events.filter(|event| event.token() == Some(Token(token))).collect()
    }
}

/// See [`TestCell::state`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) register: Option<Register>,
    pub(crate) entries: usize,
    pub(crate) floor: Option<Ballot>,
    pub(crate) counter: u64,
    pub(crate) record: Record,
    pub(crate) rounds: Vec<Round>,
    pub(crate) waiters: usize,
    pub(crate) wake_at: Option<Instant>,
}

pub(crate) fn acquire_command<'a>(token: u64, wait: Duration, ttl: Duration) -> Acquire<'a> {
    let holder = Holder::new("me").expect("short");
    Acquire { token: Token(token), name: name(NAME), holder, ttl, wait }
}

pub(crate) fn ttl(span: Duration) -> Ttl {
    Ttl::from_duration(span).expect("not zero")
}

pub(crate) fn ballot(counter: u64, id: u16) -> Ballot {
    Ballot::new(counter, node(id))
}

pub(crate) fn tenure(counter: u64, id: u16) -> Tenure {
    Tenure::of(ballot(counter, id)).expect("a node's ballot")
}

pub(crate) fn cell(members: u16) -> Cell {
    let members: Vec<NodeId> = (1..=members).map(node).collect();
    Cell::new(&members, Ttl::from_millis(60_000).expect("not zero"), Drift::NONE).expect("valid")
}
