//! The world: a queue of events in order of true time, and their effects on nodes, disks, the
//! network and clients.
//!
//! Its decisions come from its seed only. Faults come from the swarm or a script
//! (`world/script.rs`), nodes start and stop in `world/nodes.rs`, clients act in
//! `world/clients.rs`. After every event the checker sees what changed.

mod clients;
mod nodes;
mod script;

use std::collections::{BTreeMap, VecDeque};
use std::ops::AddAssign;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_core::{Cell, DurableWrite, NodeId, Tenure, Token};

use crate::algorithm::{Algorithm, Answer, Command, Disk, Output, Packet, Process, Tuning};
use crate::checker::{Check, Checker, Claim, Stored, Violation};
use crate::client::Client;
use crate::clock::Clock;
use crate::network::{Fate, FilterId, Link, Network};
use crate::rng::Rng;
use crate::trace::{Keep, TraceEvent, Tracer, TrueTime};

/// The number of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u32);

/// The parts of a world.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cell; its members must have the ids 1 to n.
    pub cell: Cell,
    /// The number of proposer-only nodes; their ids follow the members'.
    pub proposers: u16,
    /// One clock per node, members first. Missing clocks are perfect.
    pub clocks: Vec<Clock>,
    /// The names of leases.
    pub names: Vec<String>,
    /// Delays and bounds of the nodes.
    pub tuning: Tuning,
    /// The links between nodes.
    pub link: Link,
    /// The links between clients and nodes.
    pub client_link: Link,
    /// The range of the duration of a write; `None` if nodes have no disk.
    pub disk: Option<(Duration, Duration)>,
    /// The longest delay of a timer.
    pub timer_late_max: Duration,
    /// The interval of housekeeping.
    pub tick: Duration,
    /// The seed of all random numbers.
    pub seed: u64,
    /// How much of the trace is kept.
    pub keep: Keep,
}

impl Setup {
    /// A quiet world: perfect clocks, messages that take a millisecond, a quick disk.
    #[must_use]
    pub fn quiet(cell: Cell) -> Self {
        Self {
            cell,
            proposers: 0,
            clocks: Vec::new(),
            names: vec!["jobs/1".to_owned()],
            tuning: Tuning::default(),
            link: Link::steady(Duration::from_millis(1)),
            client_link: Link::steady(Duration::from_micros(10)),
            disk: Some((Duration::from_micros(100), Duration::from_micros(100))),
            timer_late_max: Duration::ZERO,
            tick: Duration::from_millis(100),
            seed: 1,
            keep: Keep::Nothing,
        }
    }
}

/// How often things happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Deliveries, timeouts, disk writes, client actions and faults.
    pub events: u64,
    /// Messages between nodes.
    pub messages: u64,
    /// Acquires granted.
    pub acquires: u64,
    /// Renewals granted.
    pub renewals: u64,
    /// Releases answered.
    pub releases: u64,
    /// Acquires denied because of a holder.
    pub denials: u64,
    /// Requests that found no majority.
    pub no_quorums: u64,
    /// Crashes.
    pub crashes: u64,
    /// Clean stops.
    pub stops: u64,
    /// Changes of the members that were decided.
    pub changes: u64,
    /// Data folders that were lost.
    pub lost_disks: u64,
    /// Those of them that were of members.
    pub lost_members: u64,
    /// Members that lost their data folder, and were removed later.
    pub lost_members_removed: u64,
    /// Ends of durable leases set.
    pub durable: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        // Names every field, so that none can be forgotten.
        let Self {
            events,
            messages,
            acquires,
            renewals,
            releases,
            denials,
            no_quorums,
            crashes,
            stops,
            changes,
            lost_disks,
            lost_members,
            lost_members_removed,
            durable,
        } = other;
        self.events += events;
        self.messages += messages;
        self.acquires += acquires;
        self.renewals += renewals;
        self.releases += releases;
        self.denials += denials;
        self.no_quorums += no_quorums;
        self.crashes += crashes;
        self.stops += stops;
        self.changes += changes;
        self.lost_disks += lost_disks;
        self.lost_members += lost_members;
        self.lost_members_removed += lost_members_removed;
        self.durable += durable;
    }
}

