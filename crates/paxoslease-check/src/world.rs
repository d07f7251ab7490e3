//! The state of the whole cell, the steps that may follow, and the harm that must never occur.
//!
//! A state is small and flat: node states by index, the messages ever sent as bits, the belief of
//! each client. Beliefs are the core's own [`Belief`].

mod change;
mod durable;
mod judge;
mod net;

pub use judge::Harm;

use core::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use paxoslease_core::{Ballot, Belief, Rule, Tenure};

use crate::bounds::Bounds;
use crate::node::{Change, Input, NodeStates, NodeView, at, node_id};
use crate::search::Checks;
use durable::Holder;

const NODES_MAX: usize = 6;
const CLIENTS_MAX: usize = 3;
const NET_WORDS: usize = 16;

/// The state of the cell.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct State {
    tick: u8,
    acquired: u8,
    renewals: u8,
    releases: u8,
    abandons: u8,
    crashes: u8,
    clean_restarts: u8,
    sweeps: u8,
    keeps: u8,
    durable_releases: u8,
    checks: u8,
    attempts: u8,
    nodes: [u32; NODES_MAX],
    net: [u64; NET_WORDS],
    /// A sum over the messages to and from each acceptor, which does not contain the acceptor's
    /// index.
    net_sums: [u64; NODES_MAX],
    beliefs: [Option<Belief>; CLIENTS_MAX],
    endings: [Ending; CLIENTS_MAX],
    /// The belief of a client in a tenure that was granted to another client (P7 switched off).
    adopted: Option<Belief>,
    holders: [Holder; CLIENTS_MAX],
    /// The highest ballot each node issued on request.
    issued: [u64; NODES_MAX],
    /// How many configurations were decided after the first, and the last of them.
    decisions: u8,
    configured: u16,
}

/// What the releases of a client's tenure were told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Ending {
    /// The nodes that were asked, as bits.
    asked: u8,
    ended: u8,
    not_ended: u8,
}

/// One step of the world: an input of a node, or the passing of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    Tick,
    /// These voters, as bits, decide the next configuration.
    Decide {
        change: Change,
        voters: u8,
    },
    /// `from` is the node's state after it counted some answers that had no other effect yet.
    At {
        node: u8,
        from: u32,
        input: Input,
    },
}

#[derive(Clone, Copy)]
struct Packet {
    to: u8,
    from: u8,
    epoch: u8,
    content: u32,
    /// The acceptor at one end, and a hash of the rest of the message.
    acceptor: u8,
    identity: u64,
    /// The round or release that an answer belongs to.
    answers: Option<Subject>,
}

/// The subject of an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Round(Ballot),
    Release(Tenure),
}

pub(crate) struct World {
    bounds: Bounds,
    nodes: NodeStates,
    packets: Vec<Packet>,
    by_packet: HashMap<(u8, u8, u8, u32), u16, FixedState>,
    checks: Checks,
    hasher: FixedState,
    /// Whether an answer to a finished round can be forgotten.
    forgets_answers: bool,
    /// The steps in which a Heal replaced a live lease.
    replacing: usize,
}

impl World {
    pub(crate) fn new(bounds: &Bounds, checks: Checks) -> Self {
        assert!(bounds.nodes() <= NODES_MAX && bounds.clients.len() <= CLIENTS_MAX);
        assert!(bounds.clients.iter().all(|client| client.proposer < bounds.proposer_count()));
        Self {
            bounds: bounds.clone(),
            nodes: NodeStates::new(bounds),
            packets: Vec::new(),
            by_packet: HashMap::default(),
            checks,
            hasher: FixedState::with_seed(2),
            forgets_answers: [
                Rule::RenewalHasFreshBallot,
                Rule::CounterStartsAtCeiling,
                Rule::TimerIsArmedOnce,
            ]
            .into_iter()
            .all(|rule| bounds.rules.on(rule)),
            replacing: 0,
        }
    }

