//! The steps of one node: the shipping [`Shard`], its disk, and a cache of every step taken.
//!
//! A world has few distinct node states and many combinations of them. So the real code computes
//! each step of a node once, and the search looks it up after that. Acceptors that do not propose
//! are interchangeable and share their states. This module also judges the rules that concern a
//! single step of one node.

mod epochs;
mod file;
mod judge;
mod restart;

pub(crate) use epochs::{Change, Configured};

use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use paxoslease_core::{
    Acquire, Ballot, Cell, Config, Decider, Drift, DurableMessage, DurableRegister, DurableValue,
    Event, Holder, Instant, Label, Lasts, Lens, MemberSet, Message, Name, NodeId, Phase, Record,
    Refusal, Renew, Reply, Request, Seen, Shard, Start, Tenure, To, Token, Transmit, Ttl,
};

use crate::bounds::{Bounds, ENDLESS, TICK};
use file::File;
use judge::{heals, judge, returned};

pub(crate) const NAMES: [&str; 2] = ["x", "y"];
pub(crate) const RENEWAL_TOKEN: u64 = 100;
pub(crate) const ADOPTED_TOKEN: u64 = 200;
pub(crate) const RELEASE_TOKEN: u64 = 300;
pub(crate) const KEEP_TOKEN: u64 = 500;
pub(crate) const DURABLE_RELEASE_TOKEN: u64 = 600;
const SWEEP_SLOTS: u32 = 8;

pub(crate) fn at(tick: u8) -> Instant {
    Instant::ZERO.after(TICK * u32::from(tick))
}

fn name(number: u8) -> Name<'static> {
    Name::new(NAMES[usize::from(number)]).expect("not empty")
}

/// An input of a node.
///
/// A client that renews an `adopted` tenure was not granted it. `Written` makes the record of the
/// node durable, and the node learns that. `Sync` does so with the next write of a register. With
/// `landed`, a write of the record that was under way reached the disk before the end, and `kept`
/// writes of registers did. The file time `is_exact` if no time is lost. `Stop` is clean (R4), and
/// `Start` follows it. A `Crash` in place of that `Start` is a crash during the start: the snapshot
/// is already deleted, and nothing is restored yet. `Adopt` changes over to a decided
/// configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    Deliver { from: u8, epoch: u8, content: u32 },
    Adopt { configured: u16 },
    Acquire { client: u8 },
    Abandon { client: u8 },
    Renew { client: u8, tenure: Tenure, ticks: u8, adopted: bool },
    Release { client: u8, tenure: Tenure },
    Keep { client: u8, tenure: Tenure, ticks: u8 },
    ReleaseDurable { client: u8, tenure: Tenure },
    Check { name: u8 },
    AbandonRenewal { client: u8 },
    Wake,
    Written,
    Sync,
    Crash { nth: u8, landed: bool, kept: u8, is_exact: bool },
    Stop { landed: bool },
    Start,
    Sweep,
}

/// The result of an input.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) next: u32,
    pub(crate) sent: Vec<(u8, u32)>,
    pub(crate) events: Vec<Event>,
    /// The highest ballot this node issued in this step.
    pub(crate) issued: Option<Ballot>,
    pub(crate) broken: Option<String>,
    /// The tenure that this acceptor stored although it had answered its Release (A8).
    pub(crate) returned: Option<Tenure>,
    /// Whether the node's counter rose, or one of its releases ended.
    learned: bool,
    /// Whether a Heal replaced a live lease of a lower tenure (A5).
    pub(crate) replaced: bool,
}

impl Outcome {
    fn nothing(node_state: u32) -> Self {
        Self {
            next: node_state,
            sent: Vec::new(),
            events: Vec::new(),
            issued: None,
            broken: None,
            returned: None,
            learned: false,
            replaced: false,
        }
    }

    /// Whether the node only counted an answer, so that no other node and no client can tell.
    pub(crate) fn is_silent(&self) -> bool {
        let is_fine = self.broken.is_none() && self.returned.is_none();
        self.sent.is_empty() && self.events.is_empty() && is_fine && !self.learned
    }
}