/// Nodes, clients, and everything between them.
#[derive(Debug)]
pub struct World<A: Algorithm> {
    algorithm: A,
    setup: Setup,
    now: TrueTime,
    /// By time and number: the node at which it happens, unused for events of clients.
    queue: BTreeMap<(TrueTime, u64), (u16, WorldEvent)>,
    scheduled: u64,
    nodes: Vec<NodeState<A::Process>>,
    clients: Vec<Client>,
    network: Network,
    held: BTreeMap<FilterId, Vec<Delivery>>,
    rng: Rng,
    client_rng: Rng,
    tracer: Tracer,
    checker: Checker,
    counts: Counts,
    outputs: Vec<Output>,
}

#[derive(Debug)]
struct NodeState<P> {
    clock: Clock,
    disk: Option<Disk>,
    process: Option<P>,
    /// Odd while a process runs, then even: no two runs have the same number.
    run: u32,
    /// A write under way, which may or may not survive a crash.
    writing: Option<Vec<u8>>,
    /// Writes of durable leases, of which any number of the first may survive a crash.
    durable: VecDeque<(u64, DurableWrite)>,
    /// Whether some of them are being synced.
    is_syncing: bool,
    timer_at: Option<TrueTime>,
    paused_until: Option<TrueTime>,
    backlog: VecDeque<WorldEvent>,
}

impl<P> NodeState<P> {
    /// The first of the writes of durable leases reach the disk.
    fn write_durable(&mut self, count: usize) {
        for (_, write) in self.durable.drain(..count) {
            if let Some(disk) = &mut self.disk {
                disk.write(write);
            }
        }
    }
}

/// A message in flight.
#[derive(Clone, Debug)]
struct Delivery {
    number: u64,
    from: u16,
    to: u16,
    kind: &'static str,
    bytes: Rc<[u8]>,
}

#[derive(Clone, Debug)]
enum WorldEvent {
    Delivery(Delivery),
    Timer,
    Tick,
    Resumed,
    Written { run: u32, bytes: Vec<u8> },
    Confirmed { run: u32, bytes: Vec<u8> },
    Synced { run: u32, sequence: u64 },
    SyncConfirmed { run: u32, sequence: u64 },
    Requested { client: u32, token: Token, command: Command },
    Answered { client: u32, token: Token, answer: Answer },
    Woken { client: u32 },
}

/// What wall clocks show when a world begins, in milliseconds.
const WALL_MILLIS: u64 = 1_700_000_000_000;

impl<A: Algorithm> World<A> {
    /// A world in which every node has just started for the first time.
    ///
    /// # Panics
    /// When the members' ids are not 1 to n.
    #[must_use]
    pub fn new(algorithm: A, setup: Setup) -> Self {
        let members = setup.cell.members();
        let in_order = members.iter().zip(1..).all(|(node, id)| node.get() == id);
        assert!(in_order, "the members' ids are 1 to n");
        let count = members.len() as u16 + setup.proposers;
        let nodes = (0..usize::from(count))
            .map(|place| NodeState {
                clock: setup.clocks.get(place).cloned().unwrap_or_else(Clock::perfect),
                disk: setup.disk.map(|_| Disk::default()),
                process: None,
                run: 0,
                writing: None,
                durable: VecDeque::new(),
                is_syncing: false,
                timer_at: None,
                paused_until: None,
                backlog: VecDeque::new(),
            })
            .collect::<Vec<_>>();
        let names = setup.names.len();
        let checks = algorithm.checks();
        let mut world = Self {
            algorithm,
            now: TrueTime(0),
            queue: BTreeMap::new(),
            scheduled: 0,
            network: Network::new(setup.link, count),
            held: BTreeMap::new(),
            rng: Rng::new(setup.seed, 1),
            client_rng: Rng::new(setup.seed, 2),
            tracer: Tracer::new(setup.keep),
            checker: Checker::new(checks, members.len() as u16, nodes.len(), names),
            counts: Counts::default(),
            outputs: Vec::new(),
            clients: Vec::new(),
            nodes,
            setup,
        };
        for id in 1..=count {
            world.start(id);
        }
        world
    }

    /// The nodes' ids, members first.
    #[must_use]
    pub fn node_ids(&self) -> std::ops::RangeInclusive<u16> {
        1..=self.nodes.len() as u16
    }

    fn state(&mut self, id: u16) -> &mut NodeState<A::Process> {
        &mut self.nodes[usize::from(id) - 1]
    }

    fn schedule(&mut self, at: TrueTime, node: u16, event: WorldEvent) {
        let order = self.number();
        self.queue.insert((at, order), (node, event));
    }

    fn schedule_in(&mut self, nanos: u64, node: u16, event: WorldEvent) {
        self.schedule(TrueTime(self.now.0.saturating_add(nanos)), node, event);
    }