    pub(crate) const fn replacing(&self) -> usize {
        self.replacing
    }

    pub(crate) fn node_states(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn first(&mut self) -> State {
        let mut nodes = [0; NODES_MAX];
        for (node, node_state) in nodes.iter_mut().enumerate().take(self.bounds.nodes()) {
            *node_state = self.nodes.first(node);
        }
        State { nodes, ..State::default() }
    }

    /// The identity of a state. States that differ only by a permutation of equal acceptors have
    /// the same identity.
    pub(crate) fn identity(&self, state: &State) -> u64 {
        let acceptors = usize::from(self.bounds.acceptors);
        let has_proposers = self.bounds.proposers > 0;
        let mut common = mix(
            u64::from_le_bytes([
                state.tick,
                state.acquired,
                state.renewals,
                state.releases,
                state.abandons,
                state.crashes,
                state.clean_restarts,
                state.sweeps,
            ]),
            1,
        );
        common = mix(
            common,
            u64::from_le_bytes([
                state.decisions,
                state.configured as u8,
                (state.configured >> 8) as u8,
                state.keeps,
                state.durable_releases,
                0,
                0,
                0,
            ]),
        );
        let asked = u64::from(state.checks) << 8 | u64::from(state.attempts);
        common = mix(common, mix(asked, self.hasher.hash_one(state.holders)));
        for belief in state.beliefs.iter().chain([&state.adopted]) {
            common = mix(common, belief.map_or(0, |belief| identity_of(&belief)));
        }
        for Ending { asked, ended, not_ended } in state.endings {
            common = mix(common, u64::from_le_bytes([asked, ended, not_ended, 0, 0, 0, 0, 0]));
        }
        for number in &state.issued {
            common = mix(common, *number);
        }
        if !has_proposers {
            for node in 0..acceptors {
                let node_state = self.view(state, node).digests[0];
                common = mix(mix(common, node_state), state.net_sums[node]);
            }
            return common;
        }
        let mut each = [0; NODES_MAX];
        for (node, identity) in each.iter_mut().enumerate().take(acceptors) {
            *identity = mix(self.view(state, node).digests[0], state.net_sums[node]);
        }
        let permuted = |(which, places): (usize, &Vec<u8>)| {
            let mut placed = [0; NODES_MAX];
            for (node, place) in places.iter().enumerate() {
                placed[usize::from(*place)] = each[node];
            }
            let sum = placed[..acceptors].iter().fold(common, |sum, one| mix(sum, *one));
            let proposers = acceptors..self.bounds.nodes();
            proposers.fold(sum, |sum, node| mix(sum, self.view(state, node).digests[which]))
        };
        let permutations = self.nodes.permutations().iter().enumerate();
        permutations.map(permuted).min().expect("at least the identity")
    }

    fn view(&self, state: &State, node: usize) -> &NodeView {
        &self.nodes.views[state.nodes[node] as usize]
    }

    /// The steps that may follow.
    ///
    /// An answer that a proposer only counts is not a step: its time of arrival makes no difference
    /// until an answer has an effect, so it is counted right before that answer. Apart from that, a
    /// proposer acts the same whatever it has counted, except that it may heal more acceptors. What
    /// it counted for one round or release has no effect on another. (What rivals are told is an
    /// exception.) This reduction keeps every
    /// schedule that matters and removes most of the states.
    pub(crate) fn choices(&mut self, state: &State, steps: &mut Vec<Step>) {
        steps.clear();
        let mut answers: [Vec<(Subject, Input)>; NODES_MAX] = Default::default();
        for (word, bits) in state.net.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let packet = self.packets[word * 64 + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                let Packet { from, epoch, content, .. } = packet;
                let input = Input::Deliver { from, epoch, content };
                let to = usize::from(packet.to);
                if let Some(subject) = packet.answers {
                    answers[to].push((subject, input));
                } else {
                    steps.push(Step::At { node: packet.to, from: state.nodes[to], input });
                }
            }
        }
        let now = at(state.tick);
        let mut inputs: [Vec<Input>; NODES_MAX] = Default::default();
        self.node_choices(state, &mut inputs);
        self.client_choices(state, &mut |node: usize, input| inputs[node].push(input));
        self.durable_choices(state, &mut |node: usize, input| inputs[node].push(input));
        for node in 0..self.bounds.nodes() {
            answers[node].sort_unstable_by_key(|(subject, _)| *subject);
            for alike in answers[node].chunk_by(|one, other| one.0 == other.0) {
                for from in self.counted(node, state, alike) {
                    let mut push = |input| steps.push(Step::At { node: node as u8, from, input });
                    alike.iter().for_each(|(_, input)| push(*input));
                    // What a release is told at its end depends on the answers until then.
                    if self.bounds.rivals && matches!(alike[0].0, Subject::Release(_)) {
                        let wake_at = self.nodes.views[from as usize].wake_at;
                        wake_at.filter(|at| *at <= now).into_iter().for_each(|_| push(Input::Wake));
                    }
                    // K6: a change may decide when no more promises are expected.
                    if from != state.nodes[node] && self.nodes.is_due(from, now) {
                        push(Input::Wake);
                    }
                }
            }
            let from = state.nodes[node];
            let mut push = |input| steps.push(Step::At { node: node as u8, from, input });
            inputs[node].iter().for_each(|input| push(*input));
            if self.nodes.is_due(from, now) {
                push(Input::Wake);
            }
        }
        self.change_choices(state, steps);
        if state.tick < self.bounds.ticks {
            steps.push(Step::Tick);
        }
    }

