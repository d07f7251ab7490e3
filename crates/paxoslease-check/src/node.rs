//! What one node does: the shipping [`Shard`], its disk, and a memory of every step it was ever
//! asked to take.
//!
//! A world has few distinct node states and many combinations of them, so each node's step is
//! computed once by the real code and looked up ever after. Acceptors that do not propose are
//! interchangeable and share one memory. The rules that can be judged from one node's step alone
//! are judged here.

mod judge;
mod restart;

use core::hash::{BuildHasher, Hash, Hasher};
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use paxoslease_core::{
    Acquire, Ballot, Cell, Config, Drift, Event, Holder, Instant, Lens, MemberSet, Message, Name,
    NodeId, Phase, Record, Refusal, Reply, Request, Seen, Shard, Start, Tenure, To, Token,
    Transmit, Ttl,
};

use crate::bounds::{Bounds, TICK};
use judge::{heals, judge};

pub(crate) const NAMES: [&str; 2] = ["x", "y"];
pub(crate) const RENEWAL_TOKEN: u64 = 100;
pub(crate) const ADOPTED_TOKEN: u64 = 200;
pub(crate) const RELEASE_TOKEN: u64 = 300;
const SWEEP_SLOTS: u32 = 8;

pub(crate) fn at(tick: u8) -> Instant {
    Instant::ZERO.after(TICK * u32::from(tick))
}

fn name(number: u8) -> Name<'static> {
    Name::new(NAMES[usize::from(number)]).expect("not empty")
}

/// Something that is done to a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    Deliver {
        from: u8,
        content: u32,
    },
    Acquire {
        wish: u8,
    },
    Abandon {
        wish: u8,
    },
    /// An `adopted` tenure was granted to another.
    Renew {
        wish: u8,
        tenure: Tenure,
        ticks: u8,
        adopted: bool,
    },
    Release {
        wish: u8,
        tenure: Tenure,
    },
    AbandonRenewal {
        wish: u8,
    },
    Wake,
    /// The record that a node wanted written is durable, and the node is told so.
    Written,
    /// A write that was under way may have `landed` on the disk before.
    Crash {
        nth: u8,
        landed: bool,
    },
    /// R4: a clean stop.
    Stop {
        landed: bool,
    },
    /// R4: a start after a clean stop. A [`Input::Crash`] instead is one amid that start: the
    /// snapshot is deleted, and nothing is restored yet.
    Start,
    Sweep,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) next: u32,
    pub(crate) sent: Vec<(u8, u32)>,
    pub(crate) events: Vec<Event>,
    /// The highest ballot this node issued in this step.
    pub(crate) issued: Option<Ballot>,
    pub(crate) broken: Option<String>,
    /// Whether the node's counter rose, or a release of its is over.
    learned: bool,
    /// Whether a Heal replaced a live lease of a lower tenure (A5).
    pub(crate) replaced: bool,
}

impl Outcome {
    /// Whether it is a mere tally: nobody but the node itself can tell that it happened.
    pub(crate) fn is_silent(&self) -> bool {
        self.sent.is_empty() && self.events.is_empty() && self.broken.is_none() && !self.learned
    }
}

#[derive(Clone, Debug)]
struct Local {
    shard: Shard,
    proposes: bool,
    record: Record,
    /// What is on its way to the disk.
    writing: Option<Record>,
    snapshot: Option<Vec<(u8, Tenure, Ttl)>>,
    is_stopped: bool,
    /// The tenures whose Release this acceptor has answered; nobody in the cell looks at it.
    released: Vec<Tenure>,
}

/// What the search needs to know of a node state without running it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The identity of the state, seen through each permutation of the acceptors.
    pub(crate) digests: Vec<u64>,
    pub(crate) wake_at: Option<Instant>,
    /// What the acceptor stores for each name.
    pub(crate) stored: [Option<(Tenure, Instant)>; NAMES.len()],
    pub(crate) counter: u64,
    /// The rounds a reply can belong to.
    pub(crate) rounds: Vec<(Ballot, Phase)>,
    /// The releases under way, with the acceptors that confirmed and whether that was enough.
    pub(crate) releases: Vec<(Tenure, MemberSet, bool)>,
    /// The tenures whose Release this acceptor has answered.
    pub(crate) released: Vec<Tenure>,
    pub(crate) is_writing: bool,
    pub(crate) is_stopped: bool,
}

/// All node states met so far, and every step known from each.
pub(crate) struct Locals {
    bounds: Bounds,
    cell: Cell,
    states: Vec<Local>,
    pub(crate) views: Vec<View>,
    by_digest: HashMap<u64, u32, FixedState>,
    steps: HashMap<(u32, u8, Input), u32, FixedState>,
    outcomes: Vec<Outcome>,
    contents: Vec<Transmit>,
    by_content: HashMap<u64, u32, FixedState>,
    permutations: Vec<Vec<u8>>,
    hasher: FixedState,
}