    /// Runs the next event, unless it is after `end`. Returns whether it ran one.
    pub(crate) fn step(&mut self, end: TrueTime) -> bool {
        let Some(next) = self.queue.first_entry().filter(|next| next.key().0 <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        let ((at, _), (node, event)) = next.remove_entry();
        self.now = at;
        self.dispatch(node, event);
        true
    }

    fn dispatch(&mut self, node: u16, event: WorldEvent) {
        match event {
            WorldEvent::Answered { client, token, answer } => {
                self.counts.events += 1;
                self.answered(client, token, answer);
            }
            WorldEvent::Woken { client } => self.woken(client),
            WorldEvent::Resumed => self.resume(node),
            WorldEvent::Written { run, bytes } => self.written(node, run, bytes),
            WorldEvent::Synced { run, sequence } => self.synced(node, run, sequence),
            event if self.state(node).paused_until.is_some() => {
                self.state(node).backlog.push_back(event);
            }
            event => self.dispatch_running(node, event),
        }
    }

    fn dispatch_running(&mut self, id: u16, event: WorldEvent) {
        let now_true = self.now;
        match event {
            WorldEvent::Delivery(delivery) => {
                let Delivery { number, from, bytes, .. } = delivery;
                self.tracer.hash(&[self.now.0, 1, number]);
                if self.state(id).process.is_none() {
                    self.tracer.record(self.now, || TraceEvent::Lost(number));
                    return;
                }
                self.tracer.record(self.now, || TraceEvent::Delivered(number));
                let from = NodeId::new(from).expect("nodes' ids are in bounds");
                self.with(id, |process, now| process.handle_message(now, from, &bytes));
            }
            WorldEvent::Timer => {
                let state = self.state(id);
                if state.timer_at.is_some_and(|at| at <= now_true) {
                    state.timer_at = None;
                    self.with(id, Process::handle_timeout);
                }
            }
            WorldEvent::Tick => {
                self.with(id, Process::handle_tick);
                let tick = self.setup.tick.as_nanos() as u64;
                self.schedule_in(tick, id, WorldEvent::Tick);
            }
            WorldEvent::Confirmed { run, bytes } => {
                if self.state(id).run == run {
                    self.with(id, |process, now| process.handle_persisted(now, &bytes));
                }
            }
            WorldEvent::SyncConfirmed { run, sequence } => {
                if self.state(id).run == run {
                    self.with(id, |process, now| process.handle_durable(now, sequence));
                }
            }
            WorldEvent::Requested { client, token, command } => {
                self.requested(id, client, token, command);
            }
            WorldEvent::Answered { .. }
            | WorldEvent::Woken { .. }
            | WorldEvent::Resumed
            | WorldEvent::Synced { .. }
            | WorldEvent::Written { .. } => unreachable!("handled before pauses"),
        }
    }

    /// Calls a running process, then carries out its outputs.
    fn with(&mut self, id: u16, call: impl FnOnce(&mut A::Process, paxoslease_core::Instant)) {
        let now_true = self.now;
        let state = self.state(id);
        let Some(process) = &mut state.process else { return };
        call(process, state.clock.read(now_true));
        self.counts.events += 1;
        self.settle(id);
    }

    fn settle(&mut self, id: u16) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let state = self.state(id);
        if let Some(process) = &mut state.process {
            outputs.extend(std::iter::from_fn(|| process.poll_output()));
        }
        self.check_stored(id);
        for output in outputs.drain(..) {
            match output {
                Output::Send(packet) => self.send(id, packet),
                Output::Persist(bytes) => self.persist(id, bytes),
                Output::Durable(sequence, write) => {
                    self.state(id).durable.push_back((sequence, *write));
                    self.sync(id);
                }
                Output::Answer(token, answer) => self.answer(id, token, answer),
                Output::Unasked(token) => {
                    let text = || format!("node {id} answers {token:?}, which is not open");
                    self.report(Check::AnsweredOnce, text);
                }
            }
        }
        self.outputs = outputs;
        self.arm(id);
    }

    /// Shows the checker what the acceptor stores now.
    fn check_stored(&mut self, id: u16) {
        if id > self.setup.cell.members().len() as u16 {
            return;
        }
        for name in 0..self.setup.names.len() {
            let stored = self.stored(id, name);
            let place = usize::from(id) - 1;
            let before = self.checker.stored(place, name);
            if stored != before {
                self.trace_stored(id, name, before, stored);
                self.checker.stores(self.now, place, name, stored);
                self.trace_violations();
            }
        }
    }