    /// The states that a node can reach by counting some of the answers under way to it.
    fn counted(&mut self, node: usize, state: &State, answers: &[(Subject, Input)]) -> Vec<u32> {
        let mut reached = vec![state.nodes[node]];
        let mut next = 0;
        while let Some(from) = reached.get(next).copied() {
            next += 1;
            for (_, input) in answers {
                if let Some(outcome) = self.nodes.step(node, from, state.tick, *input)
                    && outcome.is_silent()
                    && !reached.contains(&outcome.next)
                {
                    reached.push(outcome.next);
                }
            }
        }
        reached
    }

    fn node_choices(&self, state: &State, inputs: &mut [Vec<Input>; NODES_MAX]) {
        let bounds = &self.bounds;
        for (node, inputs) in inputs.iter_mut().enumerate().take(bounds.nodes()) {
            if self.view(state, node).is_stopped {
                inputs.push(Input::Start);
                if state.crashes < bounds.crashes {
                    let (nth, landed) = (state.crashes, false);
                    inputs.push(Input::Crash { nth, landed, kept: 0, is_exact: false });
                }
                continue;
            }
            if bounds.may_crash(node) {
                let NodeView { is_writing, pending, has_ends, .. } = *self.view(state, node);
                if pending > 0 {
                    inputs.push(Input::Sync);
                }
                if is_writing {
                    inputs.push(Input::Written);
                }
                let landings: &[bool] = if is_writing { &[false, true] } else { &[false] };
                for landed in landings.iter().copied() {
                    if state.crashes < bounds.crashes {
                        for kept in 0..=pending {
                            for is_exact in
                                [false, true].into_iter().take(1 + usize::from(has_ends))
                            {
                                let nth = state.crashes;
                                inputs.push(Input::Crash { nth, landed, kept, is_exact });
                            }
                        }
                    }
                    if state.clean_restarts < bounds.clean_restarts {
                        inputs.push(Input::Stop { landed });
                    }
                }
            }
            if bounds.is_acceptor(node) && state.sweeps < bounds.sweeps {
                inputs.push(Input::Sweep);
            }
        }
        if let Some(client) = bounds.clients.get(usize::from(state.acquired))
            && state.tick >= client.not_before
        {
            let node = bounds.proposer_node(client.proposer);
            inputs[node].push(Input::Acquire { client: state.acquired });
        }
    }

