//! Configurations and how a node adopts them (docs/membership.md).

use std::collections::BTreeMap;

use paxoslease_core::{
    self as core, Ballot, Belief, Birth, Cell, Configuration, Decider, DeciderConfig, Event,
    Holder, Instant, Member, Members, MembershipEvent, MembershipMessage, NodeId, NodeView, Record,
    Renew, Shard, StableConfiguration, Token, Vote,
};

use super::{NodeState, NodeStates, TICK, at, name, node_id};

/// A decided configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Configured {
    pub(crate) configuration: Configuration,
    pub(crate) cell: Cell,
}

/// What is decided next. `Begin` has the index of its target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Change {
    Begin(u8),
    End,
    Abort,
}

fn birth(node: NodeId) -> Birth {
    Birth(node.get().into())
}

/// The members with these indices.
fn members(set: &[u8]) -> Members {
    let member = |node: &u8| {
        let node = node_id(usize::from(*node));
        Member { node, birth: birth(node), peer: "peer".into() }
    };
    Members::new(set.iter().map(member).collect()).expect("valid sets")
}

impl Configured {
    /// A cell whose members change begins in epoch 1, and any other stays in epoch 0.
    pub(crate) fn first(cell: Cell, set: &[u8], changes: bool) -> Self {
        let old = members(set);
        let past = old.iter().map(|member| (member.node, member.birth)).collect();
        let configuration = Configuration::new(1, (old, None), 0, Ballot::ZERO, past);
        let configuration = configuration.expect("valid sets");
        let cell = if changes { configuration.cell(&cell) } else { cell };
        Self { configuration, cell }
    }
}

impl NodeStates {
    pub(crate) fn configured(&self, number: u16) -> &Configured {
        &self.configured[usize::from(number)]
    }

    /// The part of a node that votes on configurations, when the node starts.
    pub(super) fn decider(&self, node: usize, tick: u8, state: &NodeState) -> Option<Box<Decider>> {
        if self.bounds.targets.is_empty() {
            return None;
        }
        let id = node_id(node);
        let mut config = DeciderConfig::new(id, birth(id), self.cell.drift(), 1);
        config.rules = self.bounds.rules;
        let configuration = self.configured(state.configured).configuration.clone();
        let epoch = configuration.epoch();
        let stable = StableConfiguration { configuration, vote: Vote::default() };
        let mut decider = Decider::start(config, at(tick), stable);
        decider.shards_changed(at(tick), epoch, state.record.lease_ceiling);
        Some(Box::new(decider))
    }

    /// The configuration that these voters decide, if they can. They exchange messages among
    /// themselves, all at one moment, and all their writes succeed.
    pub(crate) fn decide(
        &mut self,
        nodes: &[u32],
        tick: u8,
        change: Change,
        voters: u8,
    ) -> Option<u16> {
        let voting = (0..nodes.len()).filter(|node| voters & 1 << node != 0);
        let key: Vec<u32> = voting.clone().map(|node| nodes[node]).collect();
        let key = (key, tick, change, voters);
        if let Some(known) = self.decided.get(&key) {
            return *known;
        }
        let deciders = voting.filter_map(|node| {
            let state = &self.states[nodes[node] as usize];
            let view = NodeView { top: state.shard.counter(), ..NodeView::default() };
            Some((node_id(node), (state.decider.clone()?, view)))
        });
        let change = match change {
            Change::Begin(target) => {
                core::Change::Begin(members(&self.bounds.targets[usize::from(target)]))
            }
            Change::End => core::Change::End,
            Change::Abort => core::Change::Abort,
        };
        let decided = decided(deciders.collect(), at(tick), &change).map(|configuration| {
            let cell = configuration.cell(&self.cell);
            let next = Configured { configuration, cell };
            let known = self.configured.iter().position(|known| *known == next);
            let number = known.unwrap_or_else(|| {
                self.configured.push(next);
                self.configured.len() - 1
            });
            u16::try_from(number).expect("few configurations")
        });
        self.decided.insert(key, decided);
        decided
    }

    /// C2: a node learns a decided configuration, writes it, and then its shard changes over.
    pub(super) fn adopt(&self, state: &mut NodeState, tick: u8, configured: u16) {
        let view = NodeView { top: state.shard.counter(), ..NodeView::default() };
        let now = at(tick);
        let Configured { configuration, cell } = self.configured(configured);
        let Some(decider) = &mut state.decider else { return };
        let config = MembershipMessage::Config(configuration.clone());
        // C11: a member that it knows tells it.
        let teller = decider.configuration().old()[0].node;
        decider.handle_message(now, (teller, birth(teller)), config, &view);
        while let Some(event) = decider.poll_event() {
            match event {
                // A node that has changed over before this may crash before it is done.
                MembershipEvent::Persist(_) if state.configured != configured => {
                    state.on_disk = configured;
                    let ceiling = &mut state.record.ballot_ceiling;
                    *ceiling = Record::above(configuration.floor()).max(*ceiling);
                    decider.record_written(now, &view);
                }
                MembershipEvent::Adopt(adopted) => {
                    state.shard.adopt(now, *cell, adopted.floor());
                    state.configured = configured;
                }
                _ => {}
            }
        }
        while decider.poll_transmit().is_some() {}
        let longest = state.record.lease_ceiling;
        decider.shards_changed(now, configuration.epoch(), longest);
        state.enter(tick, cell.is_joint());
    }
}

