//! Changes of the members: which decisions may follow, and that no lease is lost by them.
//!
//! A decision is one step here: the nodes that take part exchange all their messages at one moment.
//! The search of decisions alone has the order of these messages, and their disks. Fewer voters
//! know less, so this search tries the smallest majorities.

use paxoslease_core::{Belief, Members, Rule};

use super::{Harm, State, Step, World};
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

    pub(super) fn change_choices(&mut self, state: &State, steps: &mut Vec<Step>) {
        if self.bounds.targets.is_empty() {
            return;
        }
        let last = self.nodes.configured(state.configured).clone();
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
        let mut changes = if last.cell.is_joint() { vec![Change::End] } else { Vec::new() };
        if last.cell.is_joint() && self.bounds.aborts {
            changes.push(Change::Abort);
        }
        if !last.cell.is_joint() {
            changes.extend((0..self.bounds.targets.len() as u8).map(Change::Begin));
        }
        for change in changes {
            for voters in self.voters(&last) {
                let nodes = &state.nodes[..self.bounds.nodes()];
                let is_up = |node: &usize| !self.view(state, *node).is_stopped;
                let mut voting = (0..nodes.len()).filter(|node| voters & 1 << node != 0);
                if voting.all(|node| is_up(&node))
                    && let Some(next) = self.nodes.decide(nodes, state.tick, change, voters)
                    && self.nodes.configured(next).cell.epoch() > last.cell.epoch()
                {
                    steps.push(Step::Decide { change, voters });
                }
            }
        }
    }

    /// The sets of nodes that may decide a change. Without the rules of decisions, any set may.
    fn voters(&self, last: &Configured) -> Vec<u8> {
        let bits = |members: &Members| -> u8 {
            members.iter().fold(0, |bits, member| bits | 1 << (member.node.get() - 1))
        };
        let old = bits(last.configuration.old());
        let is_mutant = Rule::OF_DECISIONS.into_iter().any(|rule| !self.bounds.rules.on(rule));
        let quorum = old.count_ones() / 2 + 1;
        let may_decide = |set: &u8| is_mutant || set & !old == 0 && set.count_ones() == quorum;
        (1..1u8 << self.bounds.acceptors).filter(may_decide).collect()
    }

    pub(super) fn decide(&mut self, state: &mut State, change: Change, voters: u8) {
        let nodes = &state.nodes[..self.bounds.nodes()];
        let decided = self.nodes.decide(nodes, state.tick, change, voters);
        state.configured = decided.expect("it was a choice");
        state.decisions += 1;
    }

    /// Removes the messages that a node drops in its new epoch.
    pub(super) fn forget_epochs(&self, state: &mut State, node: usize) {
        let epoch = self.epoch(state, node);
        let is_checked = self.bounds.rules.on(Rule::MessagesOfOwnEpochOnly);
        self.forget(state, |packet| {
            is_checked && usize::from(packet.to) == node && packet.epoch < epoch
        });
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