    fn client_choices(&self, state: &State, push: &mut impl FnMut(usize, Input)) {
        let bounds = &self.bounds;
        for client in 0..state.acquired {
            let spec = bounds.clients[usize::from(client)];
            let own = bounds.proposer_node(spec.proposer);
            let belief = state.beliefs[usize::from(client)];
            if belief.is_none() && state.abandons < bounds.abandons {
                push(own, Input::Abandon { client });
            }
            if state.abandons < bounds.abandons && state.renewals > 0 {
                push(own, Input::AbandonRenewal { client });
            }
            let Some(belief) = belief else { continue };
            let tenure = belief.tenure();
            // A careless client renews after its lease has ended. After a release no client renews
            // (P6).
            let released = belief.is_released();
            let via: Vec<usize> = if bounds.any_proposer {
                (0..bounds.proposer_count()).map(|other| bounds.proposer_node(other)).collect()
            } else {
                vec![own]
            };
            for node in via {
                if spec.renews && !released && state.renewals < bounds.renewals {
                    for ticks in &bounds.renewal_ticks {
                        push(node, Input::Renew { client, tenure, ticks: *ticks, adopted: false });
                        if bounds.adopters && !bounds.rules.on(Rule::OnlyOwnTenureIsRenewed) {
                            let ticks = *ticks;
                            push(node, Input::Renew { client, tenure, ticks, adopted: true });
                        }
                    }
                }
                let was_asked = state.endings[usize::from(client)].asked & 1 << node != 0;
                let may_release = !released || bounds.rivals && !was_asked;
                if spec.releases && may_release && state.releases < bounds.releases {
                    push(node, Input::Release { client, tenure });
                }
            }
        }
    }

