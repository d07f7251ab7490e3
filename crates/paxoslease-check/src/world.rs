//! The whole cell at one moment, what can happen next, and what must never be.
//!
//! A state is small and flat: node states by number, the set of messages ever sent as bits, what
//! each client believes. Beliefs are the core's own [`Belief`].

mod judge;

pub use judge::Harm;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use paxoslease_core::{Ballot, Belief, MemberSet, Message, Phase, Reply, Rule, Tenure};

use crate::bounds::Bounds;
use crate::local::{Input, Locals, NAMES, View, at, node_id};
use crate::search::Look;

const NODES_MAX: usize = 6;
const WISHES_MAX: usize = 3;
const NET_WORDS: usize = 6;

/// The cell at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    tick: u8,
    acquired: u8,
    renewals: u8,
    releases: u8,
    abandons: u8,
    crashes: u8,
    clean_restarts: u8,
    sweeps: u8,
    locals: [u32; NODES_MAX],
    net: [u64; NET_WORDS],
    /// The messages to and from each acceptor, as a sum that does not name the acceptor.
    net_sums: [u64; NODES_MAX],
    beliefs: [Option<Belief>; WISHES_MAX],
    /// The belief of a client in a tenure that was granted to another (P7 switched off).
    adopted: Option<Belief>,
    fences: [u64; NAMES.len()],
    /// The highest ballot each node issued on request.
    issued: [u64; NODES_MAX],
}

/// One step of the world: something done to a node, or time passing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    Tick,
    /// `from` is the node's state after it counted some answers that had no effect as yet.
    At {
        node: u8,
        from: u32,
        input: Input,
    },
}

#[derive(Clone, Copy)]
struct Letter {
    to: u8,
    from: u8,
    content: u32,
    /// The acceptor at one end, and the rest of the message's identity.
    acceptor: u8,
    identity: u64,
    /// Of an answer, the round or release it belongs to.
    answers: Option<Subject>,
}

/// What an answer is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Subject {
    Round(Ballot),
    Release(Tenure),
}

pub(crate) struct World {
    bounds: Bounds,
    locals: Locals,
    letters: Vec<Letter>,
    by_letter: HashMap<(u8, u8, u32), u16, FixedState>,
    look: Look,
    /// Whether an answer to a round that is over may be forgotten.
    forgets_answers: bool,
    /// How many steps replaced a live lease by a Heal.
    replacing: usize,
}

