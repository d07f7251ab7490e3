//! What a cell promises its users while everything works, or everything except one member.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use paxoslease_sim::Check;

use super::Swarm;
use crate::network::{Conditions, Presence};
use crate::simulation::Workers;
use paxoslease_holder::LeaseGuard;

/// Leases by name: the host and client that have them, and the guard.
type Leases = BTreeMap<usize, (usize, u32, Rc<LeaseGuard>)>;

/// Why a member misses messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Absence {
    /// It is stopped, and its snapshot restores what it knew.
    Stopped,
    /// It is cut off from all others.
    CutOff,
    /// Messages to it are lost for a moment, although its connections stay open.
    Deaf,
    /// It crashes.
    Killed(Presence),
}

impl Swarm {
    /// Draws the round trip between nodes, with a tenth of jitter. Leases last longer.
    fn draw_distance(&mut self) -> Duration {
        let far = self.rng.millis(50, 300).min(self.setup.max_lease / 10);
        let trip = self.rng.pick(&[Duration::from_millis(1), far, far]);
        let delay = (trip * 9 / 20, trip * 11 / 20);
        self.simulation.world.network.conditions = Conditions { delay, ..Conditions::PERFECT };
        self.simulation.run_for(Duration::from_secs(1) + trip * 4);
        trip
    }

    /// Promise 5. A member misses the release of every name; it comes back, and another one goes.
    /// Meanwhile every free name is granted, and the lease of a user that goes on is renewed.
    pub(super) fn demand_service(&mut self) {
        // Which nodes are members is not known where they change.
        if self.setup.members < 3 || self.setup.spares > 0 || !self.is_sound() {
            return;
        }
        let trip = self.draw_distance();
        let bound = Duration::from_secs(1) + trip * 5;
        let first = self.rng.between(0, u64::from(self.setup.members) - 1) as usize;
        let second = (first + 1) % usize::from(self.setup.members);
        let names = self.setup.names.len();
        let mut leases = Leases::new();
        for name in 0..names {
            let host = self.other_than(first);
            self.take(&mut leases, host, name, self.setup.max_lease, bound);
        }
        let missed = self.rng.pick(&[Absence::Stopped, Absence::CutOff, Absence::Deaf]);
        // Without a disk, a member that restarts forgets what it could miss.
        let missed = if self.setup.disk { missed } else { Absence::Deaf };
        self.goes(first, missed);
        self.give_back_all(leases);
        let mut leases = Leases::new();
        // A host that stays.
        let keeper = (0..self.setup.nodes()).find(|host| *host != first && *host != second);
        let ttl = self.setup.max_lease / 2;
        self.take(&mut leases, keeper.expect("there are three"), 0, ttl, bound);
        self.comes_back(first, missed);
        // The renewal of the lease that began meanwhile heals the member.
        self.simulation.run_for(ttl + Duration::from_secs(2) + trip * 8);
        let leaves = [
            Absence::CutOff,
            Absence::Killed(Presence::Silent),
            Absence::Killed(Presence::Refusing),
        ];
        let leaves = self.rng.pick(&leaves);
        self.goes(second, leaves);
        self.simulation.run_for(Duration::from_millis(500) + trip * 2);
        for name in 1..names {
            let host = self.other_than(second);
            self.take(&mut leases, host, name, ttl, bound);
        }
        self.simulation.run_for(ttl * 2);
        let held = |(_, _, guard): &(usize, u32, Rc<LeaseGuard>)| guard.is_held();
        if let Some(name) = leases.iter().find(|(_, lease)| !held(lease)).map(|(name, _)| *name) {
            let text = || {
                format!(
                    "the lease of name {name} was not renewed while node {} was away",
                    second + 1
                )
            };
            self.simulation.judge().broken(Check::MinorityStopsNothing, text);
        }
        self.give_back_all(leases);
        self.comes_back(second, leaves);
        // A member that crashed is quarantined.
        self.simulation.run_for(self.setup.max_lease * 2 + Duration::from_secs(2));
    }

    /// Another host with a node. The bounds of these demands are for nodes: clients need longer to
    /// find another one.
    fn other_than(&mut self, away: usize) -> usize {
        let hosts = self.setup.nodes();
        (away + self.rng.between(1, hosts as u64 - 1) as usize) % hosts
    }

    fn take(
        &mut self,
        leases: &mut Leases,
        host: usize,
        name: usize,
        ttl: Duration,
        bound: Duration,
    ) {
        match self.simulation.take_within(host, name, ttl, bound) {
            Some((client, guard)) => drop(leases.insert(name, (host, client, guard))),
            None => {
                let text = || format!("node {} was not granted name {name} in {bound:?}", host + 1);
                self.simulation.judge().broken(Check::MinorityStopsNothing, text);
            }
        }
    }

    fn give_back_all(&mut self, leases: Leases) {
        for (name, (host, client, guard)) in leases {
            if !self.simulation.give_back(host, client, guard) {
                let text = || format!("the release of name {name} at node {} failed", host + 1);
                self.simulation.judge().broken(Check::MinorityStopsNothing, text);
            }
        }
    }

    fn goes(&mut self, host: usize, absence: Absence) {
        let others: Vec<usize> = (0..self.setup.hosts()).filter(|other| *other != host).collect();
        let network = &mut self.simulation.world.network;
        match absence {
            Absence::Stopped => self.stop(host),
            Absence::CutOff => {
                network.blocked.extend(others.iter().flat_map(|o| [(host, *o), (*o, host)]));
                // Until both sides have given up the connections.
                self.simulation.run_for(Duration::from_secs(2));
            }
            Absence::Deaf => network.swallowed.extend(others.iter().map(|other| (*other, host))),
            Absence::Killed(presence) => self.simulation.kill(host, presence),
        }
    }

    fn comes_back(&mut self, host: usize, absence: Absence) {
        match absence {
            Absence::CutOff => self.simulation.world.network.blocked.clear(),
            Absence::Deaf => self.simulation.world.network.swallowed.clear(),
            Absence::Stopped | Absence::Killed(_) => {
                self.simulation.end_tasks_of(host);
                self.simulation.start(host);
            }
        }
    }

    /// Workers on every host share a name, and no worker starves.
    pub(super) fn demand_turns(&mut self) {
        // Hand-overs are many events, so not every world has them.
        if !self.rng.chance(300) || !self.is_sound() {
            return;
        }
        let trip = self.draw_distance();
        let workers = Workers {
            per_host: self.rng.between(1, 2) as usize,
            ttl: self.setup.max_lease,
            held: self.rng.millis(1, 50),
            confirms: self.rng.chance(500),
            pause: self.rng.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_millis(2)]),
        };
        let hosts: Vec<usize> =
            (0..self.setup.hosts()).filter(|host| self.is_served(*host)).collect();
        let sharing = self.simulation.share(&hosts, workers, Duration::from_secs(12) + trip * 100);
        let longest = Duration::from_secs(10) + trip * 20;
        if let Some(starved) = sharing.starved(longest) {
            let members = self.setup.members;
            let text = || format!("{members} members, {trip:?}, {workers:?}: {starved}");
            self.simulation.judge().broken(Check::TurnsAreTaken, text);
        }
        self.simulation.run_for(self.setup.max_lease * 2 + Duration::from_secs(3));
    }
}
