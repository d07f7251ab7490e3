//! A small cell of traced shards in one process, with a network that delays, loses and repeats
//! messages, disks, crashes, clean stops, careless clients and changes of the members, all
//! generated from a seed.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paxoslease_core::{
    Acquire, Ballot, Cell, Config, Drift, DurableRegister, DurableWrite, Event, Holder, Instant,
    Label, Lasts, MemberSet, Name, NodeId, Record, Renew, Rng, Rules, Sets, Shard as Core,
    SnapshotLease, Start, Tenure, Token, Ttl,
};

use paxoslease_wire::{FrameReader, FrameWriter};

use crate::{Header, Sink, StartState, TracedShard};

const MS: u64 = 1_000_000;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// `max_lease`, in milliseconds.
const MAX_LEASE: u64 = 300;

/// A trace in memory.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().expect("no thread panicked").clone();
        String::from_utf8(bytes).expect("JSON is text")
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A fault of the harness that the core cannot commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// A snapshot reappears at the next start.
    SnapshotStays,
    /// A crash restores an older record.
    RecordIsLost,
    /// A start forgets the configuration.
    EpochIsLost,
    /// The change of the members ends without the wait of C6.
    EndIsEarly,
    /// A start forgets the registers of durable names.
    RegistersAreLost,
}

/// Who the members of a world are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cast {
    /// This many, for good.
    Fixed(u16),
    /// Nodes 1, 2 and 3, then 1, 2 and 4, and back again.
    Changing,
}

/// A decided configuration: the cell of one epoch, and the floor.
type Decided = (Cell, Ballot);

struct Machine {
    id: NodeId,
    shard: Option<TracedShard>,
    ppm: i64,
    record: Option<Record>,
    old_record: Option<Record>,
    writing: Option<(u64, Record)>,
    snapshot: Option<Snapshot>,
    /// The registers on disk, and the writes that have not reached it.
    registers: BTreeMap<String, DurableRegister>,
    queued: VecDeque<(u64, DurableWrite)>,
    starts: u64,
    /// W2: the place of its configuration in the list of all, and the ballot ceiling with it.
    epoch: usize,
    ceiling_min: u64,
    /// When it started in this epoch or changed over to it.
    in_epoch_since: u64,
}

/// The snapshot of a clean stop, and the place of its configuration.
type Snapshot = (usize, Vec<(String, Tenure, Ttl, bool)>);

/// A tenure that a client still uses.
#[derive(Clone, Copy)]
struct Held {
    name: usize,
    tenure: Tenure,
    is_durable: bool,
}

struct Packet {
    due: u64,
    from: usize,
    to: usize,
    frame: Vec<u8>,
}

/// An acquire that was sent: through which machine, for which name.
#[derive(Clone, Copy)]
struct Asked {
    at: usize,
    name: usize,
    token: Token,
    is_durable: bool,
}

impl Machine {
    /// The first of the writes that wait reach the disk. Returns the last of these.
    fn write(&mut self, count: usize) -> Option<u64> {
        let mut last = None;
        for (sequence, write) in self.queued.drain(..count) {
            match write {
                DurableWrite::Register(register) => {
                    drop(self.registers.insert(register.name().to_string(), register));
                }
                DurableWrite::Forget(label) => {
                    drop(self.registers.remove(label.name().as_str()));
                }
                DurableWrite::Clear => self.registers.clear(),
                DurableWrite::Tick => {}
            }
            last = Some(sequence);
        }
        last
    }
}

pub(crate) struct World {
    rng: Rng,
    cast: Cast,
    decided: Vec<Decided>,
    rules: Rules,
    fault: Fault,
    is_patient: bool,
    /// Whether some clients ask for durable leases.
    has_durable: bool,
    now: u64,
    machines: Vec<Machine>,
    network: Vec<Packet>,
    held: Vec<Held>,
    asked: Vec<Asked>,
    tokens: u64,
    traces: Vec<(String, Memory)>,
}