    fn stored(&self, id: u16, name: usize) -> Stored {
        let before = self.checker.stored(usize::from(id) - 1, name);
        let clock = &self.nodes[usize::from(id) - 1].clock;
        Stored::seen(self.view(id, name), clock, self.now, before)
    }

    fn trace_stored(&mut self, id: u16, name: usize, before: Stored, stored: Stored) {
        let fence = stored.lease.map_or(0, |(tenure, _)| tenure.fence());
        self.tracer.hash(&[self.now.0, 2, u64::from(id), stored.promised.as_u64(), fence]);
        if !self.tracer.is_kept() {
            return;
        }
        let (node, name) = (id, self.setup.names[name].clone());
        if stored.promised > before.promised {
            let (name, ballot) = (name.clone(), stored.promised.to_string());
            self.tracer.record(self.now, || TraceEvent::Promised { node, name, ballot });
        }
        match stored.lease {
            Some((_, until)) if stored.lease != before.lease => {
                self.tracer.record(self.now, || TraceEvent::Stored { node, name, fence, until });
            }
            None if before.lease.is_some_and(|(_, until)| until > self.now) => {
                self.tracer.record(self.now, || TraceEvent::Cleared { node, name });
            }
            _ => {}
        }
    }

    fn trace_violations(&mut self) {
        if self.tracer.is_kept() {
            for violation in self.checker.unreported() {
                let text = format!("{:?}: {}", violation.check, violation.text);
                self.tracer.record(violation.at, || TraceEvent::Violation(text));
            }
        }
    }

    fn send(&mut self, from: u16, packet: Packet) {
        self.counts.messages += 1;
        self.checker.sent(self.now, usize::from(from) - 1, &packet);
        self.trace_violations();
        let to = packet.to.get();
        let Packet { kind, bytes, .. } = packet;
        let fate = self.network.fate(&mut self.rng, from, to, kind);
        let number = self.number();
        self.tracer.hash(&[self.now.0, 3, u64::from(from) << 16 | u64::from(to)]);
        self.tracer.hash_bytes(&bytes);
        self.trace_sent(number, from, to, &bytes);
        let delivery = Delivery { number, from, to, kind, bytes };
        match fate {
            Fate::Lost => self.tracer.record(self.now, || TraceEvent::Lost(number)),
            Fate::Held(filter) => self.held.entry(filter).or_default().push(delivery),
            Fate::Arrives([first, second]) => {
                if let Some(delay) = second {
                    self.post_copy(&delivery, delay);
                }
                self.schedule_in(first.unwrap_or(0), to, WorldEvent::Delivery(delivery));
            }
            Fate::Repeats(times) => {
                for _ in 0..times {
                    let delay = self.network.link.delay(&mut self.rng);
                    self.post_copy(&delivery, delay);
                }
            }
        }
    }

    fn post_copy(&mut self, delivery: &Delivery, delay: u64) {
        let number = self.number();
        self.trace_sent(number, delivery.from, delivery.to, &delivery.bytes);
        let copy = Delivery { number, ..delivery.clone() };
        self.schedule_in(delay, delivery.to, WorldEvent::Delivery(copy));
    }

    fn number(&mut self) -> u64 {
        self.scheduled += 1;
        self.scheduled
    }

    fn trace_sent(&mut self, message: u64, from: u16, to: u16, bytes: &[u8]) {
        let algorithm = &self.algorithm;
        self.tracer.record(self.now, || {
            let text = algorithm.describe(bytes);
            TraceEvent::Sent { message, from, to, text }
        });
    }

    fn persist(&mut self, id: u16, bytes: Vec<u8>) {
        let delay = self.rng.span(self.setup.disk.unwrap_or_default()).as_nanos() as u64;
        let state = self.state(id);
        let run = state.run;
        state.writing = Some(bytes.clone());
        self.schedule_in(delay, id, WorldEvent::Written { run, bytes });
    }

    /// A write reached the disk. The node learns of it a little later, if it still runs.
    fn written(&mut self, id: u16, run: u32, bytes: Vec<u8>) {
        let state = self.state(id);
        if state.run != run {
            return;
        }
        state.writing = None;
        if let Some(disk) = &mut state.disk {
            disk.record = Some(bytes.clone());
        }
        self.tracer.hash(&[self.now.0, 4, u64::from(id)]);
        self.tracer.hash_bytes(&bytes);
        let (min, _) = self.setup.disk.unwrap_or_default();
        let delay = self.rng.up_to(min).as_nanos() as u64;
        self.schedule_in(delay, id, WorldEvent::Confirmed { run, bytes });
    }

