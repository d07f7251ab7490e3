//! Every schedule of small cells that decide about their members, on the [`Decider`] that ships.
//!
//! The network keeps every message for ever and may deliver it at any time, to any receiver that it
//! is for. A write lands at any later step or never, and a crash finds it landed or not. A node may
//! lose its disk and return with another birth. There must be one configuration per epoch, and the
//! epoch of a node must not fall, except with its disk.
//!
//! Time does not pass: the waits and timers of a decider only choose when a coordinator begins, and
//! here an administrator may do that at any step. So Poll, State, Learn and ConfReject, which only
//! serve timers, are dropped. A refusal because of a wait is a message that is not delivered. The
//! write of a node that cannot fail any more lands at once: the answer that waits for it is a
//! message, and may take as long as the write would.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use paxoslease_core::{
    Ballot, Birth, Change, Configuration, Decider, DeciderConfig, Drift, Instant, Member, Members,
    MembershipEvent, MembershipMessage, NodeId, NodeView, Rules, StableConfiguration, Token, Vote,
};

const NODES_MAX: usize = 4;
/// The sender of every true Config. Any node that has a configuration may tell it, so the receiver
/// gets it from a member that it knows (C11).
const ANY: (NodeId, Birth) = (NodeId::MAX, Birth::UNKNOWN);

/// What an administrator wants at a node, or a coordinator by itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Want {
    /// The first configuration with births.
    Found,
    /// A joint epoch that leads to these ids.
    Begin(&'static [u16]),
    /// The end of a joint epoch.
    End,
    /// The end of a joint epoch, without the new members.
    Abort,
}

/// What may happen in a search.
#[derive(Clone, Debug)]
pub struct DecisionBounds {
    /// The ids in the file of every node.
    pub list: &'static [u16],
    /// There are nodes 1 to this one.
    pub nodes: u16,
    /// What was decided before the search begins, without a fault.
    pub decided: &'static [Want],
    /// What is tried, once each, and at which node.
    pub wants: &'static [(u16, Want)],
    /// The nodes that may crash or lose their disks.
    pub failing: &'static [u16],
    /// How often a node crashes, in all.
    pub crashes: u8,
    /// How often a node loses its disk, in all.
    pub lost_disks: u8,
    /// Nodes that send a false Config, which makes the sender the only member (C11). From a
    /// stranger it is a legal successor of what was decided before the search, from a member not.
    pub forgers: &'static [u16],
    /// The rules in force.
    pub rules: Rules,
    /// The search gives up at this number of states.
    pub states_max: usize,
}

/// The result of a search.
#[derive(Clone, Default, Debug)]
pub struct DecisionReport {
    /// Distinct states.
    pub states: usize,
    /// Steps tried.
    pub steps: usize,
    /// The steps to the farthest state, or to the harm.
    pub depth: usize,
    /// The highest epoch of any node.
    pub epoch: u32,
    /// Whether the search reached every state.
    pub is_complete: bool,
    /// What must not happen and did, and the schedule that leads to it.
    pub harm: Option<(DecisionHarm, Vec<String>)>,
}

/// What must not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecisionHarm {
    /// Two configurations of one epoch.
    TwoConfigurations(u32),
    /// The epoch of a node fell to this one.
    EpochFell(u32),
}

impl fmt::Display for DecisionHarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoConfigurations(epoch) => write!(f, "two configurations of epoch {epoch}"),
            Self::EpochFell(epoch) => write!(f, "the epoch of a node fell to {epoch}"),
        }
    }
}

/// A node and its disk.
#[derive(Clone, Hash)]
struct Node {
    decider: Decider,
    id: u16,
    birth: u8,
    disk: StableConfiguration,
    pending: Option<StableConfiguration>,
}

/// A message in the network. A request and a Config are for every node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Letter {
    from: (NodeId, Birth),
    to: Option<NodeId>,
    message: MembershipMessage,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Input {
    Deliver(u32),
    Begin(u8, [u8; NODES_MAX]),
    GiveUp,
    Written,
    Crash { landed: bool },
    LoseDisk,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    nodes: [u32; NODES_MAX],
    network: Vec<u32>,
    wanted: u16,
    crashes: u8,
    lost_disks: u8,
}