impl World {
    pub(crate) fn new(seed: u64, cast: Cast, rules: Rules, fault: Fault) -> Self {
        let (members, all) = match cast {
            Cast::Fixed(members) => (members, members),
            Cast::Changing => (3, 4),
        };
        let nodes: Vec<NodeId> = (1..=all).filter_map(NodeId::new).collect();
        let members = &nodes[..usize::from(members)];
        let drift = Drift::new(50_000, Duration::from_millis(1)).expect("in bounds");
        let max_lease = Ttl::from_millis(MAX_LEASE as u32).expect("not zero");
        let cell = Cell::new(members, max_lease, drift).expect("valid");
        let machine = |(at, id)| Machine {
            id,
            shard: None,
            ppm: [0, 45_000, -45_000, 0, 0][at],
            record: None,
            old_record: None,
            writing: None,
            snapshot: None,
            registers: BTreeMap::new(),
            queued: VecDeque::new(),
            starts: 0,
            epoch: 0,
            ceiling_min: 0,
            in_epoch_since: 0,
        };
        let mut world = Self {
            rng: Rng::seeded(seed),
            cast,
            decided: vec![(cell, Ballot::ZERO)],
            rules,
            fault,
            is_patient: seed % 2 == 1,
            has_durable: seed % 4 > 1,
            now: 1_000 * MS,
            machines: nodes.into_iter().enumerate().map(machine).collect(),
            network: Vec::new(),
            held: Vec::new(),
            asked: Vec::new(),
            tokens: 0,
            traces: Vec::new(),
        };
        (0..world.machines.len()).for_each(|at| world.start(at));
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.below(Duration::from_nanos(below)).as_nanos() as u64
    }

    fn clock(&self, at: usize) -> Instant {
        let rate = (1_000_000 + self.machines[at].ppm) as u128;
        Instant::from_nanos((u128::from(self.now) * rate / 1_000_000) as u64)
    }

    fn start(&mut self, at: usize) {
        let now = self.clock(at);
        let machine = &mut self.machines[at];
        if self.fault == Fault::EpochIsLost && machine.starts > 0 {
            machine.epoch = 0;
        }
        machine.in_epoch_since = self.now;
        let cell = self.decided[machine.epoch].0;
        let mut config = Config::new(machine.id, cell, 7 + machine.starts);
        config.rules = self.rules;
        // Some nodes give up soon and retry, others wait until it is too late.
        let patience = Duration::from_millis(if self.is_patient { 400 } else { 30 });
        (config.attempt_timeout, config.attempt_timeout_min) = (patience, patience / 3);
        config.reclaim_after = Duration::from_millis(20);
        let snapshot = match self.fault {
            Fault::SnapshotStays => machine.snapshot.clone(),
            Fault::EpochIsLost => machine.snapshot.take(),
            _ => machine.snapshot.take().filter(|(epoch, _)| *epoch == machine.epoch),
        };
        let (core, start_state) = match (machine.record, snapshot) {
            (None, _) => {
                let start = Start::NewCell { counter: 0, disk: true };
                (Core::start(config.clone(), now, start), start.into())
            }
            (Some(record), None) => {
                let start = Start::Crash(record);
                (Core::start(config.clone(), now, start), start.into())
            }
            (Some(record), Some((_, leases))) => {
                let leases = leases.iter().map(|(name, tenure, remaining, dated)| SnapshotLease {
                    name: Name::new(name).expect("a name"),
                    holder: Holder::NONE,
                    tenure: *tenure,
                    remaining: *remaining,
                    is_dated: *dated,
                });
                let core = Core::start_from_snapshot(config.clone(), now, record, leases);
                let start_state = StartState::snapshot(record, &core, now);
                (core, start_state)
            }
        };
        machine.starts += 1;
        let memory = Memory::default();
        self.traces.push((format!("{}.{}", machine.id, machine.starts), memory.clone()));
        let header = Header::new(&config, 0, now, machine.ppm, start_state);
        let mut shard = TracedShard::new(core, header, Sink::new(Box::new(memory)));
        let is_lost = self.fault == Fault::RegistersAreLost;
        for register in machine.registers.values().filter(|_| !is_lost) {
            shard.restore_durable(now, register.clone());
        }
        machine.shard = Some(shard);
        self.collect(at);
    }

