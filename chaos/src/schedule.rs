//! Schedules of faults, drawn from a seed before the run. The same seed and plan give the same
//! schedule.
//!
//! A schedule is a sequence of rounds. In each round faults overlap. Then all faults end, and the
//! cell has to grant every name again in time. Deliberately lacks processes: see
//! [`crate::nemesis`].

use std::collections::BTreeSet;
use std::time::Duration;

use paxoslease_sim::Rng;

use crate::nemesis::{ClientFault, Fault, NetworkFault, NodeFault, Shape};
use crate::network::{Delay, Place};

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Plan {
    pub seed: u64,
    /// All nodes. Those after the first `members` may become members later.
    pub nodes: u16,
    pub members: u16,
    pub groups: u16,
    /// Faults concern the clients from 1 to this.
    pub clients: u16,
    pub max_lease: Duration,
    pub drift_ppm: u32,
    /// Whether data folders can be filled and write-protected.
    pub has_disks: bool,
    /// Whether links can be cut and delayed.
    pub has_network: bool,
    pub has_upgrade: bool,
}

/// One fault. Its times count from the begin of the round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub fault: Fault,
    /// The number of the fault in its round, from 0; the same for all its steps.
    pub episode: u64,
    pub begin_at: Duration,
    pub end_at: Duration,
}

/// Overlapping faults, followed by a healing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// By their begin.
    pub entries: Vec<Entry>,
    pub len: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub rounds: Vec<Round>,
    /// The time after each round in which the cell has to grant every name.
    pub bound: Duration,
}

impl Round {
    /// The number of faults, each with all its steps.
    pub fn episodes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.episode + 1).max().unwrap_or(0)
    }
}

impl Plan {
    /// Two groups of clients with clocks within the default drift, and only faults of processes.
    pub fn new(seed: u64, members: u16, max_lease: Duration) -> Self {
        let nodes = members;
        Self { seed, nodes, members, groups: 2, max_lease, drift_ppm: 1000, ..Self::default() }
    }

    /// The same with more nodes, which may become members.
    #[must_use]
    pub const fn with_spares(self, spares: u16) -> Self {
        Self { nodes: self.members + spares, ..self }
    }

    /// The time without faults after the bound of a healing. Only then no leftover request can
    /// exclude others, so that releases can be judged.
    pub const QUIET: Duration = Duration::from_secs(6);

    /// The time from healing to the grant of every name: a killed node waits for `max_lease` and
    /// the drift, old leases expire, peers reconnect within seconds, and clients retry.
    pub fn bound(&self) -> Duration {
        2 * self.max_lease + Duration::from_secs(5)
    }

    /// Whether nodes use TLS with each other: half of the seeds do.
    pub fn has_tls(&self) -> bool {
        Rng::new(self.seed, 0x7715).chance(500)
    }

    /// Draws rounds until `len` is over, at least one.
    pub fn draw(&self, len: Duration) -> Schedule {
        let mut rng = Rng::new(self.seed, 0x5c4e);
        let mut changes = Rng::new(self.seed, 0x3e3b);
        let bound = self.bound();
        let mut rounds = Vec::new();
        let mut total = Duration::ZERO;
        while total < len || rounds.is_empty() {
            let mut round = self.round(&mut rng, rounds.len());
            self.add_changes(&mut changes, &mut round);
            total += round.len + bound + Self::QUIET;
            rounds.push(round);
        }
        Schedule { rounds, bound }
    }

    fn round(&self, rng: &mut Rng, number: usize) -> Round {
        let lease = self.max_lease.as_millis() as u64;
        // Every third round has a single fault, to show its effect alone.
        let count = if number.is_multiple_of(3) { 1 } else { rng.between(2, 5) };
        let mut taken: BTreeSet<u16> = BTreeSet::new();
        let mut entries: Vec<Entry> = Vec::new();
        // A draw may need a node that is taken, so the number of draws is bounded.
        let mut episode = 0;
        for _ in 0..count * 4 {
            if episode >= count {
                break;
            }
            let steps = self.fault(rng);
            let nodes = || steps.iter().flat_map(|(fault, ..)| fault.processes());
            if nodes().any(|node| taken.contains(node)) {
                continue;
            }
            taken.extend(nodes());
            let mut at = rng.millis(0, lease);
            for (fault, len, rest) in steps {
                entries.push(Entry { fault, episode, begin_at: at, end_at: at + len });
                at += len + rest;
            }
            episode += 1;
        }
        entries.sort_by_key(|entry| entry.begin_at);
        let len = entries.iter().map(|entry| entry.end_at).max().unwrap_or_default();
        Round { entries, len }
    }