type Step = (usize, Input);
/// A node, its input, and whether its writes land at once.
type Transition = (u32, Input, bool);

/// Computes each step of a node once; later the search looks it up.
struct World<'a> {
    bounds: &'a DecisionBounds,
    nodes: Vec<Node>,
    node_ids: HashMap<u64, u32, FixedState>,
    letters: Vec<Letter>,
    letter_ids: HashMap<Letter, u32, FixedState>,
    taken: HashMap<Transition, (u32, Vec<u32>), FixedState>,
}

/// Searches all states within the bounds, up to the first harm.
#[must_use]
pub fn search_decisions(bounds: &DecisionBounds) -> DecisionReport {
    let mut world = World::new(bounds);
    let first = world.first();
    let mut seen: HashSet<u64, FixedState> = HashSet::default();
    seen.insert(FixedState::default().hash_one(&first));
    let mut reached: Vec<(u32, Option<Step>)> = vec![(0, None)];
    let mut frontier = VecDeque::from([(0, first)]);
    let mut report = DecisionReport::default();
    let path = |reached: &[(u32, Option<Step>)], mut at: u32| {
        let mut steps = Vec::new();
        while let (from, Some(step)) = reached[at as usize] {
            steps.push(step);
            at = from;
        }
        steps.reverse();
        steps
    };
    'search: while let Some((index, state)) = frontier.pop_front() {
        if seen.len() >= bounds.states_max {
            frontier.push_back((index, state));
            break;
        }
        for step in world.choices(&state) {
            report.steps += 1;
            match world.take(&state, step) {
                Ok(Some(next)) if seen.insert(FixedState::default().hash_one(&next)) => {
                    let at = u32::try_from(reached.len()).expect("fewer states than that");
                    reached.push((index, Some(step)));
                    frontier.push_back((at, next));
                }
                Ok(_) => {}
                Err(harm) => {
                    let steps = path(&reached, index).into_iter().chain([step]);
                    let lines: Vec<_> = steps.map(|step| world.describe(step)).collect();
                    report.depth = lines.len();
                    report.harm = Some((harm, lines));
                    break 'search;
                }
            }
        }
    }
    report.states = seen.len();
    report.is_complete = frontier.is_empty() && report.harm.is_none();
    if report.harm.is_none() {
        report.depth = path(&reached, reached.len() as u32 - 1).len();
    }
    let epochs = world.nodes.iter().map(|node| node.decider.configuration().epoch());
    report.epoch = epochs.max().unwrap_or(0);
    report
}

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("bounds have valid ids")
}

fn members(ids: &[u16], births: &[u8; NODES_MAX]) -> Members {
    let member = |node: &u16| Member {
        node: id(*node),
        birth: Birth(births[usize::from(*node) - 1].into()),
        peer: format!("n{node}").into(),
    };
    Members::new(ids.iter().map(member).collect()).expect("bounds have valid sets")
}

fn change(want: Want, list: &[u16], births: &[u8; NODES_MAX]) -> Change {
    match want {
        Want::Found => Change::Same(members(list, births)),
        Want::Begin(ids) => Change::Begin(members(ids, births)),
        Want::End => Change::End,
        Want::Abort => Change::Abort,
    }
}

impl<'a> World<'a> {
    fn new(bounds: &'a DecisionBounds) -> Self {
        let (nodes, letters) = (Vec::new(), Vec::new());
        let (node_ids, letter_ids, taken) = Default::default();
        Self { bounds, nodes, node_ids, letters, letter_ids, taken }
    }

    fn blank(&self) -> StableConfiguration {
        let configuration = Configuration::unfounded(&members(self.bounds.list, &[1; NODES_MAX]));
        StableConfiguration { configuration, vote: Vote::default() }
    }