    fn crash(&mut self, at: usize) {
        self.lose_writes(at);
        let machine = &mut self.machines[at];
        (machine.shard, machine.writing) = (None, None);
        if self.fault == Fault::RecordIsLost {
            machine.record = machine.old_record;
        }
    }

    /// Any number of the first writes survive the end of a process.
    fn lose_writes(&mut self, at: usize) {
        let count = self.draw(self.machines[at].queued.len() as u64 + 1) as usize;
        let machine = &mut self.machines[at];
        machine.write(count);
        machine.queued.clear();
    }

    fn stop(&mut self, at: usize) {
        self.lose_writes(at);
        let now = self.clock(at);
        let machine = &mut self.machines[at];
        let Some(shard) = machine.shard.take() else { return };
        machine.writing = None;
        if let Some(snapshot) = shard.stop(now) {
            let leases = snapshot.leases();
            let leases =
                leases.map(|one| (one.name.to_string(), one.tenure, one.remaining, one.is_dated));
            machine.snapshot = Some((machine.epoch, leases.collect()));
        }
    }

    /// Collects the outputs of a shard.
    fn collect(&mut self, at: usize) {
        let own = self.machines[at].id;
        loop {
            let Some(shard) = &mut self.machines[at].shard else { return };
            if let Some(event) = shard.poll_event() {
                self.happened(at, event);
                continue;
            }
            let Some(transmit) = shard.poll_transmit() else { return };
            let cell = shard.config().cell;
            let mut writer = FrameWriter::new(own);
            writer.set_epoch(cell.epoch());
            assert!(writer.push(&transmit.message()));
            let frame = writer.finish(0).to_vec();
            for to in transmit.receivers(&cell) {
                let copies = [1, 1, 1, 1, 1, 1, 1, 2, 0, 2][self.draw(10) as usize];
                for _ in 0..copies {
                    let late = [1, 2, 3, 8, 40, 250][self.draw(6) as usize] * MS;
                    let due = self.now + 1 + self.draw(late);
                    let (to, frame) = (usize::from(to.get()) - 1, frame.clone());
                    self.network.push(Packet { due, from: at, to, frame });
                }
            }
        }
    }

    fn happened(&mut self, at: usize, event: Event) {
        match event {
            Event::Granted { token, tenure, .. } => {
                if let Some(found) = self.asked.iter().position(|asked| asked.token == token) {
                    let Asked { name, is_durable, .. } = self.asked.remove(found);
                    self.held.push(Held { name, tenure, is_durable });
                }
            }
            Event::Persist(record) => {
                let delay = self.draw(6) * MS;
                self.machines[at].writing = Some((self.now + delay, record));
            }
            Event::Durable { sequence, write } => {
                self.machines[at].queued.push_back((sequence, *write));
            }
            _ => {}
        }
    }

    /// Lets some time pass, then performs one random action.
    pub(crate) fn step(&mut self) {
        self.now += 1 + self.draw(3 * MS);
        for at in 0..self.machines.len() {
            let now = self.clock(at);
            let machine = &mut self.machines[at];
            if let Some((due, record)) = machine.writing
                && due <= self.now
                && let Some(shard) = &mut machine.shard
            {
                machine.old_record = machine.old_record.or(machine.record);
                let ballot_ceiling = record.ballot_ceiling.max(machine.ceiling_min);
                machine.record = Some(Record { ballot_ceiling, ..record });
                machine.writing = None;
                shard.record_written(now, record);
            }
            let queued = self.machines[at].queued.len() as u64;
            if queued > 0 && self.draw(3) == 0 {
                let count = 1 + self.draw(queued) as usize;
                let machine = &mut self.machines[at];
                if let (Some(last), Some(shard)) = (machine.write(count), &mut machine.shard) {
                    shard.durable_written(now, last);
                }
            }
            let machine = &mut self.machines[at];
            // A process that wakes up late receives late answers first.
            let is_slow = self.is_patient && (self.now / (100 * MS) + at as u64).is_multiple_of(2);
            if !is_slow && let Some(shard) = &mut machine.shard {
                shard.handle_timeout(now);
            }
            self.collect(at);
        }
        while let Some(found) = self.network.iter().position(|packet| packet.due <= self.now) {
            let Packet { from, to, frame, .. } = self.network.swap_remove(found);
            let (now, from) = (self.clock(to), self.machines[from].id);
            let Some(shard) = &mut self.machines[to].shard else { continue };
            let reader = FrameReader::new(&frame).expect("written here");
            if shard.admit_epoch(reader.header().epoch).is_err() {
                continue;
            }
            for message in reader {
                // The trace contains the refusal.
                let _refused = shard.handle_message(now, from, message.expect("written here"));
            }
            self.collect(to);
        }
        let at = self.draw(self.machines.len() as u64) as usize;
        if self.cast == Cast::Changing {
            self.change(at);
        }
        self.act(at);
        self.collect(at);
    }