    /// Syncs all writes of durable leases at once, unless others are being synced.
    fn sync(&mut self, id: u16) {
        let state = &self.nodes[usize::from(id) - 1];
        let Some((sequence, _)) = state.durable.back().filter(|_| !state.is_syncing) else {
            return;
        };
        let (run, sequence) = (state.run, *sequence);
        let delay = self.rng.span(self.setup.disk.unwrap_or_default()).as_nanos() as u64;
        self.state(id).is_syncing = true;
        self.schedule_in(delay, id, WorldEvent::Synced { run, sequence });
    }

    /// These writes reached the disk. The node learns of it a little later, if it still runs.
    fn synced(&mut self, id: u16, run: u32, sequence: u64) {
        let state = self.state(id);
        if state.run != run {
            return;
        }
        let count = state.durable.iter().take_while(|(number, _)| *number <= sequence).count();
        state.write_durable(count);
        state.is_syncing = false;
        self.tracer.hash(&[self.now.0, 12, u64::from(id), sequence]);
        let (min, _) = self.setup.disk.unwrap_or_default();
        let delay = self.rng.up_to(min).as_nanos() as u64;
        self.schedule_in(delay, id, WorldEvent::SyncConfirmed { run, sequence });
        self.sync(id);
    }

    fn answer(&mut self, id: u16, token: Token, answer: Answer) {
        let client = (token.0 >> 32) as u32;
        let name = self.clients[client as usize].name;
        let (tag, tenure) = match answer {
            Answer::Granted { tenure, .. } => {
                self.counts.acquires += 1;
                // A change may have raised the fence, so no acceptor need have accepted it.
                let is_fresh = token.0 & clients::DURABLE_ACQUIRE == 0;
                self.checker.granted(self.now, name, tenure, is_fresh);
                (1, Some(tenure))
            }
            Answer::Renewed { tenure, ttl, started_at } => {
                self.counts.renewals += 1;
                self.checker.granted(self.now, name, tenure, false);
                let stands = self.clients[client as usize].stands;
                if let Some(started_at) = started_at.filter(|_| !stands) {
                    let drift = self.setup.cell.drift().with_rules(self.algorithm.rules());
                    let ends_at = drift.belief_ends_at(started_at, ttl);
                    let clock = &self.nodes[usize::from(id) - 1].clock;
                    let since = clock.first_shows(started_at);
                    let until = clock.first_shows(ends_at);
                    let claim = Claim { client, tenure, since, until, is_backed: true };
                    self.checker.may_believe(self.now, name, claim);
                }
                (2, Some(tenure))
            }
            Answer::Released => {
                self.counts.releases += 1;
                (3, None)
            }
            Answer::Denied => {
                self.counts.denials += 1;
                (4, None)
            }
            Answer::NoQuorum => {
                self.counts.no_quorums += 1;
                (5, None)
            }
            Answer::Kept { tenure, .. } => {
                self.counts.durable += 1;
                let pending = &self.clients[client as usize].pending;
                let asked = pending.iter().find(|pending| pending.token == token);
                let before = asked.map_or(0, |asked| asked.fence_before);
                self.checker.kept(self.now, name, tenure, before);
                (8, Some(tenure))
            }
            Answer::NotHeld => (6, None),
            Answer::Refused => (7, None),
        };
        self.trace_violations();
        let fence = tenure.map_or(0, Tenure::fence);
        self.tracer.hash(&[self.now.0, 5, u64::from(id), token.0, tag, fence]);
        for delay in self.setup.client_link.copies(&mut self.rng).into_iter().flatten() {
            self.schedule_in(delay, id, WorldEvent::Answered { client, token, answer });
        }
    }

    /// Schedules a node's next timeout, or a little later.
    fn arm(&mut self, id: u16) {
        let state = &self.nodes[usize::from(id) - 1];
        let Some(at) = state.process.as_ref().and_then(Process::next_timeout) else { return };
        let mut at = state.clock.first_shows(at).max(self.now);
        if at.0 == u64::MAX || state.timer_at.is_some_and(|armed| armed <= at) {
            return;
        }
        let late_max = self.setup.timer_late_max.as_nanos() as u64;
        if late_max > 0 {
            at.0 += self.rng.below(late_max);
        }
        self.state(id).timer_at = Some(at);
        self.schedule(at, id, WorldEvent::Timer);
    }

    /// The violations so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        self.checker.violations()
    }

    /// How often things happened.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}
