//! Administrators change the members at random, while everything else goes wrong.

use paxoslease_node::front::Request;
use paxoslease_node::{MembersChange, MembersRequest};

use super::Swarm;
use crate::simulation::address;

impl Swarm {
    /// Sometimes one administrator asks a node for a change, and sometimes two do at once. Most
    /// changes are refused or are not needed; every one of them must be answered.
    pub(super) fn change_members(&mut self) {
        if self.setup.spares == 0 || !self.changes.chance(300) {
            return;
        }
        for _ in 0..self.changes.pick(&[1, 1, 2]) {
            let host = self.changes.below(self.setup.acceptors() as u64) as usize;
            let change = self.draw_change();
            let Some(node) = self.simulation.world.node(host) else { continue };
            let request = MembersRequest { change, dry_run: false, yes: true };
            let asking = node.remote().ask(Request::Members(Box::new(request)));
            self.simulation.spawn(host, async move {
                let _answer = asking.await;
            });
        }
    }

    fn draw_change(&mut self) -> MembersChange {
        let all = self.setup.acceptors() as u16;
        let draws = |rng: &mut paxoslease_sim::Rng| rng.between(1, u64::from(all)) as u16;
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
}