#[derive(Clone, Debug)]
struct NodeState {
    shard: Shard,
    proposes: bool,
    record: Record,
    /// The configuration that the node has adopted, and the one in the record.
    configured: u16,
    on_disk: u16,
    decider: Option<Box<Decider>>,
    /// C6: when this node entered its epoch or started, and how long it waits from then on.
    entered: (u8, Option<Ttl>),
    /// The record that is being written.
    writing: Option<Record>,
    file: File,
    snapshot: Option<Vec<StoppedLease>>,
    is_stopped: bool,
    /// The tenures whose Release this acceptor has answered. Only the judge reads them.
    released: Vec<Tenure>,
}

/// A lease in a snapshot: its name, its tenure, what is left of its record, its end, and whether it
/// is dated.
type StoppedLease = (u8, Tenure, Ttl, bool);

/// A question to nodes: the states of those that vote, the tick, the change, and which nodes vote.
type Decision = (Vec<u32>, u8, Change, u8);

/// What the search needs to know about a node state without running it.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    /// The identity of the state under each permutation of the acceptors.
    pub(crate) digests: Vec<u64>,
    pub(crate) wake_at: Option<Instant>,
    /// The lease that the acceptor stores for each name: its tenure and its end.
    pub(crate) stored: [Option<(Tenure, Instant)>; NAMES.len()],
    pub(crate) counter: u64,
    /// The rounds a reply can belong to.
    pub(crate) rounds: Vec<(Ballot, Phase)>,
    /// The releases under way: the tenure, the acceptors that confirmed, and whether they are
    /// enough.
    pub(crate) releases: Vec<(Tenure, MemberSet, bool)>,
    /// The tenures whose Release this acceptor has answered.
    pub(crate) released: Vec<Tenure>,
    /// The changes under way, and whether each stores its value already.
    pub(crate) changes: Vec<(Ballot, bool)>,
    /// By name: the tenure that the register holds, in memory and on disk.
    pub(crate) holds: [Option<Held>; NAMES.len()],
    pub(crate) holds_on_disk: [Option<Tenure>; NAMES.len()],
    /// The writes of registers under way, and whether the file time matters.
    pub(crate) pending: u8,
    pub(crate) has_ends: bool,
    pub(crate) is_writing: bool,
    pub(crate) is_stopped: bool,
    /// The configuration that the node has adopted.
    pub(crate) configured: u16,
}

/// What a register holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) tenure: Tenure,
    pub(crate) fence: Tenure,
    pub(crate) ends_at: Instant,
}

/// All node states found so far, and every step known from each.
pub(crate) struct NodeStates {
    bounds: Bounds,
    cell: Cell,
    configured: Vec<Configured>,
    decided: HashMap<Decision, Option<u16>, FixedState>,
    states: Vec<NodeState>,
    pub(crate) views: Vec<NodeView>,
    by_digest: HashMap<u64, u32, FixedState>,
    steps: HashMap<(u32, u8, Input), u32, FixedState>,
    outcomes: Vec<Outcome>,
    contents: Vec<Transmit>,
    by_content: HashMap<u64, u32, FixedState>,
    permutations: Vec<Vec<u8>>,
    hasher: FixedState,
}

