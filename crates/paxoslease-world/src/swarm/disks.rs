//! Data folders are lost, and operators go on with the same ids.

use std::time::Duration;

use super::Swarm;
use crate::network::Presence;

impl Swarm {
    /// Sometimes a node crashes and its data folder is lost. It comes back with the same id and the
    /// same settings, perhaps with a wall clock that went back. A majority of the members keeps its
    /// folders.
    pub(super) fn lose_disk(&mut self) {
        let Some(rng) = self.disks.as_mut() else { return };
        if !rng.chance(120) {
            return;
        }
        let (members, is_member) = (self.simulation.judge().members.hosts(), rng.chance(500));
        let hosts = 0..self.setup.nodes();
        let hosts: Vec<usize> = hosts.filter(|one| members.contains(one) == is_member).collect();
        if hosts.is_empty() {
            return;
        }
        let host = rng.pick(&hosts);
        let presence = rng.pick(&[Presence::Refusing, Presence::Silent]);
        // A wall clock without a battery begins anew.
        let since_start = Duration::from_nanos(self.simulation.world.now());
        let wall_behind = rng.pick(&[Duration::ZERO, since_start, Duration::from_secs(3600)]);
        let is_back_at_once = rng.chance(500);
        if !self.simulation.judge().members.may_lose_disk(host) {
            return;
        }
        self.simulation.lose_disk(host, presence, wall_behind);
        if is_back_at_once {
            self.start(host);
        }
    }

    /// Whether the node of a host can serve its users. It cannot if the members refuse it for good,
    /// or if it knows no members, and nor does any node in its settings that they do not refuse.
    /// A client begins with the nodes in the settings, too.
    pub(super) fn is_served(&self, host: usize) -> bool {
        let judge = self.simulation.judge();
        let serves = |node: usize| judge.has_members(node) && !judge.members.is_refused(node);
        let mut contacts = (0..usize::from(self.setup.members)).filter(|contact| *contact != host);
        let is_node = host < self.setup.nodes();
        is_node && serves(host)
            || contacts.any(serves) && !(is_node && judge.members.is_refused(host))
    }

    /// Ends the users that no node can serve: they would wait for ever.
    pub(super) fn end_unserved_users(&mut self) {
        for host in 0..self.setup.hosts() {
            if !self.is_served(host) {
                self.simulation.end_tasks_of(host);
            }
        }
    }
}