impl NodeState {
    /// C6: the wait begins when a node enters its epoch, and anew when it starts.
    pub(super) fn enter(&mut self, tick: u8, is_joint: bool) {
        let longest = self.record.lease_ceiling.filter(|_| is_joint);
        self.entered = (if is_joint { tick } else { 0 }, longest);
    }
}

/// Lets the first of these nodes coordinate a change.
fn decided(
    mut deciders: BTreeMap<NodeId, (Box<Decider>, NodeView)>,
    now: Instant,
    change: &core::Change,
) -> Option<Configuration> {
    let (coordinator, view) = deciders.values_mut().next()?;
    let epoch = coordinator.configuration().epoch();
    coordinator.begin(now, Token(0), change.clone(), view).ok()?;
    loop {
        let mut sent = Vec::new();
        for (from, (decider, view)) in &mut deciders {
            while let Some(event) = decider.poll_event() {
                match event {
                    MembershipEvent::Persist(stable) if stable.configuration.epoch() > epoch => {
                        return Some(stable.configuration);
                    }
                    MembershipEvent::Adopt(configuration) => return Some(configuration),
                    MembershipEvent::Persist(_) => decider.record_written(now, view),
                    _ => {}
                }
            }
            let from = *from;
            sent.extend(std::iter::from_fn(|| decider.poll_transmit()).map(|sent| (from, sent)));
        }
        if sent.is_empty() {
            return None;
        }
        for (from, (to, message)) in sent {
            // What would tell a node of a configuration is lost: `Adopt` is a step of its own.
            let is_news =
                matches!(message, MembershipMessage::Config(_) | MembershipMessage::Learn { .. });
            if let Some((decider, view)) = deciders.get_mut(&to).filter(|_| !is_news) {
                decider.handle_message(now, (from, birth(from)), message, view);
            }
        }
    }
}

impl NodeStates {
    /// Whether a lease would be renewed before it ends if every node adopted a configuration and
    /// answered from now on. The client asks again, because contenders may have to withdraw first.
    pub(crate) fn renewable(
        &self,
        nodes: &[u32],
        tick: u8,
        configured: u16,
        proposer: usize,
        name_number: u8,
        belief: &Belief,
    ) -> bool {
        let Configured { cell, configuration } = self.configured(configured);
        let (mut now, tenure) = (at(tick), belief.tenure());
        let mut shards: Vec<Shard> =
            nodes.iter().map(|node| self.states[*node as usize].shard.clone()).collect();
        for shard in &mut shards {
            shard.adopt(now, *cell, configuration.floor());
        }
        let (name, holder) = (name(name_number), Holder::NONE);
        let token = Token(u64::MAX);
        while belief.is_held(now) {
            let renew = Renew { token, name, holder, tenure, ttl: TICK };
            if shards[proposer].renew(now, renew).is_err() {
                return false;
            }
            if exchange(&mut shards, now, cell).contains(&token) {
                return true;
            }
            now = now.after(TICK);
            shards.iter_mut().for_each(|shard| shard.handle_timeout(now));
        }
        false
    }
}

/// Delivers all messages until there are none. Returns the renewals that succeeded.
fn exchange(shards: &mut [Shard], now: Instant, cell: &Cell) -> Vec<Token> {
    let mut renewed = Vec::new();
    loop {
        let mut sent = Vec::new();
        for (node, shard) in shards.iter_mut().enumerate() {
            while let Some(event) = shard.poll_event() {
                match event {
                    Event::Renewed { token, .. } => renewed.push(token),
                    Event::Persist(record) => shard.record_written(now, record),
                    _ => {}
                }
            }
            while let Some(transmit) = shard.poll_transmit() {
                let to: Vec<NodeId> = transmit.receivers(cell).collect();
                sent.extend(to.into_iter().map(|to| (node, to, transmit.clone())));
            }
        }
        if sent.is_empty() {
            return renewed;
        }
        for (from, to, transmit) in sent {
            let to = &mut shards[usize::from(to.get()) - 1];
            // A message that is dropped is not answered.
            let _ = to.handle_message(now, node_id(from), transmit.message());
        }
    }
}