impl World {
    pub(crate) fn new(bounds: &Bounds, look: Look) -> Self {
        assert!(bounds.nodes() <= NODES_MAX && bounds.wishes.len() <= WISHES_MAX);
        assert!(bounds.wishes.iter().all(|wish| wish.proposer < bounds.proposer_count()));
        Self {
            bounds: bounds.clone(),
            locals: Locals::new(bounds),
            letters: Vec::new(),
            by_letter: HashMap::default(),
            look,
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
        self.locals.len()
    }

    pub(crate) fn first(&mut self) -> State {
        let mut locals = [0; NODES_MAX];
        for (node, local) in locals.iter_mut().enumerate().take(self.bounds.nodes()) {
            *local = self.locals.first(node);
        }
        State {
            tick: 0,
            acquired: 0,
            renewals: 0,
            releases: 0,
            abandons: 0,
            crashes: 0,
            clean_restarts: 0,
            sweeps: 0,
            locals,
            net: [0; NET_WORDS],
            net_sums: [0; NODES_MAX],
            beliefs: [None; WISHES_MAX],
            adopted: None,
            fences: [0; NAMES.len()],
            issued: [0; NODES_MAX],
        }
    }

    /// The identity of a state; the same for states that differ only in which acceptor is which.
    pub(crate) fn identity(&self, state: &State) -> u64 {
        let acceptors = usize::from(self.bounds.acceptors);
        let symmetric = self.bounds.proposers > 0;
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
        for belief in state.beliefs.iter().chain([&state.adopted]) {
            common = mix(common, belief.map_or(0, |belief| identity_of(&belief)));
        }
        for number in state.fences.iter().chain(&state.issued) {
            common = mix(common, *number);
        }
        if !symmetric {
            for node in 0..acceptors {
                let local = self.view(state, node).digests[0];
                common = mix(mix(common, local), state.net_sums[node]);
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
        let permutations = self.locals.permutations().iter().enumerate();
        permutations.map(permuted).min().expect("at least the identity")
    }

    fn view(&self, state: &State, node: usize) -> &View {
        &self.locals.views[state.locals[node] as usize]
    }

    /// Everything that may happen next.
    ///
    /// Answers that a proposer only counts are not steps of their own: nobody can tell when they
    /// arrived until one has an effect, so they are counted right before that one. Everything else
    /// a proposer does is the same whatever it has counted, but for whom it heals, and then it
    /// heals more. What it counted for one round or release has no effect on another. This loses
    /// no schedule that matters and most of the states.
    pub(crate) fn choices(&mut self, state: &State, steps: &mut Vec<Step>) {
        steps.clear();
        let mut answers: [Vec<(Subject, Input)>; NODES_MAX] = Default::default();
        for (word, bits) in state.net.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let letter = self.letters[word * 64 + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                let input = Input::Deliver { from: letter.from, content: letter.content };
                let to = usize::from(letter.to);
                if let Some(subject) = letter.answers {
                    answers[to].push((subject, input));
                } else {
                    steps.push(Step::At { node: letter.to, from: state.locals[to], input });
                }
            }
        }
        let now = at(state.tick);
        let mut inputs: [Vec<Input>; NODES_MAX] = Default::default();
        self.node_choices(state, &mut inputs);
        self.client_choices(state, &mut |node: usize, input| inputs[node].push(input));
        for node in 0..self.bounds.nodes() {
            answers[node].sort_unstable_by_key(|(subject, _)| *subject);
            for alike in answers[node].chunk_by(|one, other| one.0 == other.0) {
                for from in self.counted(node, state, alike) {
                    let mut push = |input| steps.push(Step::At { node: node as u8, from, input });
                    alike.iter().for_each(|(_, input)| push(*input));
                }
            }
            let from = state.locals[node];
            let mut push = |input| steps.push(Step::At { node: node as u8, from, input });
            inputs[node].iter().for_each(|input| push(*input));
            if self.locals.views[from as usize].wake_at.is_some_and(|at| at <= now) {
                push(Input::Wake);
            }
        }
        if state.tick < self.bounds.ticks {
            steps.push(Step::Tick);
        }
    }

    /// The states a node can be in after counting some of the answers on their way to it.
    fn counted(&mut self, node: usize, state: &State, answers: &[(Subject, Input)]) -> Vec<u32> {
        let mut reached = vec![state.locals[node]];
        let mut next = 0;
        while let Some(from) = reached.get(next).copied() {
            next += 1;
            for (_, input) in answers {
                if let Some(outcome) = self.locals.step(node, from, state.tick, *input)
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
                    inputs.push(Input::Crash { nth: state.crashes, landed: false });
                }
                continue;
            }
            if bounds.may_crash(node) {
                let is_writing = self.view(state, node).is_writing;
                if is_writing {
                    inputs.push(Input::Written);
                }
                let landings: &[bool] = if is_writing { &[false, true] } else { &[false] };
                for landed in landings.iter().copied() {
                    if state.crashes < bounds.crashes {
                        inputs.push(Input::Crash { nth: state.crashes, landed });
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
        if let Some(wish) = bounds.wishes.get(usize::from(state.acquired))
            && state.tick >= wish.not_before
        {
            let node = bounds.proposer_node(wish.proposer);
            inputs[node].push(Input::Acquire { wish: state.acquired });
        }
    }

    fn client_choices(&self, state: &State, push: &mut impl FnMut(usize, Input)) {
        let bounds = &self.bounds;
        for wish in 0..state.acquired {
            let spec = bounds.wishes[usize::from(wish)];
            let own = bounds.proposer_node(spec.proposer);
            let belief = state.beliefs[usize::from(wish)];
            if belief.is_none() && state.abandons < bounds.abandons {
                push(own, Input::Abandon { wish });
            }
            if state.abandons < bounds.abandons && state.renewals > 0 {
                push(own, Input::AbandonRenewal { wish });
            }
            let Some(belief) = belief else { continue };
            let tenure = belief.tenure();
            // A naive client renews after its lease has lapsed; after a release nobody does (P6).
            let released = belief.is_released();
            let via: Vec<usize> = if bounds.any_proposer {
                (0..bounds.proposer_count()).map(|other| bounds.proposer_node(other)).collect()
            } else {
                vec![own]
            };
            for node in via {
                if spec.renews && !released && state.renewals < bounds.renewals {
                    for ticks in &bounds.renewal_ticks {
                        push(node, Input::Renew { wish, tenure, ticks: *ticks, adopted: false });
                        if bounds.adopters && !bounds.rules.on(Rule::OnlyOwnTenureIsRenewed) {
                            let ticks = *ticks;
                            push(node, Input::Renew { wish, tenure, ticks, adopted: true });
                        }
                    }
                }
                if spec.releases && !released && state.releases < bounds.releases {
                    push(node, Input::Release { wish, tenure });
                }
            }
        }
    }

    /// Takes a step; `None` when it changes nothing or leaves the bounds.
    pub(crate) fn take(&mut self, state: &State, step: Step) -> Result<Option<State>, Harm> {
        let mut next = *state;
        let Step::At { node, from, input } = step else {
            next.tick += 1;
            return Ok(Some(next));
        };
        match input {
            Input::Acquire { .. } => next.acquired += 1,
            Input::Renew { .. } => next.renewals += 1,
            Input::Abandon { .. } | Input::AbandonRenewal { .. } => next.abandons += 1,
            Input::Crash { .. } => next.crashes += 1,
            Input::Stop { .. } => next.clean_restarts += 1,
            Input::Sweep => next.sweeps += 1,
            Input::Release { wish, .. } => {
                next.releases += 1;
                // P6: the holder drops its belief before anything is sent.
                if let Some(belief) = &mut next.beliefs[usize::from(wish)] {
                    belief.release();
                }
            }
            Input::Deliver { .. } | Input::Wake | Input::Written | Input::Start => {}
        }
        let at_node = usize::from(node);
        let is_down = self.view(state, at_node).is_stopped;
        if is_down && !matches!(input, Input::Start | Input::Crash { .. }) {
            return Ok(None);
        }
        let Some(outcome) = self.locals.step(at_node, from, state.tick, input) else {
            return Ok(matches!(input, Input::Release { .. }).then_some(next));
        };
        if outcome.is_silent() && matches!(input, Input::Deliver { .. }) {
            return Ok(None);
        }
        next.locals[at_node] = outcome.next;
        let (sent, events) = (outcome.sent.clone(), outcome.events.clone());
        let (issued, broken) = (outcome.issued, outcome.broken.clone());
        self.replacing += usize::from(outcome.replaced);
        if self.forgets_answers {
            self.forget_answers(&mut next, at_node, state.locals[at_node]);
        }
        if let Some(broken) = broken.filter(|_| self.look == Look::Strictly) {
            return Err(Harm::Misstep(broken));
        }
        if self.out_of_ballots(&next, at_node) {
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
            if self.look == Look::Strictly && ballot.as_u64() <= *last {
                return Err(Harm::BallotReused(format!("{ballot:?} again")));
            }
            *last = ballot.as_u64().max(*last);
        }
        for event in events {
            self.believe(&mut next, event)?;
        }
        self.judge(&next)?;
        Ok(Some(next))
    }

    /// Retries are bounded by the ballots they use, within one run of a node.
    fn out_of_ballots(&self, state: &State, node: usize) -> bool {
        let budget = self.bounds.wishes.len() as u64
            + u64::from(self.bounds.renewals)
            + u64::from(self.bounds.spare_ballots);
        let counter = self.view(state, node).counter - self.bounds.counter(node);
        self.bounds.retries && state.crashes == 0 && counter > budget
    }

    /// Whether a message can ever have an effect: hints do nothing where nobody waits, and see
    /// [`Self::counts`].
    fn matters(&self, state: &State, from: u8, to: u8, content: u32) -> bool {
        let message = self.locals.content(content);
        match message {
            Message::Hint(_) => false,
            Message::Request(_) => true,
            Message::Reply(reply) => self.counts(self.view(state, usize::from(to)), from, reply),
        }
    }

    /// Whether an answer can still do something to a proposer. What belongs to a round that is
    /// over, or to a phase that is, is stale for ever, since no ballot is used twice. Where
    /// nothing is tried again a Reject only teaches a counter: its round may end at any time
    /// anyway. A tenure is released once by each node, so what confirms a release that is over
    /// is stale as well.
    fn counts(&self, proposer: &View, from: u8, reply: Reply<'_>) -> bool {
        if let Reply::Released { tenure, .. } = reply {
            let member = self.locals.member(usize::from(from));
            let lacks = |confirmed: MemberSet| !confirmed.contains(member);
            let mut releases = proposer.releases.iter();
            return self.bounds.confirmations
                && releases.any(|(of, confirmed, _)| *of == tenure && lacks(*confirmed));
        }
        if !self.forgets_answers {
            return true;
        }
        let phase = match subject(&reply) {
            Some(Subject::Round(ballot)) => {
                proposer.rounds.iter().find(|round| round.0 == ballot).map(|round| round.1)
            }
            Some(Subject::Release(_)) | None => None,
        };
        match (reply, phase) {
            (Reply::Promise { .. }, Some(phase)) => phase == Phase::Preparing,
            (Reply::Accept { .. }, Some(phase)) => {
                matches!(phase, Phase::Proposing | Phase::Renewing)
            }
            (Reply::Reject { promised, .. }, Some(_)) => {
                self.bounds.retries || promised.counter() > proposer.counter
            }
            (Reply::NotHeld { .. }, Some(_)) => true,
            _ => false,
        }
    }

    /// Drops the answers that a step of this node made stale.
    fn forget_answers(&self, state: &mut State, node: usize, before: u32) {
        let (before, after) = (&self.locals.views[before as usize], self.view(state, node));
        if before.rounds == after.rounds
            && before.counter == after.counter
            && before.releases == after.releases
        {
            return;
        }
        for word in 0..NET_WORDS {
            let mut bits = state.net[word];
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                bits &= bits - 1;
                let letter = self.letters[word * 64 + bit.trailing_zeros() as usize];
                if usize::from(letter.to) != node || letter.answers.is_none() {
                    continue;
                }
                if let Message::Reply(reply) = self.locals.content(letter.content)
                    && !self.counts(after, letter.from, reply)
                {
                    state.net[word] &= !bit;
                    let sum = &mut state.net_sums[usize::from(letter.acceptor)];
                    *sum = sum.wrapping_sub(letter.identity);
                }
            }
        }
    }

    fn post(&mut self, state: &mut State, from: u8, to: u8, content: u32) {
        let key = (from, to, content);
        let id = match self.by_letter.get(&key) {
            Some(known) => *known,
            None => {
                let id = u16::try_from(self.letters.len()).expect("fewer messages than that");
                assert!(usize::from(id) < NET_WORDS * 64, "more messages than the network holds");
                let (acceptor, rest) = if self.bounds.proposers == 0 {
                    (to, u64::from(from) << 32)
                } else if self.bounds.is_acceptor(usize::from(to)) {
                    (to, u64::from(from) << 32 | 1 << 48)
                } else {
                    (from, u64::from(to) << 32 | 2 << 48)
                };
                let identity = mix(u64::from(content) | rest, 7);
                let answers = match self.locals.content(content) {
                    Message::Reply(reply) => subject(&reply),
                    Message::Request(_) | Message::Hint(_) => None,
                };
                self.letters.push(Letter { to, from, content, acceptor, identity, answers });
                self.by_letter.insert(key, id);
                id
            }
        };
        let (word, bit) = (usize::from(id) / 64, 1 << (id % 64));
        if state.net[word] & bit == 0 {
            state.net[word] |= bit;
            let letter = self.letters[usize::from(id)];
            let sum = &mut state.net_sums[usize::from(letter.acceptor)];
            *sum = sum.wrapping_add(letter.identity);
        }
    }

    /// A step in words.
    pub(crate) fn tell(&self, state: &State, step: Step) -> String {
        let tick = state.tick;
        match step {
            Step::Tick => format!("tick {}", tick + 1),
            Step::At { node, input: Input::Deliver { from, content }, .. } => {
                let (from, to) = (node_id(usize::from(from)), node_id(usize::from(node)));
                format!("[{tick}] {from:?} -> {to:?} {:?}", self.locals.content(content))
            }
            Step::At { node, input, .. } => {
                format!("[{tick}] at {:?} {input:?}", node_id(usize::from(node)))
            }
        }
    }
}

fn subject(reply: &Reply<'_>) -> Option<Subject> {
    match reply {
        Reply::Promise { ballot, .. }
        | Reply::Accept { ballot }
        | Reply::Reject { ballot, .. }
        | Reply::NotHeld { ballot, .. } => Some(Subject::Round(*ballot)),
        Reply::Released { tenure, .. } => Some(Subject::Release(*tenure)),
        Reply::Inspected { .. } => None,
    }
}

fn identity_of(belief: &Belief) -> u64 {
    let held = u64::from(!belief.is_released());
    mix(mix(belief.tenure().fence(), belief.ends_at().as_nanos()), held)
}

/// Folds two words into one, well mixed.
const fn mix(a: u64, b: u64) -> u64 {
    let product = (a ^ 0x9e37_79b9_7f4a_7c15) as u128 * (b ^ 0xd1b5_4a32_d192_ed03) as u128;
    ((product as u64) ^ (product >> 64) as u64).wrapping_add(a.rotate_left(23))
}
