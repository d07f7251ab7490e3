//! Changes of the members: which decisions may follow, and that no lease is lost by them.
//!
//! A decision is one step here: the search of decisions alone has their messages and disks. Who may
//! vote, and when, is as in docs/membership.md: members of the old set that are in the last decided
//! epoch (C3), for an End only after their wait (C6). Fewer voters know less, so the search tries
//! the smallest majorities.

use paxoslease_core::{Belief, Rule};

use super::{Harm, NET_WORDS, NODES_MAX, State, Step, World};
use crate::node::{Change, Configured, Input, at};

impl World {
    pub(super) fn epoch(&self, state: &State, node: usize) -> u8 {
        let configured = self.nodes.configured(self.view(state, node).configured);
        configured.cell.epoch() as u8
    }

    /// C1: whether a node drops all messages of an epoch, now and later.
    pub(super) fn is_past(&self, state: &State, node: usize, epoch: u8) -> bool {
        self.bounds.rules.on(Rule::MessagesOfOwnEpochOnly) && epoch < self.epoch(state, node)
    }

    pub(super) fn change_choices(&self, state: &State, steps: &mut Vec<Step>) {
        if self.bounds.targets.is_empty() {
            return;
        }
        let last = self.nodes.configured(state.configured);
        for node in 0..self.bounds.nodes() {
            let is_behind = u32::from(self.epoch(state, node)) < last.cell.epoch();
            if is_behind && !self.view(state, node).is_stopped {
                let input = Input::Adopt { configured: state.configured };
                steps.push(Step::At { node: node as u8, from: state.nodes[node], input });
            }
        }
        if state.decisions == self.bounds.decisions {
            return;
        }
        let mut push = |change| {
            for voters in self.majorities(state, last, change) {
                steps.push(Step::Decide { change, voters });
            }
        };
        if last.cell.is_joint() {
            push(Change::End);
            if self.bounds.aborts {
                push(Change::Abort);
            }
            return;
        }
        for (target, members) in self.bounds.targets.iter().enumerate() {
            if *members != last.old {
                push(Change::Begin(target as u8));
            }
        }
    }

    /// The smallest majorities of the old set that may vote for a change.
    fn majorities(&self, state: &State, last: &Configured, change: Change) -> Vec<u8> {
        let votes = |node: &&u8| {
            let view = self.view(state, usize::from(**node));
            let (entered, longest) = view.entered;
            let waited = longest
                .is_none_or(|longest| at(state.tick) >= at(entered).after(longest.as_duration()));
            let is_there = view.configured == state.configured && !view.is_stopped;
            is_there && (change != Change::End || waited)
        };
        let voters: Vec<u8> = last.old.iter().filter(votes).copied().collect();
        let quorum = last.old.len() / 2 + 1;
        let sets = 0..1u8 << NODES_MAX;
        let is_set = |set: &u8| {
            let all_vote = (0..NODES_MAX as u8).all(|n| set & 1 << n == 0 || voters.contains(&n));
            set.count_ones() as usize == quorum && all_vote
        };
        sets.filter(is_set).collect()
    }

    /// C4: the floor of the next configuration covers the counters of all voters.
    pub(super) fn decide(&mut self, state: &mut State, change: Change, voters: u8) {
        let voting = (0..NODES_MAX).filter(|node| voters & 1 << node != 0);
        let floor =
            voting.map(|node| self.view(state, node).top).max().expect("a majority is not empty");
        state.configured = self.nodes.decide(state.configured, change, floor);
        state.decisions += 1;
    }

    /// Removes the messages that a node drops in its new epoch.
    pub(super) fn forget_epochs(&self, state: &mut State, node: usize) {
        for word in 0..NET_WORDS {
            let mut bits = state.net[word];
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                bits &= bits - 1;
                let packet = self.packets[word * 64 + bit.trailing_zeros() as usize];
                if usize::from(packet.to) == node && self.is_past(state, node, packet.epoch) {
                    state.net[word] &= !bit;
                    let sum = &mut state.net_sums[usize::from(packet.acceptor)];
                    *sum = sum.wrapping_sub(packet.identity);
                }
            }
        }
    }

    /// No lease is lost: whatever is believed could be renewed now, if all nodes adopted the last
    /// configuration and answered.
    pub(super) fn live(&mut self, state: &State) -> Result<(), Harm> {
        if !self.bounds.live {
            return Ok(());
        }
        for (client, belief) in state.beliefs.iter().enumerate() {
            let Some(belief) = belief.filter(|belief: &Belief| belief.is_held(at(state.tick)))
            else {
                continue;
            };
            let spec = self.bounds.clients[client];
            let proposer = self.bounds.proposer_node(spec.proposer);
            let nodes = &state.nodes[..self.bounds.nodes()];
            let (tick, configured) = (state.tick, state.configured);
            if !self.nodes.renewable(nodes, tick, configured, proposer, spec.name, &belief) {
                let text = format!("{} at tick {tick}", belief.tenure());
                return Err(Harm::LeaseLost(text));
            }
        }
        Ok(())
    }
}
