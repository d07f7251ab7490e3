//! Configurations and how a node adopts them (docs/membership.md).

use paxoslease_core::{
    Ballot, Belief, Cell, Event, Holder, Instant, NodeId, Renew, Sets, Shard, Token,
};

use super::{NodeState, NodeStates, TICK, at, name, node_id};

/// A decided configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Configured {
    pub(crate) cell: Cell,
    pub(crate) floor: Ballot,
    /// The members, as indices of acceptors.
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
}

/// What is decided next. `Begin` has the index of its target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Change {
    Begin(u8),
    End,
    Abort,
}

impl Configured {
    pub(crate) fn first(cell: Cell, old: Vec<u8>) -> Self {
        Self { cell, floor: Ballot::ZERO, old, new: Vec::new() }
    }

    /// C4: the configuration that follows.
    fn after(&self, change: Change, targets: &[Vec<u8>], floor: Ballot) -> Self {
        let (epoch, era) = (self.cell.epoch(), self.cell.era());
        let (old, new, era) = match change {
            Change::Begin(target) => (self.old.clone(), targets[usize::from(target)].clone(), era),
            Change::End => (self.new.clone(), Vec::new(), epoch),
            Change::Abort => (self.old.clone(), Vec::new(), era),
        };
        let ids = |set: &[u8]| -> Vec<NodeId> {
            set.iter().map(|node| node_id(usize::from(*node))).collect()
        };
        let sets = Sets { old: &ids(&old), new: &ids(&new) };
        let cell = self.cell.in_epoch(epoch + 1, era, sets).expect("valid targets");
        Self { cell, floor: floor.max(self.floor), old, new }
    }
}

impl NodeStates {
    pub(crate) fn configured(&self, number: u16) -> &Configured {
        &self.configured[usize::from(number)]
    }

    /// The number of the configuration that follows another one.
    pub(crate) fn decide(&mut self, last: u16, change: Change, floor: Ballot) -> u16 {
        let next = self.configured(last).after(change, &self.bounds.targets, floor);
        let known = self.configured.iter().position(|known| *known == next);
        let number = known.unwrap_or_else(|| {
            self.configured.push(next);
            self.configured.len() - 1
        });
        u16::try_from(number).expect("few configurations")
    }

    /// C2: the configuration is written to the disk, and then the shard changes over.
    pub(super) fn adopt(&self, node_state: &mut NodeState, tick: u8, configured: u16) {
        let Configured { cell, floor, .. } = self.configured(configured);
        node_state.shard.adopt(at(tick), *cell, *floor);
        node_state.configured = configured;
        self.enter(node_state, tick);
    }

    /// C6: the wait begins when a node enters its epoch, and anew when it starts.
    pub(super) fn enter(&self, node_state: &mut NodeState, tick: u8) {
        let is_joint = self.configured(node_state.configured).cell.is_joint();
        let longest = node_state.record.lease_ceiling.filter(|_| is_joint);
        node_state.entered = (if is_joint { tick } else { 0 }, longest);
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
        let Configured { cell, floor, .. } = self.configured(configured);
        let (mut now, tenure) = (at(tick), belief.tenure());
        let mut shards: Vec<Shard> =
            nodes.iter().map(|node| self.states[*node as usize].shard.clone()).collect();
        for shard in &mut shards {
            shard.adopt(now, *cell, *floor);
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