    /// Decides the next configuration, or lets a machine adopt one.
    fn change(&mut self, at: usize) {
        let last = self.decided.len() - 1;
        match self.draw(12) {
            0 => self.decide(),
            // Epochs may be skipped.
            1 => self.adopt(at, last),
            2..=4 => self.adopt(at, self.machines[at].epoch + 1),
            _ => {}
        }
    }

    /// C2, W2.
    fn adopt(&mut self, at: usize, epoch: usize) {
        let now = self.clock(at);
        let machine = &mut self.machines[at];
        let Some((cell, floor)) = self.decided.get(epoch).copied() else { return };
        let Some(shard) = &mut machine.shard else { return };
        if epoch <= machine.epoch {
            return;
        }
        (machine.epoch, machine.in_epoch_since) = (epoch, self.now);
        machine.ceiling_min = machine.ceiling_min.max(Record::above(floor));
        let record = machine.record.unwrap_or_default();
        let ballot_ceiling = record.ballot_ceiling.max(machine.ceiling_min);
        machine.record = Some(Record { ballot_ceiling, ..record });
        shard.adopt(now, cell, floor);
        self.collect(at);
    }

    /// C3, C4, C6: a majority of the old set decides, if it is up and has waited.
    fn decide(&mut self) {
        let last = self.decided.len() - 1;
        let (cell, floor) = self.decided[last];
        let old: Vec<NodeId> = cell.nodes(cell.old_set()).collect();
        let aborts = self.draw(8) == 0;
        let wait = if self.fault == Fault::EndIsEarly { 0 } else { (MAX_LEASE * 5 / 4 + 10) * MS };
        let wait = if cell.is_joint() && !aborts { wait } else { 0 };
        let voters = self.machines.iter().filter(|machine| {
            old.contains(&machine.id)
                && machine.epoch == last
                && machine.in_epoch_since + wait <= self.now
        });
        let tops: Vec<u64> = voters.filter_map(|one| Some(one.shard.as_ref()?.counter())).collect();
        if 2 * tops.len() <= old.len() {
            return;
        }
        let floor = tops.into_iter().map(Ballot::above_counter).fold(floor, Ballot::max);
        let new: Vec<NodeId> = cell.nodes(cell.new_set()).collect();
        let other = if old.last() == NodeId::new(4).as_ref() { 3 } else { 4 };
        let begun: Vec<NodeId> = [1, 2, other].into_iter().filter_map(NodeId::new).collect();
        let (sets, era) = match (cell.is_joint(), aborts) {
            (false, _) => (Sets { old: &old, new: &begun }, cell.era()),
            (true, false) => (Sets { old: &new, new: &[] }, cell.epoch()),
            (true, true) => (Sets { old: &old, new: &[] }, cell.era()),
        };
        let next = cell.in_epoch(cell.epoch() + 1, era, sets).expect("valid");
        self.decided.push((next, floor));
    }

