//! What goes wrong, and when it is mended again.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::NEVER;
use crate::algorithm::Algorithm;
use crate::network::Link;
use crate::rng::Rng;
use crate::trace::TrueTime;
use crate::world::World;

/// A profile of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// Nothing but honest delays and drift.
    None,
    /// Messages are lost, repeated and late.
    Lossy,
    /// Ways between nodes are cut, one direction at a time.
    Partitions,
    /// Nodes crash, stop and start again.
    Crashes,
    /// Nodes stand still for a while.
    Pauses,
    /// All of these, often.
    Hostile,
    /// The seed draws which of these.
    Swarm,
}

impl Faults {
    /// Every profile.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Lossy,
        Self::Partitions,
        Self::Crashes,
        Self::Pauses,
        Self::Hostile,
        Self::Swarm,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lossy => "lossy",
            Self::Partitions => "partitions",
            Self::Crashes => "crashes",
            Self::Pauses => "pauses",
            Self::Hostile => "hostile",
            Self::Swarm => "swarm",
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No profile has that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFaults(String);

impl fmt::Display for UnknownFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Faults::ALL.map(Faults::name).join(", ");
        write!(f, "no profile of faults is called {:?}; choose from: {names}", self.0)
    }
}

impl std::error::Error for UnknownFaults {}

impl FromStr for Faults {
    type Err = UnknownFaults;

    fn from_str(text: &str) -> Result<Self, UnknownFaults> {
        let found = Self::ALL.into_iter().find(|faults| faults.name() == text);
        found.ok_or_else(|| UnknownFaults(text.to_owned()))
    }
}

/// Which faults there are in a run, and how often.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    pub(super) lossy: bool,
    pub(super) partitions: bool,
    pub(super) crashes: bool,
    pub(super) pauses: bool,
    /// The mean time between two of them.
    pub(super) every: Duration,
}

impl Troubles {
    pub(super) fn draw(rng: &mut Rng, faults: Faults) -> Self {
        let every = rng.millis(20, 2000);
        let mut with = |profile| match faults {
            Faults::Hostile => true,
            Faults::Swarm => rng.chance(500),
            faults => faults == profile,
        };
        Self {
            lossy: with(Faults::Lossy),
            partitions: with(Faults::Partitions),
            crashes: with(Faults::Crashes),
            pauses: with(Faults::Pauses),
            every: if faults == Faults::Hostile { every / 4 } else { every },
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Crash,
    Cut,
    Pause,
    Burst,
}

/// What ends by itself.
#[derive(Clone, Copy, Debug)]
enum Mending {
    Start(u16),
    /// A node that just came back goes down again, perhaps inside its quarantine.
    Again(u16),
    Mend(u16, u16),
    EndBurst(Link),
}

/// Makes things go wrong.
#[derive(Debug)]
pub(super) struct Nemesis {
    rng: Rng,
    kinds: Vec<Kind>,
    every: Duration,
    max_lease: Duration,
    next_at: TrueTime,
    mendings: BTreeMap<(TrueTime, u64), Mending>,
    begun: u64,
}

impl Nemesis {
    pub(super) fn new(seed: u64, troubles: Troubles, max_lease: Duration) -> Self {
        let all = [
            (troubles.crashes, Kind::Crash),
            (troubles.partitions, Kind::Cut),
            (troubles.pauses, Kind::Pause),
            (troubles.lossy, Kind::Burst),
        ];
        let kinds: Vec<Kind> = all.iter().filter(|(on, _)| *on).map(|(_, kind)| *kind).collect();
        let mut nemesis = Self {
            rng: Rng::new(seed, 3),
            next_at: NEVER,
            every: troubles.every,
            max_lease,
            mendings: BTreeMap::new(),
            begun: 0,
            kinds,
        };
        nemesis.plan_next(TrueTime(0));
        nemesis
    }

    fn plan_next(&mut self, now: TrueTime) {
        if !self.kinds.is_empty() {
            self.next_at = self.within(now, self.every * 2);
        }
    }

    fn within(&mut self, now: TrueTime, span: Duration) -> TrueTime {
        TrueTime(now.0 + self.rng.below(span.as_nanos() as u64 + 1))
    }

    /// The safety phase.
    pub(super) fn run<A: Algorithm>(&mut self, world: &mut World<A>, events_max: u64) {
        while world.counts().events < events_max && world.violations().is_empty() {
            let mending_at = self.mendings.first_key_value().map_or(NEVER, |((at, _), _)| *at);
            let until = self.next_at.min(mending_at);
            if world.step(until) {
                continue;
            }
            if mending_at <= self.next_at {
                if let Some(((at, _), mending)) = self.mendings.pop_first() {
                    self.mend(world, at, mending);
                }
            } else {
                self.harm(world);
                self.plan_next(world.now());
            }
        }
    }

    fn later(&mut self, now: TrueTime, span: Duration, mending: Mending) {
        let at = self.within(now, span);
        self.begun += 1;
        self.mendings.insert((at, self.begun), mending);
    }

    fn a_node<A: Algorithm>(&mut self, world: &World<A>) -> u16 {
        self.rng.between(1, u64::from(*world.node_ids().end())) as u16
    }

    fn harm<A: Algorithm>(&mut self, world: &mut World<A>) {
        let (now, node) = (world.now(), self.a_node(world));
        match self.rng.pick(&self.kinds.clone()) {
            Kind::Crash => self.end(world, node),
            Kind::Cut => {
                // From a node, to a node, or one way only.
                let (whole, inwards) = (self.rng.chance(500), self.rng.chance(500));
                let other = self.a_node(world);
                for peer in world.node_ids().filter(|peer| *peer != node) {
                    if whole || peer == other {
                        let (from, to) = if inwards { (peer, node) } else { (node, peer) };
                        world.network().cut(from, to);
                        self.later(now, self.max_lease * 2, Mending::Mend(from, to));
                    }
                }
            }
            Kind::Pause => {
                let max = self.rng.pick(&[self.max_lease / 20, self.max_lease * 2]);
                let span = Duration::from_nanos(self.rng.below(max.as_nanos() as u64 + 1));
                world.pause(node, span);
            }
            Kind::Burst => {
                let link = world.network().link;
                if link.loss_permille < 500 {
                    world.network().link = Link { loss_permille: 800, ..link };
                    self.later(now, self.max_lease, Mending::EndBurst(link));
                }
            }
        }
    }

    fn end<A: Algorithm>(&mut self, world: &mut World<A>, node: u16) {
        if !world.is_running(node) {
            return;
        }
        if self.rng.chance(600) {
            world.crash(node);
        } else {
            world.stop(node);
        }
        let down_max = self.rng.pick(&[Duration::ZERO, self.max_lease / 10, self.max_lease * 2]);
        self.later(world.now(), down_max, Mending::Start(node));
    }

    fn mend<A: Algorithm>(&mut self, world: &mut World<A>, at: TrueTime, mending: Mending) {
        match mending {
            Mending::Start(node) => {
                world.start(node);
                if self.rng.chance(300) {
                    self.later(at, self.max_lease, Mending::Again(node));
                }
            }
            Mending::Again(node) => self.end(world, node),
            Mending::Mend(from, to) => world.network().mend(from, to),
            Mending::EndBurst(link) => world.network().link = link,
        }
    }

    /// Everything heals.
    pub(super) fn heal<A: Algorithm>(&mut self, world: &mut World<A>) {
        self.kinds.clear();
        self.mendings.clear();
        world.network().mend_all();
        for node in world.node_ids() {
            world.start(node);
        }
    }
}