    fn first(&mut self) -> State {
        let births = [101, 102, 103, 104];
        let mut configuration = self.blank().configuration;
        let mut listed = vec![];
        for want in self.bounds.decided {
            let next = change(*want, self.bounds.list, &births);
            configuration = configuration.after(&next, Ballot::ZERO).expect("bounds are legal");
            listed.extend(configuration.members().map(|member| member.node));
        }
        let mut nodes = [u32::MAX; NODES_MAX];
        for node in 1..=self.bounds.nodes {
            let disk = if listed.contains(&id(node)) {
                StableConfiguration { configuration: configuration.clone(), vote: Vote::default() }
            } else {
                self.blank()
            };
            let birth = births[usize::from(node) - 1];
            let decider = self.decider(node, birth, &disk);
            let interned = self.intern(Node { decider, id: node, birth, disk, pending: None });
            nodes[usize::from(node) - 1] = interned;
        }
        let forged = |forger: &u16| {
            let alone = members(&[*forger], &births);
            let from = (alone[0].node, alone[0].birth);
            let value = if configuration.is_member(from.0, from.1) {
                let epoch = configuration.epoch() + 1;
                let past = configuration.past().to_vec();
                Configuration::new(epoch, (alone, None), 0, Ballot::ZERO, past)
            } else {
                configuration.after(&Change::Begin(alone), Ballot::ZERO)
            };
            let message = MembershipMessage::Config(value.expect("bounds are legal"));
            Letter { from, to: None, message }
        };
        let mut letters: Vec<Letter> = self.bounds.forgers.iter().map(forged).collect();
        // A node that loses its disk can learn what was decided before.
        let message = MembershipMessage::Config(configuration);
        letters.push(Letter { from: ANY, to: None, message });
        let network = letters.into_iter().map(|letter| self.post(letter)).collect();
        let DecisionBounds { crashes, lost_disks, .. } = *self.bounds;
        State { nodes, network, wanted: 0, crashes, lost_disks }
    }

    fn decider(&self, node: u16, birth: u8, disk: &StableConfiguration) -> Decider {
        let mut config = DeciderConfig::new(id(node), Birth(birth.into()), Drift::NONE, 0);
        config.rules = self.bounds.rules;
        let mut decider = Decider::start(config, Instant::ZERO, disk.clone());
        decider.shards_changed(Instant::ZERO, disk.configuration.epoch(), None);
        decider
    }

    fn intern(&mut self, node: Node) -> u32 {
        let next = u32::try_from(self.nodes.len()).expect("fewer nodes than that");
        let index = *self.node_ids.entry(FixedState::default().hash_one(&node)).or_insert(next);
        if index == next {
            self.nodes.push(node);
        }
        index
    }

    fn post(&mut self, letter: Letter) -> u32 {
        let next = u32::try_from(self.letters.len()).expect("fewer letters than that");
        let index = *self.letter_ids.entry(letter.clone()).or_insert(next);
        if index == next {
            self.letters.push(letter);
        }
        index
    }

    /// Whether a write of this node lands at once.
    fn is_eager(&self, state: &State, place: usize) -> bool {
        state.crashes == 0 && state.lost_disks == 0
            || !self.bounds.failing.contains(&(place as u16 + 1))
    }

    fn choices(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        let node = |place: usize| &self.nodes[state.nodes[place] as usize];
        let places = 0..usize::from(self.bounds.nodes);
        let lands = |place: &usize| node(*place).pending.is_some() && self.is_eager(state, *place);
        if let Some(place) = places.clone().find(lands) {
            return vec![(place, Input::Written)];
        }
        let mut births = [0; NODES_MAX];
        for place in places.clone() {
            births[place] = node(place).birth;
        }
        for (place, want) in self.bounds.wants.iter().enumerate() {
            if state.wanted & (1 << place) == 0 {
                steps.push((usize::from(want.0) - 1, Input::Begin(place as u8, births)));
            }
        }
        for place in places {
            let Node { decider, id, birth, pending, .. } = node(place);
            let own = self::id(*id);
            for letter in &state.network {
                let Letter { from, to, .. } = &self.letters[*letter as usize];
                if *from != (own, Birth((*birth).into())) && to.is_none_or(|to| to == own) {
                    steps.push((place, Input::Deliver(*letter)));
                }
            }
            // A coordinator gives up to try again. In a joint epoch a timer would also propose
            // something, which the wants do.
            let has_want = |(bit, want): (usize, &(u16, Want))| {
                want.0 == *id && state.wanted & (1 << bit) == 0
            };
            let wants_more = self.bounds.wants.iter().enumerate().any(has_want);
            if wants_more && decider.poll_timeout().is_some() && !decider.configuration().is_joint()
            {
                steps.push((place, Input::GiveUp));
            }
            if pending.is_some() {
                steps.push((place, Input::Written));
            }
            if state.crashes > 0 && self.bounds.failing.contains(id) {
                steps.push((place, Input::Crash { landed: false }));
                if pending.is_some() {
                    steps.push((place, Input::Crash { landed: true }));
                }
            }
            if state.lost_disks > 0 && self.bounds.failing.contains(id) {
                steps.push((place, Input::LoseDisk));
            }
        }
        steps
    }