impl Locals {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let members: Vec<NodeId> =
            (0..bounds.nodes()).filter(|node| bounds.is_acceptor(*node)).map(node_id).collect();
        let max_lease = Ttl::from_duration(TICK * u32::from(bounds.max_ticks)).expect("positive");
        let cell = Cell::new(&members, max_lease, Drift::NONE).expect("a valid cell");
        let symmetric = bounds.proposers > 0;
        let permutations = if symmetric {
            permutations(bounds.acceptors)
        } else {
            vec![(0..bounds.acceptors).collect()]
        };
        Self {
            bounds: bounds.clone(),
            cell,
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

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn first(&mut self, node: usize) -> u32 {
        let counter = self.bounds.counter(node);
        let start = Start::NewCell { counter, disk: self.bounds.disk };
        let shard = Shard::start(self.config(node), at(0), start);
        let proposes = self.bounds.proposers == 0 || !self.bounds.is_acceptor(node);
        let mut local = Local {
            shard,
            proposes,
            record: Record::default(),
            writing: None,
            snapshot: None,
            is_stopped: false,
            released: Vec::new(),
        };
        self.drain(&mut local, at(0), node);
        // The first block of ballots was written when the cell was set up.
        local.written(at(0));
        self.intern(local)
    }

    fn config(&self, node: usize) -> Config {
        // Acceptors that do not propose are interchangeable: one stands for all.
        let stand_in =
            if self.bounds.proposers > 0 && self.bounds.is_acceptor(node) { 0 } else { node };
        let request_timeout =
            if self.bounds.retries { TICK * u32::from(self.bounds.ticks) } else { Duration::ZERO };
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
            ..Config::new(node_id(stand_in), self.cell, 1)
        };
        if self.bounds.slow_disk {
            // The network has a copy of what does not fit: it may arrive again after the write.
            config.limits.deferred_max = 1;
        }
        config
    }

    fn intern(&mut self, local: Local) -> u32 {
        let digests: Vec<u64> = self
            .permutations
            .iter()
            .map(|places| {
                let mut hasher = self.hasher.build_hasher();
                local.shard.config().node.hash(&mut hasher);
                let lens = Lens { places, proposes: local.proposes, hints: false };
                local.shard.digest(lens, &mut hasher);
                (&local.record, &local.writing, &local.snapshot).hash(&mut hasher);
                (&local.released, local.is_stopped).hash(&mut hasher);
                hasher.finish()
            })
            .collect();
        let identity = digests[0];
        if let Some(known) = self.by_digest.get(&identity) {
            return *known;
        }
        let id = u32::try_from(self.states.len()).expect("fewer node states than that");
        let stored = [0, 1].map(|number| {
            let accepted = local.shard.register(name(number))?.accepted?;
            Some((accepted.tenure, accepted.expires_at))
        });
        self.views.push(View {
            digests,
            wake_at: local.shard.poll_timeout(),
            stored,
            counter: local.shard.counter(),
            rounds: local.shard.rounds().map(|round| (round.ballot, round.phase)).collect(),
            releases: local.shard.releases(),
            released: local.released.clone(),
            is_writing: local.writing.is_some(),
            is_stopped: local.is_stopped,
        });
        self.states.push(local);
        self.by_digest.insert(identity, id);
        id
    }