    /// Draws changes of the members, which overlap with the faults of a round.
    fn add_changes(&self, rng: &mut Rng, round: &mut Round) {
        if self.members == self.nodes {
            return;
        }
        let first = round.episodes();
        for episode in first..first + rng.between(1, 2) {
            let mut nodes: Vec<u16> = (1..=self.nodes).filter(|_| rng.chance(600)).collect();
            if nodes.is_empty() {
                nodes.push(1);
            }
            let at = rng.up_to(round.len);
            let fault = Fault::Members(nodes);
            round.entries.push(Entry { fault, episode, begin_at: at, end_at: at });
        }
        round.entries.sort_by_key(|entry| entry.begin_at);
    }

    /// Draws a fault: its steps, each with its length and the pause after it.
    fn fault(&self, rng: &mut Rng) -> Vec<(Fault, Duration, Duration)> {
        use NodeFault::{Clock, FewFiles, FullDisk, Kill, LittleMemory, Pause, ReadOnly};
        use NodeFault::{Reload, Roll, Stop};
        let lease = self.max_lease.as_millis() as u64;
        let short = rng.millis(100, lease);
        let long = rng.millis(lease, 3 * lease);
        let node = rng.between(1, u64::from(self.nodes)) as u16;
        let everyone: Vec<u16> = (1..=self.nodes).collect();
        let many = if rng.chance(500) { everyone.clone() } else { self.majority(node) };
        let one = |fault| Fault::Nodes(fault, vec![node]);
        let client = |rng: &mut Rng| rng.between(1, u64::from(self.clients)) as u16;
        let (fault, len) = match rng.below(23) {
            10..16 | 21 if !self.has_network => (one(Pause), long),
            0 | 1 => (one(Kill), short),
            2 => (Fault::Nodes(Kill, many), short),
            3 => (one(Stop), short),
            4 => (Fault::Nodes(Stop, many), short),
            5 => {
                let upgrade = self.has_upgrade && rng.chance(500);
                let pause = Duration::from_millis(lease / 4);
                let roll = |id| Fault::Nodes(Roll { upgrade }, vec![id]);
                let steps = everyone.into_iter().map(roll);
                return steps.map(|roll| (roll, Duration::from_millis(50), pause)).collect();
            }
            6 => (one(Pause), long),
            7 => (Fault::Nodes(Pause, many), long),
            8 => (Fault::Client(ClientFault::Pause, client(rng)), long),
            9 => (Fault::Client(ClientFault::Kill, client(rng)), short),
            10 | 11 => (Fault::Network(NetworkFault::Cut(self.shape(rng))), long),
            12 => {
                let flap = Fault::Network(NetworkFault::Flap(self.shape(rng)));
                let (on, off) = (rng.millis(100, lease / 2), rng.millis(50, lease / 2));
                return vec![(flap, on, off); rng.between(3, 6) as usize];
            }
            13 => {
                let (whom, permille) = (self.some_places(rng), rng.between(20, 400) as u32);
                (Fault::Network(NetworkFault::Lose { whom, permille }), long)
            }
            14 | 15 => {
                // A wide spread reorders packets, a narrow one only delays them.
                let (least, spread) = (rng.millis(1, lease / 8), rng.millis(0, lease / 4));
                let (whom, delay) = (self.some_places(rng), Delay { least, spread });
                (Fault::Network(NetworkFault::Delay { whom, delay }), long)
            }
            16 => {
                let most = i64::from(self.drift_ppm);
                let ppm = rng.between(0, 2 * most as u64) as i64 - most;
                (one(Clock { ppm }), long)
            }
            17 if self.has_disks => (one(FullDisk), long),
            18 if self.has_disks => (one(ReadOnly), long),
            17 | 19 => (one(FewFiles), long),
            20 => (one(Reload), short),
            21 => {
                let round_trip = rng.millis(50, 300);
                (Fault::Network(NetworkFault::Distance { round_trip }), long)
            }
            _ => (one(LittleMemory), long),
        };
        vec![(fault, len, Duration::ZERO)]
    }

    fn majority(&self, first: u16) -> Vec<u16> {
        (0..=self.nodes / 2).map(|step| (first - 1 + step) % self.nodes + 1).collect()
    }