    /// The state after a step; `None` if the step changes nothing that matters.
    fn take(&mut self, state: &State, (place, input): Step) -> Result<Option<State>, DecisionHarm> {
        let mut next = state.clone();
        match input {
            Input::Begin(want, _) => next.wanted |= 1 << want,
            Input::Crash { .. } => next.crashes -= 1,
            Input::LoseDisk => next.lost_disks -= 1,
            Input::Deliver(_) | Input::GiveUp | Input::Written => {}
        }
        let before = state.nodes[place];
        let is_eager = self.is_eager(&next, place);
        let key = (before, input, is_eager);
        let (after, sent) = match self.taken.get(&key) {
            Some(taken) => taken.clone(),
            None => {
                let taken = self.compute(key);
                self.taken.insert(key, taken.clone());
                taken
            }
        };
        // A refused want and a crash that finds nothing to forget only use up the bounds.
        if after == before && sent.iter().all(|letter| state.network.contains(letter)) {
            return Ok(None);
        }
        next.nodes[place] = after;
        next.network.extend(sent);
        next.network.sort_unstable();
        next.network.dedup();
        let epoch = |node: u32| self.nodes[node as usize].decider.configuration().epoch();
        if epoch(after) < epoch(before) && input != Input::LoseDisk {
            return Err(DecisionHarm::EpochFell(epoch(after)));
        }
        self.judge(&next)?;
        Ok(Some(next))
    }

    /// There is one configuration per epoch, among those that nodes have and those that were sent
    /// as decided. With all rules in force, also among those that a quorum accepted, whether or not
    /// a node knows that. A mutant must do visible harm.
    fn judge(&self, state: &State) -> Result<(), DecisionHarm> {
        use MembershipMessage as M;
        let nodes = state.nodes.iter().filter_map(|node| self.nodes.get(*node as usize));
        let sent = || state.network.iter().map(|letter| &self.letters[*letter as usize]);
        let mut known = Vec::new();
        for node in nodes {
            add_decided(&mut known, node.decider.configuration())?;
        }
        for letter in sent().filter(|letter| letter.from == ANY) {
            if let M::Config(configuration) = &letter.message {
                add_decided(&mut known, configuration)?;
            }
        }
        for letter in sent().filter(|_| self.bounds.rules == Rules::ALL) {
            let M::ConfAccept { epoch, n, value } = &letter.message else { continue };
            let before = known.iter().find(|configuration| configuration.epoch() == epoch - 1);
            let before = before.expect("what was decided is in the network");
            // The coordinator has accepted its value before it sends it.
            let has_accepted = |node| {
                let accepted = M::ConfAccepted { epoch: *epoch, n: *n };
                node == n.node || sent().any(|vote| vote.from.0 == node && vote.message == accepted)
            };
            let votes = before.old().iter().filter(|member| has_accepted(member.node)).count();
            let all = before.old().len();
            if votes == all || *epoch > 1 && votes * 2 > all {
                add_decided(&mut known, value)?;
            }
        }
        Ok(())
    }