    /// Takes a step; `None` when it changes nothing or leaves the bounds.
    pub(crate) fn take(&mut self, state: &State, step: Step) -> Result<Option<State>, Harm> {
        let mut next = *state;
        let (node, from, input) = match step {
            Step::At { node, from, input } => (node, from, input),
            Step::Tick => {
                next.tick += 1;
                return self.live(&next).map(|()| Some(next));
            }
            Step::Decide { change, voters } => {
                self.decide(&mut next, change, voters);
                return self.live(&next).map(|()| Some(next));
            }
        };
        match input {
            Input::Acquire { .. } => next.acquired += 1,
            Input::Renew { .. } => next.renewals += 1,
            Input::Abandon { .. } | Input::AbandonRenewal { .. } => next.abandons += 1,
            Input::Crash { .. } => next.crashes += 1,
            Input::Stop { .. } => next.clean_restarts += 1,
            Input::Sweep => next.sweeps += 1,
            // The holder ends its belief before it sends a Release (P6).
            Input::Release { .. } => {
                next.releases += 1;
                if let Input::Release { client, .. } = input {
                    next.endings[usize::from(client)].asked |= 1 << node;
                }
                self.ask_durably(&mut next, input);
            }
            Input::Keep { .. } | Input::ReleaseDurable { .. } | Input::Check { .. } => {
                self.ask_durably(&mut next, input);
            }
            Input::Deliver { .. }
            | Input::Adopt { .. }
            | Input::Wake
            | Input::Written
            | Input::Sync
            | Input::Start => {}
        }
        let at_node = usize::from(node);
        let is_down = self.view(state, at_node).is_stopped;
        if is_down && !matches!(input, Input::Start | Input::Crash { .. }) {
            return Ok(None);
        }
        let is_answer = self.is_answer(input);
        let Some(outcome) = self.nodes.step(at_node, from, state.tick, input) else {
            let is_asked = matches!(
                input,
                Input::Release { .. } | Input::ReleaseDurable { .. } | Input::Keep { .. }
            );
            return Ok(is_asked.then_some(next));
        };
        if outcome.is_silent() && is_answer {
            return Ok(None);
        }
        next.nodes[at_node] = outcome.next;
        let (sent, events) = (outcome.sent.clone(), outcome.events.clone());
        let (issued, broken) = (outcome.issued, outcome.broken.clone());
        let returned = outcome.returned;
        self.replacing += usize::from(outcome.replaced);
        if self.forgets_answers {
            self.forget_answers(&mut next, at_node, state.nodes[at_node]);
        }
        if matches!(input, Input::Adopt { .. }) {
            self.forget_epochs(&mut next, at_node);
        }
        if let Some(broken) = broken.filter(|_| self.checks == Checks::All) {
            return Err(Harm::RuleBroken(broken));
        }
        if let Some(tenure) = returned.filter(|_| self.checks != Checks::TwoHolders) {
            return Err(Harm::ReleasedReturns(format!("{tenure} at node {}", node + 1)));
        }
        if self.out_of_ballots(&next, at_node) {
            return Ok(None);
        }
        if input == Input::Wake && self.gives_up(at_node, &sent, &events) {
            return Ok(None);
        }
        let counter = self.nodes.views[from as usize].counter;
        let is_fresh = issued.is_some_and(|ballot| ballot.counter() > counter);
        if self.out_of_attempts(&mut next, input, is_fresh) {
            return Ok(None);
        }
        for (to, content) in sent {
            if self.matters(&next, node, to, content) {
                self.post(&mut next, node, to, content);
            }
        }
        let fresh = matches!(input, Input::Acquire { .. } | Input::Renew { .. });
        if let Some(ballot) = issued.filter(|_| fresh) {
            let last = &mut next.issued[at_node];
            if self.checks == Checks::All && ballot.as_u64() <= *last {
                return Err(Harm::BallotReused(format!("{ballot:?} again")));
            }
            *last = ballot.as_u64().max(*last);
        }
        for event in events {
            self.believe(&mut next, event)?;
        }
        self.judge(&next)?;
        self.judge_registers(&next)?;
        self.live(&next)?;
        Ok(Some(next))
    }

    /// Retries are limited by the ballots that they use, within one run of a node.
    fn out_of_ballots(&self, state: &State, node: usize) -> bool {
        let budget = self.bounds.clients.len() as u64
            + u64::from(self.bounds.renewals)
            + u64::from(self.bounds.spare_ballots);
        let counter = self.view(state, node).counter - self.bounds.counter(node);
        self.bounds.retries && state.crashes == 0 && counter > budget
    }

    /// Describes a step for people.
    pub(crate) fn describe(&self, state: &State, step: Step) -> String {
        let tick = state.tick;
        match step {
            Step::Tick => format!("tick {}", tick + 1),
            Step::Decide { change, voters } => {
                format!("[{tick}] {change:?} is decided by {voters:#b}")
            }
            Step::At { node, input: Input::Deliver { from, epoch, content }, .. } => {
                let (from, to) = (node_id(usize::from(from)), node_id(usize::from(node)));
                let content = self.nodes.content(content);
                format!("[{tick}] {from:?} -> {to:?} in epoch {epoch} {content:?}")
            }
            Step::At { node, input, .. } => {
                format!("[{tick}] at {:?} {input:?}", node_id(usize::from(node)))
            }
        }
    }
}

fn identity_of(belief: &Belief) -> u64 {
    let held = u64::from(!belief.is_released());
    mix(mix(belief.tenure().fence(), belief.ends_at().as_nanos()), held)
}

/// Mixes two words into one.
const fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ 0x9e37_79b9_7f4a_7c15) as u128 * (b ^ 0xd1b5_4a32_d192_ed03) as u128;
    ((product as u64) ^ (product >> 64) as u64).wrapping_add(a.rotate_left(23))
}