    fn some_places(&self, rng: &mut Rng) -> Vec<Place> {
        let all = self.all_places();
        if rng.chance(300) {
            return all;
        }
        let first = rng.pick(&all);
        let second = rng.pick(&all);
        if first == second { vec![first] } else { vec![first, second] }
    }

    pub fn all_places(&self) -> Vec<Place> {
        let nodes = (1..=self.nodes).map(Place::Node);
        nodes.chain((1..=self.groups).map(Place::Clients)).collect()
    }

    fn shape(&self, rng: &mut Rng) -> Shape {
        let node = rng.between(1, u64::from(self.nodes)) as u16;
        let other = 1 + (node - 1 + rng.between(1, u64::from(self.nodes) - 1) as u16) % self.nodes;
        let group = rng.between(1, u64::from(self.groups)) as u16;
        match rng.below(8) {
            0 => Shape::Isolate(node),
            1 => Shape::Halves { nodes: self.nodes, first: node, len: self.nodes.div_ceil(2) },
            2 => Shape::Deaf(node),
            3 => Shape::Mute(node),
            4 => Shape::OneWay(Place::Node(node), Place::Node(other)),
            5 => Shape::Ring(self.nodes),
            6 => Shape::Both(Place::Clients(group), Place::Node(node)),
            _ => Shape::OneWay(Place::Node(node), Place::Clients(group)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(seed: u64, nodes: u16) -> Plan {
        let (has_disks, has_network, has_upgrade) = (true, true, true);
        let plan = Plan::new(seed, nodes, Duration::from_secs(2));
        Plan { clients: 8, has_disks, has_network, has_upgrade, ..plan }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_seed_determines_the_schedule() {
        assert_eq!(plan(7, 3).draw(HOUR), plan(7, 3).draw(HOUR));
        assert_ne!(plan(7, 3).draw(HOUR), plan(8, 3).draw(HOUR));
        assert_ne!(plan(7, 3).draw(HOUR), plan(7, 5).draw(HOUR));
    }

    #[test]
    fn a_longer_schedule_begins_like_a_shorter_one() {
        let (short, long) = (plan(3, 5).draw(HOUR / 60), plan(3, 5).draw(HOUR));
        assert_eq!(short.rounds[..], long.rounds[..short.rounds.len()]);
        assert!(long.rounds.len() > short.rounds.len());
    }

    #[test]
    fn every_kind_of_fault_is_drawn_and_every_shape_of_partition() {
        let rounds = plan(1, 5).with_spares(2).draw(10 * HOUR).rounds;
        let entries = || rounds.iter().flat_map(|round| &round.entries);
        let kinds: BTreeSet<&str> = entries().map(|entry| entry.fault.kind()).collect();
        assert_eq!(kinds.len(), 23, "{kinds:?}");
        let shapes: BTreeSet<String> = entries()
            .filter_map(|entry| match &entry.fault {
                Fault::Network(NetworkFault::Cut(shape)) => {
                    format!("{shape:?}").split(['(', ' ']).next().map(String::from)
                }
                _ => None,
            })
            .collect();
        assert_eq!(shapes.len(), 7, "{shapes:?}");
    }

    #[test]
    fn a_fault_that_comes_in_steps_is_one_fault() {
        let rounds = plan(1, 5).draw(HOUR).rounds;
        let flapping = |round: &&Round| {
            let flaps =
                |entry: &Entry| matches!(entry.fault, Fault::Network(NetworkFault::Flap(_)));
            round.entries.len() > 1 && round.entries.iter().all(flaps)
        };
        let round = rounds.iter().step_by(3).find(flapping).expect("an hour has one");
        assert_eq!(round.episodes(), 1, "{round:?}");
    }

    #[test]
    fn no_process_has_two_faults_that_would_undo_each_other() {
        for round in plan(2, 3).draw(10 * HOUR).rounds {
            let mut busy: Vec<(u16, Duration, Duration)> = Vec::new();
            for entry in &round.entries {
                for &node in entry.fault.processes() {
                    let meets = |(other, begin, end): &(u16, Duration, Duration)| {
                        *other == node && entry.begin_at < *end && *begin < entry.end_at
                    };
                    assert!(!busy.iter().any(meets), "{round:?}");
                    busy.push((node, entry.begin_at, entry.end_at));
                }
            }
            assert!(round.entries.iter().all(|entry| entry.end_at <= round.len));
        }
    }
}