    fn compute(&mut self, (before, input, is_eager): Transition) -> (u32, Vec<u32>) {
        let mut node = self.nodes[before as usize].clone();
        let view = NodeView::default();
        match input {
            Input::Deliver(letter) => {
                let Letter { mut from, message, .. } = self.letters[letter as usize].clone();
                if from == ANY {
                    from = teller(&node);
                }
                node.decider.handle_message(Instant::ZERO, from, message, &view);
            }
            Input::Begin(want, births) => {
                let change =
                    change(self.bounds.wants[usize::from(want)].1, self.bounds.list, &births);
                // An administrator that is refused has tried, and changes nothing.
                let _ = node.decider.begin(Instant::ZERO, Token(want.into()), change, &view);
            }
            Input::GiveUp => node.decider.handle_timeout(Instant::MAX, &view),
            Input::Written => write(&mut node, &view),
            Input::Crash { landed } => {
                if let Some(pending) = node.pending.take().filter(|_| landed) {
                    node.disk = pending;
                }
                node.decider = self.decider(node.id, node.birth, &node.disk);
            }
            Input::LoseDisk => {
                node.birth += 10;
                node.disk = self.blank();
                node.pending = None;
                node.decider = self.decider(node.id, node.birth, &node.disk);
            }
        }
        let from = (id(node.id), Birth(node.birth.into()));
        let is_told =
            matches!(input, Input::Deliver(letter) if self.letters[letter as usize].from == ANY);
        let mut sent = Vec::new();
        loop {
            while let Some(event) = node.decider.poll_event() {
                match event {
                    MembershipEvent::Persist(record) => node.pending = Some(record),
                    MembershipEvent::Adopt(next) => {
                        node.decider.shards_changed(Instant::ZERO, next.epoch(), None);
                    }
                    MembershipEvent::ConfigRefused { why, .. } => {
                        assert!(!is_told || self.bounds.rules != Rules::ALL, "{why:?}");
                    }
                    _ => {}
                }
            }
            while let Some((to, message)) = node.decider.poll_transmit() {
                use MembershipMessage as M;
                let letter = match message {
                    M::ConfPrepare { .. } | M::ConfAccept { .. } => {
                        Letter { from, to: None, message }
                    }
                    M::Config(_) => Letter { from: ANY, to: None, message },
                    M::ConfPromise { .. } | M::ConfAccepted { .. } => {
                        Letter { from, to: Some(to), message }
                    }
                    M::ConfReject { .. } | M::Learn { .. } | M::Poll { .. } | M::State(_) => {
                        continue;
                    }
                };
                sent.push(self.post(letter));
            }
            if !is_eager || node.pending.is_none() {
                break;
            }
            write(&mut node, &view);
        }
        (self.intern(node), sent)
    }

    fn describe(&self, (place, input): Step) -> String {
        let node = place + 1;
        match input {
            Input::Deliver(letter) => {
                let Letter { from, message, .. } = &self.letters[letter as usize];
                format!("{node} receives from {} {message:?}", from.0)
            }
            Input::Begin(want, _) => {
                format!("{node} begins {:?}", self.bounds.wants[usize::from(want)].1)
            }
            Input::GiveUp => format!("{node} gives up"),
            Input::Written => format!("{node} has written"),
            Input::Crash { landed } => format!("{node} crashes, its write landed: {landed}"),
            Input::LoseDisk => format!("{node} loses its disk"),
        }
    }
}

/// A member that a node knows, by whom it learns what was decided. A cell of one tells itself.
fn teller(node: &Node) -> (NodeId, Birth) {
    let own = id(node.id);
    let known = node.decider.configuration();
    let other = known.members().find(|member| member.node != own);
    other.map_or((own, Birth(node.birth.into())), |member| (member.node, member.birth))
}

fn write(node: &mut Node, view: &NodeView) {
    if let Some(record) = node.pending.take() {
        node.disk = record;
        node.decider.record_written(Instant::ZERO, view);
    }
}

fn add_decided<'a>(
    known: &mut Vec<&'a Configuration>,
    configuration: &'a Configuration,
) -> Result<(), DecisionHarm> {
    let epoch = configuration.epoch();
    match known.iter().find(|other| other.epoch() == epoch) {
        Some(other) if *other != configuration => Err(DecisionHarm::TwoConfigurations(epoch)),
        Some(_) => Ok(()),
        None => {
            known.push(configuration);
            Ok(())
        }
    }
}
