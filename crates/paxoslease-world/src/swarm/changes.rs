//! Administrators change the members at random, while everything else goes wrong.

use paxoslease_node::front::Request;
use paxoslease_node::{MembersChange, MembersRequest};

use super::Swarm;
use crate::simulation::address;

impl Swarm {
    /// Sometimes one administrator asks a node for a change, and sometimes two do at once. Most
    /// changes are refused or are not needed; every one of them must be answered.
    pub(super) fn change_members(&mut self) {
        if self.setup.spares == 0 || !self.changes.chance(400) {
            return;
        }
        for _ in 0..self.changes.pick(&[1, 1, 2]) {
            let host = self.draw_asked();
            let change = self.draw_change();
            self.ask_for(host, change);
        }
    }

    /// Asks a node for a change, if it runs.
    pub(super) fn ask_for(&mut self, host: usize, change: MembersChange) {
        let Some(node) = self.simulation.world.node(host) else { return };
        let request = MembersRequest { change, dry_run: false, yes: true };
        let asking = node.remote().ask(Request::Members(Box::new(request)));
        self.simulation.spawn(host, async move {
            let _answer = asking.await;
        });
    }

    /// The host of the node that is asked for a change: often a member.
    fn draw_asked(&mut self) -> usize {
        let members = self.simulation.judge().members.hosts();
        if !members.is_empty() && self.changes.chance(500) {
            return self.changes.pick(&members);
        }
        self.changes.below(self.setup.acceptors() as u64) as usize
    }

    fn draw_change(&mut self) -> MembersChange {
        let all = self.setup.acceptors() as u16;
        let draws = |rng: &mut paxoslease_sim::Rng| rng.between(1, u64::from(all)) as u16;
        let lost = self.simulation.judge().members.lost();
        if !lost.is_empty() && self.changes.chance(600) {
            return self.draw_replacement(&lost);
        }
        match self.changes.between(0, 9) {
            0 => MembersChange::Abort,
            1 => {
                let id = draws(&mut self.changes);
                MembersChange::Edit { remove: vec![id], add: Vec::new() }
            }
            2 | 3 => {
                let (gone, new) = (draws(&mut self.changes), draws(&mut self.changes));
                MembersChange::Edit { remove: vec![gone], add: vec![(new, address(new))] }
            }
            4 => {
                let new = draws(&mut self.changes);
                MembersChange::Edit { remove: Vec::new(), add: vec![(new, address(new))] }
            }
            _ => {
                let ids: Vec<u16> = (1..=all).filter(|_| self.changes.chance(600)).collect();
                let place = |id: u16| (id, Some(address(id)));
                MembersChange::Set(ids.into_iter().map(place).collect())
            }
        }
    }

    /// The nodes that may become members.
    pub(super) fn usable(&self) -> Vec<u16> {
        let judge = self.simulation.judge();
        let members = judge.members.hosts();
        let is_usable = |host: &usize| !members.contains(host) && !judge.members.is_refused(*host);
        (0..self.setup.acceptors()).filter(is_usable).map(|host| host as u16 + 1).collect()
    }

    /// What an operator does about members that lost their data folders. The right reaction is to
    /// replace one by a node that was never a member, or still has its folder. Wrong ones are to
    /// add the same id again, or another id that was lost.
    fn draw_replacement(&mut self, lost: &[u16]) -> MembersChange {
        let gone = self.changes.pick(lost);
        let usable = self.usable();
        let new = match self.changes.between(0, 9) {
            0 => gone,
            1 => self.changes.between(1, self.setup.acceptors() as u64) as u16,
            _ if usable.is_empty() => gone,
            _ => self.changes.pick(&usable),
        };
        let remove = if self.changes.chance(100) { Vec::new() } else { vec![gone] };
        MembersChange::Edit { remove, add: vec![(new, address(new))] }
    }
}