    /// What comes of an input; `None` when nothing changes.
    pub(crate) fn step(
        &mut self,
        node: usize,
        local: u32,
        tick: u8,
        input: Input,
    ) -> Option<&Outcome> {
        let key = (local, tick, input);
        let outcome = match self.steps.get(&key) {
            Some(known) => *known,
            None => {
                let outcome = self.run(node, local, tick, input);
                let nothing = outcome.next == local
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

    /// Takes the step with the real code.
    fn run(&mut self, node: usize, local: u32, tick: u8, input: Input) -> Outcome {
        let before = &self.states[local as usize];
        let mut after = before.clone();
        let now = at(tick);
        let quarantined = !before.shard.quarantine_remaining(now).is_zero();
        let wish = |wish: u8| self.bounds.wishes[usize::from(wish)];
        match input {
            Input::Deliver { from, content } => {
                let message = self.content(content);
                let outcome = after.shard.handle_message(now, node_id(usize::from(from)), message);
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
            Input::Acquire { wish: number } => {
                let acquire = Acquire {
                    token: Token(u64::from(number)),
                    name: name(wish(number).name),
                    holder: Holder::NONE,
                    ttl: TICK * u32::from(wish(number).ticks),
                    wait: Duration::ZERO,
                };
                after.shard.acquire(now, acquire).expect("within the bounds");
            }
            Input::Abandon { wish: number } => {
                after.shard.abandon(now, name(wish(number).name), Token(u64::from(number)));
            }
            Input::AbandonRenewal { wish: number } => {
                let token = Token(RENEWAL_TOKEN + u64::from(number));
                after.shard.abandon(now, name(wish(number).name), token);
            }
            Input::Renew { wish: number, tenure, ticks, adopted } => {
                let base = if adopted { ADOPTED_TOKEN } else { RENEWAL_TOKEN };
                let token = Token(base + u64::from(number));
                let texts = (name(wish(number).name), Holder::NONE);
                let ttl = TICK * u32::from(ticks);
                // A ttl above M is refused, and that is an answer.
                let _ = after.shard.renew(now, token, texts, tenure, ttl);
            }
            Input::Release { wish: number, tenure } => {
                let token = Token(RELEASE_TOKEN + u64::from(number));
                let name = name(wish(number).name);
                after.shard.release(now, token, name, tenure, TICK).expect("within the bounds");
            }
            Input::Wake => after.shard.handle_timeout(now),
            Input::Written => after.written(now),
            Input::Crash { nth, landed } => {
                after.lose_power(landed);
                self.crash(&mut after, node, now, tick, nth);
            }
            Input::Stop { landed } => {
                after.lose_power(landed);
                self.stop(&mut after, node, now);
            }
            Input::Start => self.restart(&mut after, node, now),
            Input::Sweep => {
                after.shard.sweep(now, SWEEP_SLOTS);
                after.shard.sweep(now, SWEEP_SLOTS);
            }
        }
        let (sent, events, issued) = self.drain(&mut after, now, node);
        let restarted = matches!(input, Input::Crash { .. } | Input::Stop { .. } | Input::Start);
        let (mut broken, mut replaced) = (None, false);
        if !restarted {
            let before = &self.states[local as usize].shard;
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
        let before = &self.states[local as usize].shard;
        let tenures = |shard: &Shard| -> Vec<(Tenure, bool)> {
            let releases = shard.releases().into_iter();
            releases.map(|(tenure, _, answered)| (tenure, answered)).collect()
        };
        let learned = after.shard.counter() > before.counter()
            || self.bounds.confirmations && tenures(&after.shard) != tenures(before);
        let next = self.intern(after);
        Outcome { next, sent, events, issued, broken, learned, replaced }
    }

    /// Takes what a shard wants sent and what it says; a fast disk is written at once.
    fn drain(
        &mut self,
        local: &mut Local,
        now: Instant,
        node: usize,
    ) -> (Vec<(u8, u32)>, Vec<Event>, Option<Ballot>) {
        let mut events = Vec::new();
        while let Some(event) = local.shard.poll_event() {
            if let Event::Persist(record) = event {
                local.writing = Some(record);
                if !self.bounds.writes_slowly(node) {
                    local.written(now);
                }
            } else {
                events.push(event);
            }
        }
        let (mut sent, mut issued) = (Vec::new(), None);
        while let Some(mut transmit) = local.shard.poll_transmit() {
            if let Message::Request(request) = transmit.message()
                && !matches!(request, Request::Heal { .. })
            {
                issued = issued.max(request.ballot());
            }
            let to: Vec<NodeId> = match transmit.to {
                To::Members(set) => self.cell.nodes(set).collect(),
                To::Node(node) => vec![node],
            };
            transmit.to = To::Node(node_id(node));
            let content = self.intern_content(transmit);
            sent.extend(to.into_iter().map(|to| ((to.get() - 1) as u8, content)));
        }
        (sent, events, issued)
    }

    /// What is reported of a lease beside its tenure only sets a wake-up, and where nothing is
    /// tried again a Reject needs no report at all: without these many messages are one.
    fn normal<'a>(&self, message: Message<'a>) -> Message<'a> {
        let flat = |seen: Seen<'a>| Seen { remaining: Ttl::MIN, ..seen };
        // Of a promise a proposer uses the counter alone.
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
            Message::Reply(Reply::Promise { ballot, accepted }) => {
                Message::Reply(Reply::Promise { ballot, accepted: accepted.map(flat) })
            }
            other => other,
        }
    }

    fn intern_content(&mut self, transmit: Transmit) -> u32 {
        let key = self.hasher.hash_one(self.normal(transmit.message()));
        if let Some(known) = self.by_content.get(&key) {
            return *known;
        }
        let id = u32::try_from(self.contents.len()).expect("fewer messages than that");
        self.contents.push(transmit);
        self.by_content.insert(key, id);
        id
    }
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
    // The identity first: it names a node's own state.
    all.sort_unstable();
    all
}