impl NodeStates {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let members: Vec<u8> = match &bounds.members[..] {
            [] => (0..bounds.acceptors).collect(),
            members => members.to_vec(),
        };
        let max_lease = Ttl::from_duration(TICK * u32::from(bounds.max_ticks)).expect("positive");
        let ids: Vec<NodeId> = members.iter().map(|node| node_id(usize::from(*node))).collect();
        let cell = Cell::new(&ids, max_lease, Drift::NONE).expect("a valid cell");
        let configured = vec![Configured::first(cell, &members, !bounds.targets.is_empty())];
        let permutations = if bounds.is_symmetric() {
            permutations(bounds.acceptors)
        } else {
            vec![(0..bounds.acceptors).collect()]
        };
        Self {
            bounds: bounds.clone(),
            cell,
            configured,
            decided: HashMap::default(),
            states: Vec::new(),
            views: Vec::new(),
            by_digest: HashMap::default(),
            steps: HashMap::default(),
            outcomes: Vec::new(),
            contents: Vec::new(),
            by_content: HashMap::default(),
            permutations,
            hasher: FixedState::with_seed(1),
        }
    }

    pub(crate) fn permutations(&self) -> &[Vec<u8>] {
        &self.permutations
    }

    pub(crate) fn member(&self, node: usize) -> MemberSet {
        self.cell.member(node_id(node)).unwrap_or(MemberSet::EMPTY)
    }

    pub(crate) fn content(&self, content: u32) -> Message<'_> {
        self.normal(self.contents[content as usize].message())
    }

    /// Whether a node in this state may wake up now.
    pub(crate) fn is_due(&self, node_state: u32, now: Instant) -> bool {
        self.views[node_state as usize].wake_at.is_some_and(|at| at <= now)
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn first(&mut self, node: usize) -> u32 {
        let counter = self.bounds.counter(node);
        let start = Start::NewCell { counter, disk: self.bounds.disk };
        let shard = self.started(Shard::start(self.config(node, 0), at(0), start), node);
        let proposes = self.bounds.proposers == 0 || !self.bounds.is_acceptor(node);
        let mut node_state = NodeState {
            shard,
            proposes,
            record: Record::default(),
            configured: 0,
            on_disk: 0,
            decider: None,
            entered: (0, None),
            writing: None,
            file: File::default(),
            snapshot: None,
            is_stopped: false,
            released: Vec::new(),
        };
        self.drain(&mut node_state, at(0), node);
        // The first block of ballots was written when the cell was set up.
        node_state.written(at(0));
        node_state.decider = self.decider(node, 0, &node_state);
        self.intern(node_state)
    }

    /// How long a request is tried again. Without retries, it may time out at once.
    fn patience(&self) -> Duration {
        if self.bounds.retries { TICK * u32::from(self.bounds.ticks) } else { Duration::ZERO }
    }

    fn config(&self, node: usize, configured: u16) -> Config {
        // Acceptors that do not propose are interchangeable: acceptor 0 stands for all.
        let is_alike = self.bounds.is_symmetric() && self.bounds.is_acceptor(node);
        let stand_in = if is_alike { 0 } else { node };
        let cell = self.configured[usize::from(configured)].cell;
        let request_timeout = self.patience();
        let mut config = Config {
            direct_rounds: self.bounds.direct,
            attempt_timeout: TICK,
            attempt_timeout_min: TICK,
            request_timeout,
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
            stagger_max: Duration::ZERO,
            reclaim_after: Duration::ZERO,
            rules: self.bounds.rules,
            ..Config::new(node_id(stand_in), cell, 1)
        };
        if self.bounds.slow_disk {
            // The network keeps a copy of each message that does not fit. It may arrive again after
            // the write.
            config.limits.deferred_max = 1;
        }
        config
    }

    /// An acceptor that does not propose issues no ballot for a check either. It tries, when an end
    /// passes.
    fn started(&self, mut shard: Shard, node: usize) -> Shard {
        if self.bounds.has_registers() && self.bounds.proposers > 0 && self.bounds.is_acceptor(node)
        {
            shard.set_counter_bound(0);
        }
        shard
    }

    fn intern(&mut self, mut node_state: NodeState) -> u32 {
        if !self.bounds.confirmations {
            node_state.shard.forget_ended();
        }
        let digests: Vec<u64> = self
            .permutations
            .iter()
            .map(|places| {
                let mut hasher = self.hasher.build_hasher();
                node_state.shard.config().node.hash(&mut hasher);
                let lens = Lens { places, proposes: node_state.proposes, hints: false };
                node_state.shard.digest(lens, &mut hasher);
                (&node_state.record, &node_state.writing, &node_state.snapshot).hash(&mut hasher);
                node_state.file.hash(&mut hasher);
                (&node_state.released, node_state.is_stopped).hash(&mut hasher);
                (node_state.configured, node_state.on_disk, node_state.entered).hash(&mut hasher);
                hasher.finish()
            })
            .collect();
        let identity = digests[0];
        if let Some(known) = self.by_digest.get(&identity) {
            return *known;
        }
        let id = u32::try_from(self.states.len()).expect("fewer node states than that");
        let stored = [0, 1].map(|number| {
            let accepted = node_state.shard.register(name(number))?.accepted?;
            Some((accepted.tenure, accepted.expires_at))
        });
        let holds = [0, 1].map(|number| {
            let (register, _) = node_state.shard.durable_register(name(number))?;
            // Whether an end has passed does not depend on the clock (K3).
            let (tenure, fence) = node_state.shard.durably_held(Instant::ZERO, name(number))?;
            Some(Held { tenure, fence, ends_at: ends_at(&register) })
        });
        let holds_on_disk = [0, 1].map(|number| {
            let register = node_state.file.register(name(number))?;
            held_tenure(register)
        });
        self.views.push(NodeView {
            digests,
            changes: node_state.shard.changes(),
            holds,
            holds_on_disk,
            pending: node_state.file.pending() as u8,
            has_ends: node_state.file.has_ends(),
            wake_at: node_state.shard.poll_timeout(),
            stored,
            counter: node_state.shard.counter(),
            rounds: node_state.shard.rounds().map(|round| (round.ballot, round.phase)).collect(),
            releases: node_state.shard.releases(),
            released: node_state.released.clone(),
            is_writing: node_state.writing.is_some(),
            is_stopped: node_state.is_stopped,
            configured: node_state.configured,
        });
        self.states.push(node_state);
        self.by_digest.insert(identity, id);
        id
    }

    /// The outcome of an input; `None` when nothing changes.
    pub(crate) fn step(
        &mut self,
        node: usize,
        node_state: u32,
        tick: u8,
        input: Input,
    ) -> Option<&Outcome> {
        let key = (node_state, tick, input);
        let outcome = match self.steps.get(&key) {
            Some(known) => *known,
            None => {
                let outcome = self.run(node, node_state, tick, input);
                let nothing = outcome.next == node_state
                    && outcome.sent.is_empty()
                    && outcome.events.is_empty()
                    && outcome.broken.is_none();
                let id = if nothing {
                    u32::MAX
                } else {
                    self.outcomes.push(outcome);
                    u32::try_from(self.outcomes.len() - 1).expect("fewer steps than that")
                };
                self.steps.insert(key, id);
                id
            }
        };
        self.outcomes.get(outcome as usize)
    }

    /// Runs the step in the real code.
    fn run(&mut self, node: usize, node_state: u32, tick: u8, input: Input) -> Outcome {
        let before = &self.states[node_state as usize];
        let mut after = before.clone();
        let now = at(tick);
        let deferred = before.shard.deferred();
        let quarantined = !before.shard.quarantine_remaining(now).is_zero();
        let client = |client: u8| self.bounds.clients[usize::from(client)];
        match input {
            Input::Deliver { from, epoch, content } => {
                let message = self.content(content);
                let from = node_id(usize::from(from));
                let outcome = match after.shard.admit_epoch(u32::from(epoch)) {
                    Ok(()) => after.shard.handle_message(now, from, message),
                    Err(refusal) => Err(refusal),
                };
                debug_assert_ne!(outcome, Err(Refusal::BallotNotSenders));
                debug_assert!(self.bounds.slow_disk || outcome != Err(Refusal::RecordBehind));
                if let Message::Request(Request::Release { tenure, .. }) = message
                    && self.bounds.confirmations
                    && outcome.is_ok()
                    && !after.released.contains(&tenure)
                {
                    after.released.push(tenure);
                    after.released.sort_unstable();
                }
            }
            Input::Adopt { configured } => self.adopt(&mut after, tick, configured),
            Input::Acquire { client: number } => {
                let acquire = Acquire {
                    token: Token(u64::from(number)),
                    name: name(client(number).name),
                    holder: Holder::NONE,
                    ttl: TICK * u32::from(client(number).ticks),
                    wait: Duration::ZERO,
                };
                let asked = match client(number).lasts {
                    0 => after.shard.acquire(now, acquire),
                    ticks => after.shard.acquire_durable(now, acquire, lasts(ticks)),
                };
                asked.expect("within the bounds");
            }
            Input::Abandon { client: number } => {
                after.shard.abandon(now, name(client(number).name), Token(u64::from(number)));
            }
            Input::AbandonRenewal { client: number } => {
                let token = Token(RENEWAL_TOKEN + u64::from(number));
                after.shard.abandon(now, name(client(number).name), token);
            }
            Input::Renew { client: number, tenure, ticks, adopted } => {
                let base = if adopted { ADOPTED_TOKEN } else { RENEWAL_TOKEN };
                let token = Token(base + u64::from(number));
                let (name, holder) = (name(client(number).name), Holder::NONE);
                let ttl = TICK * u32::from(ticks);
                // The shard refuses a ttl above `max_lease`. A refusal is a valid answer.
                let _ = after.shard.renew(now, Renew { token, name, holder, tenure, ttl });
            }
            Input::Release { client: number, tenure } => {
                let token = Token(RELEASE_TOKEN + u64::from(number));
                let name = name(client(number).name);
                after.shard.release(now, token, name, tenure, TICK).expect("within the bounds");
            }
            Input::Keep { client: number, tenure, ticks } => {
                let token = Token(KEEP_TOKEN + u64::from(number));
                let label = Label::new(name(client(number).name), Holder::NONE);
                after.shard.keep(now, token, label, tenure, lasts(ticks)).expect("in bounds");
            }
            Input::ReleaseDurable { client: number, tenure } => {
                let token = Token(DURABLE_RELEASE_TOKEN + u64::from(number));
                let (name, patience) = (name(client(number).name), self.patience());
                let asked = after.shard.release_durable(now, token, name, tenure, patience);
                asked.expect("within the bounds");
            }
            Input::Check { name: number } => after.shard.check(now, name(number)),
            Input::Wake => after.shard.handle_timeout(now),
            Input::Written => after.written(now),
            Input::Sync => after.sync(now),
            Input::Crash { nth, landed, kept, is_exact } => {
                after.lose_power(landed);
                after.file.end(now, kept, is_exact);
                after.configured = after.on_disk;
                self.crash(&mut after, node, now, tick, nth);
                self.start_decider(&mut after, node, tick);
            }
            Input::Stop { landed } => {
                after.lose_power(landed);
                self.stop(&mut after, node, now);
            }
            Input::Start => {
                self.restart(&mut after, node, now);
                self.start_decider(&mut after, node, tick);
            }
            Input::Sweep => {
                after.shard.sweep(now, SWEEP_SLOTS);
                after.shard.sweep(now, SWEEP_SLOTS);
            }
        }
        let (sent, events, issued) = self.drain(&mut after, now, node);
        let waits = matches!(input, Input::Deliver { .. }) && after.shard.deferred() > deferred;
        if waits && !self.bounds.slow_disk {
            // A request that waits for the write of a register is one that arrives later. One that
            // waits for the record has asked for a higher ceiling.
            return Outcome::nothing(node_state);
        }
        let returned = returned(&after, now, input, self);
        let restarted = matches!(input, Input::Crash { .. } | Input::Stop { .. } | Input::Start);
        let (mut broken, mut replaced) = (None, false);
        if !restarted {
            let before = &self.states[node_state as usize].shard;
            broken = judge(before, &after.shard, now, input, self);
            replaced = (0..NAMES.len() as u8).any(|number| {
                let live = |shard: &Shard| shard.register(name(number))?.live(now);
                let (old, new) = (live(before), live(&after.shard));
                heals(old, new, input, self)
            });
            let answers =
                sent.iter().any(|(_, content)| matches!(self.content(*content), Message::Reply(_)));
            if quarantined && answers {
                broken = Some("an answer while quarantined".into());
            }
        }
        let before = &self.states[node_state as usize].shard;
        let tenures = |shard: &Shard| -> Vec<(Tenure, bool)> {
            let releases = shard.releases().into_iter();
            releases.map(|(tenure, _, answered)| (tenure, answered)).collect()
        };
        let learned = after.shard.counter() > before.counter()
            || self.bounds.confirmations && tenures(&after.shard) != tenures(before);
        let next = self.intern(after);
        Outcome { next, sent, events, issued, broken, returned, learned, replaced }
    }

    /// Takes messages and events from a shard. A fast disk completes its write at once.
    fn drain(
        &mut self,
        node_state: &mut NodeState,
        now: Instant,
        node: usize,
    ) -> (Vec<(u8, u32)>, Vec<Event>, Option<Ballot>) {
        let mut events = Vec::new();
        while let Some(event) = node_state.shard.poll_event() {
            match event {
                Event::Persist(record) => {
                    node_state.writing = Some(record);
                    if !self.bounds.writes_slowly(node) {
                        node_state.written(now);
                    }
                }
                Event::Durable { sequence, write } => {
                    node_state.file.push(now, sequence, *write);
                    if !self.bounds.stores_slowly(node) {
                        node_state.sync(now);
                    }
                }
                event => events.push(event),
            }
        }
        let (mut sent, mut issued) = (Vec::new(), None);
        while let Some(mut transmit) = node_state.shard.poll_transmit() {
            if let Message::Request(request) = transmit.message()
                && !matches!(request, Request::Heal { .. })
            {
                issued = issued.max(request.ballot());
            }
            if let Message::Durable(DurableMessage::Prepare { ballot, .. }) = transmit.message() {
                issued = issued.max(Some(ballot));
            }
            let to: Vec<NodeId> = transmit.receivers(&node_state.shard.config().cell).collect();
            transmit.to = To::Node(node_id(node));
            let content = self.intern_content(transmit);
            sent.extend(to.into_iter().map(|to| ((to.get() - 1) as u8, content)));
        }
        (sent, events, issued)
    }

    /// Removes details that have no effect, so that more messages become equal. What a reply
    /// reports of a lease beside its tenure only sets a wake-up. Without retries, a Reject needs no
    /// report at all.
    fn normal<'a>(&self, message: Message<'a>) -> Message<'a> {
        let flat = |seen: Seen<'a>| Seen { remaining: Ttl::MIN, ..seen };
        // A proposer uses only the counter of a promised ballot.
        let flat_ballot = |ballot: Ballot| Ballot::new(ballot.counter(), node_id(0));
        match message {
            Message::Reply(Reply::Reject { ballot, promised, accepted }) => {
                let accepted = accepted.filter(|_| self.bounds.retries).map(flat);
                let promised = flat_ballot(promised);
                Message::Reply(Reply::Reject { ballot, promised, accepted })
            }
            Message::Reply(Reply::NotHeld { ballot, promised }) => {
                Message::Reply(Reply::NotHeld { ballot, promised: flat_ballot(promised) })
            }
            Message::Reply(Reply::NotHealed { ballot, promised }) => {
                Message::Reply(Reply::NotHealed { ballot, promised: flat_ballot(promised) })
            }
            Message::Reply(Reply::Promise { ballot, accepted }) => {
                Message::Reply(Reply::Promise { ballot, accepted: accepted.map(flat) })
            }
            Message::Durable(DurableMessage::Reject { ballot, promised }) => {
                let promised = flat_ballot(promised);
                Message::Durable(DurableMessage::Reject { ballot, promised })
            }
            other => other,
        }
    }

    fn intern_content(&mut self, transmit: Transmit) -> u32 {
        let key = self.hasher.hash_one(self.normal(transmit.message()));
        if let Some(known) = self.by_content.get(&key) {
            return *known;
        }
        if std::env::var("DBG").is_ok() {
            eprintln!("{:?}", transmit.message());
        }
        let id = u32::try_from(self.contents.len()).expect("fewer messages than that");
        self.contents.push(transmit);
        self.by_content.insert(key, id);
        id
    }
}

fn ends_at(register: &DurableRegister) -> Instant {
    match register.value {
        DurableValue::Held { ends_at, .. } => ends_at,
        DurableValue::Free { .. } => Instant::ZERO,
    }
}

fn held_tenure(register: &DurableRegister) -> Option<Tenure> {
    match register.value {
        DurableValue::Held { tenure, .. } => Some(tenure),
        DurableValue::Free { .. } => None,
    }
}

pub(crate) fn lasts(ticks: u8) -> Lasts {
    if ticks == ENDLESS {
        return Lasts::FOREVER;
    }
    let millis = (TICK * u32::from(ticks)).as_millis();
    Lasts::from_millis(millis as u64).expect("positive")
}

pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId::new(u16::try_from(node + 1).expect("few nodes")).expect("few nodes")
}

fn permutations(count: u8) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for next in 0..count {
        all = all
            .iter()
            .flat_map(|shorter: &Vec<u8>| {
                (0..=shorter.len()).map(move |place| {
                    let mut longer = shorter.clone();
                    longer.insert(place, next);
                    longer
                })
            })
            .collect();
    }
    // The identity permutation comes first: it identifies a node's own state.
    all.sort_unstable();
    all
}