    fn act(&mut self, at: usize) {
        let now = self.clock(at);
        let (kind, name) = (self.draw(60), self.draw(NAMES.len() as u64) as usize);
        let ttl = Duration::from_millis(60 + self.draw(MAX_LEASE - 59));
        let wait = Duration::from_millis(self.draw(80));
        let held = match self.held.len() as u64 {
            0 => None,
            count => Some(self.draw(count) as usize),
        };
        self.tokens += 1;
        let token = Token(self.tokens);
        match self.draw(400) {
            0 | 1 => return self.crash(at),
            2 | 3 => return self.stop(at),
            _ => {}
        }
        if kind < 12 && self.machines[at].shard.is_none() {
            return self.start(at);
        }
        let forgets = self.draw(2) == 0;
        let Some(shard) = &mut self.machines[at].shard else { return };
        let named = |name: usize| Name::new(NAMES[name]).expect("a name");
        // A full shard or too long a ttl is refused, and the trace contains that.
        let lasts = Lasts::from_millis(ttl.as_millis() as u64 * 3).expect("not zero");
        match (kind, held) {
            (0..=20, _) => {
                let (holder, name_text) = (Holder::new("me").expect("short"), named(name));
                let acquire = Acquire { token, name: name_text, holder, ttl, wait };
                let is_durable = self.has_durable && forgets;
                let _refused = if is_durable {
                    shard.acquire_durable(now, acquire, lasts)
                } else {
                    shard.acquire(now, acquire)
                };
                self.asked.push(Asked { at, name, token, is_durable });
            }
            (21..=30, Some(held)) if self.held[held].is_durable => {
                let Held { name, tenure, .. } = self.held[held];
                let label = Label::new(named(name), Holder::NONE);
                let _refused = shard.keep(now, token, label, tenure, lasts);
            }
            (39..=42, Some(held)) if self.held[held].is_durable => {
                let Held { name, tenure, .. } = self.held.swap_remove(held);
                let _refused = shard.release_durable(now, token, named(name), tenure, ttl);
            }
            (21..=38, Some(held)) => {
                let Held { name, tenure, .. } = self.held[held];
                let ttl = if kind == 21 { ttl * 4 } else { ttl };
                let (name_text, holder) = (named(name), Holder::NONE);
                let renew = Renew { token, name: name_text, holder, tenure, ttl };
                let _refused = shard.renew(now, renew);
                if kind == 22 {
                    // P8: the client abandons its renewal.
                    shard.abandon(now, named(name), token);
                }
            }
            (39..=42, Some(held)) => {
                let Held { name, tenure, .. } = self.held.swap_remove(held);
                let _refused = shard.release(now, token, named(name), tenure, ttl);
            }
            (43..=44, Some(held)) if forgets => drop(self.held.swap_remove(held)),
            (45..=47, _) => {
                if let Some(asked) = self.asked.iter().rev().find(|asked| asked.at == at) {
                    shard.abandon(now, named(asked.name), asked.token);
                }
            }
            (48..=50, _) => {
                shard.sweep(now, 100);
            }
            (51, _) => {
                let _refused = shard.inspect(now, token, named(name));
            }
            (52, _) => {
                let cell = shard.config().cell;
                let everyone = cell.everyone();
                let own = cell.member(shard.config().node).unwrap_or(MemberSet::EMPTY);
                shard.set_reachable(now, if forgets { own } else { everyone });
            }
            (53, _) => shard.set_round_trip(Duration::from_millis(1)),
            _ => {}
        }
    }

    /// How many times the members were decided.
    pub(crate) fn epochs(&self) -> usize {
        self.decided.len() - 1
    }

    /// The lines of every trace.
    pub(crate) fn lines(&self) -> Vec<(String, Vec<String>)> {
        let lines = |memory: &Memory| memory.text().lines().map(str::to_owned).collect();
        self.traces.iter().map(|(label, memory)| (label.clone(), lines(memory))).collect()
    }
}

/// A world that ran for `steps` steps.
pub(crate) fn played(seed: u64, cast: Cast, rules: Rules, fault: Fault, steps: u32) -> World {
    let mut world = World::new(seed, cast, rules, fault);
    for _ in 0..steps {
        world.step();
    }
    world
}
