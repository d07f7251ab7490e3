//! The faults of a run, and when each ends.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::NEVER;
use crate::algorithm::Algorithm;
use crate::named::named;
use crate::network::Link;
use crate::rng::Rng;
use crate::trace::TrueTime;
use crate::world::World;

named! {
    /// A set of faults.
    Faults;
    None, "none", "Only ordinary delays and drift.";
    Lossy, "lossy", "Messages are lost, duplicated and late.";
    Partitions, "partitions", "Messages between nodes are blocked, one direction at a time.";
    Crashes, "crashes", "Nodes crash, stop and start again.";
    Pauses, "pauses", "Nodes pause.";
    Hostile, "hostile", "All of these, often.";
    Swarm, "swarm", "The seed chooses among these.";
}

/// No set of faults has this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFaults(String);

impl fmt::Display for UnknownFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Faults::ALL.map(Faults::name).join(", ");
        write!(f, "no set of faults is called {:?}; choose from: {names}", self.0)
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

/// The kinds of faults of a run, and how often they occur.
#[derive(Clone, Debug)]
pub(super) struct FaultPlan {
    kinds: Vec<Kind>,
    /// The mean time between two faults.
    every: Duration,
}

impl FaultPlan {
    pub(super) fn draw(rng: &mut Rng, faults: Faults) -> Self {
        let every = rng.millis(20, 2000);
        let mut is_on = |profile| match faults {
            Faults::Hostile => true,
            Faults::Swarm => rng.chance(500),
            faults => faults == profile,
        };
        let mut kinds = Vec::new();
        for (profile, kind) in [
            (Faults::Lossy, Kind::Burst),
            (Faults::Partitions, Kind::Cut),
            (Faults::Crashes, Kind::Crash),
            (Faults::Pauses, Kind::Pause),
        ] {
            kinds.extend(is_on(profile).then_some(kind));
        }
        kinds.sort_unstable();
        Self { kinds, every: if faults == Faults::Hostile { every / 4 } else { every } }
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.kinds.contains(&Kind::Burst)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Crash,
    Cut,
    Pause,
    Burst,
}

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
enum FaultEnd {
    Start(u16),
    /// A node that just started goes down again, perhaps in its quarantine.
    Again(u16),
    Mend(u16, u16),
    EndBurst(Link),
}

/// Injects faults into a world.
#[derive(Debug)]
pub(super) struct FaultInjector {
    rng: Rng,
    plan: FaultPlan,
    max_lease: Duration,
    next_at: TrueTime,
    ends: BTreeMap<(TrueTime, u64), FaultEnd>,
    begun: u64,
}

impl FaultInjector {
    pub(super) fn new(seed: u64, plan: FaultPlan, max_lease: Duration) -> Self {
        let (rng, ends) = (Rng::new(seed, 3), BTreeMap::new());
        let mut injector = Self { rng, plan, max_lease, next_at: NEVER, ends, begun: 0 };
        injector.plan_next(TrueTime(0));
        injector
    }

    fn plan_next(&mut self, now: TrueTime) {
        if !self.plan.kinds.is_empty() {
            self.next_at = self.within(now, self.plan.every * 2);
        }
    }

    fn within(&mut self, now: TrueTime, span: Duration) -> TrueTime {
        TrueTime(now.0 + self.rng.up_to(span).as_nanos() as u64)
    }

    /// The safety phase.
    pub(super) fn run<A: Algorithm>(&mut self, world: &mut World<A>, events_max: u64) {
        while world.counts().events < events_max && world.violations().is_empty() {
            let end_at = self.ends.first_key_value().map_or(NEVER, |((at, _), _)| *at);
            let until = self.next_at.min(end_at);
            if world.step(until) {
                continue;
            }
            if end_at <= self.next_at {
                if let Some(((at, _), end)) = self.ends.pop_first() {
                    self.mend(world, at, end);
                }
            } else {
                self.harm(world);
                self.plan_next(world.now());
            }
        }
    }

    fn later(&mut self, now: TrueTime, span: Duration, end: FaultEnd) {
        let at = self.within(now, span);
        self.begun += 1;
        self.ends.insert((at, self.begun), end);
    }

    fn a_node<A: Algorithm>(&mut self, world: &World<A>) -> u16 {
        self.rng.between(1, u64::from(*world.node_ids().end())) as u16
    }

    fn harm<A: Algorithm>(&mut self, world: &mut World<A>) {
        let (now, node) = (world.now(), self.a_node(world));
        match self.rng.pick(&self.plan.kinds) {
            Kind::Crash => self.end(world, node),
            Kind::Cut => {
                // All messages of a node, or those of one peer, in one direction.
                let (whole, inwards) = (self.rng.chance(500), self.rng.chance(500));
                let other = self.a_node(world);
                for peer in world.node_ids().filter(|peer| *peer != node) {
                    if whole || peer == other {
                        let (from, to) = if inwards { (peer, node) } else { (node, peer) };
                        world.network().cut(from, to);
                        self.later(now, self.max_lease * 2, FaultEnd::Mend(from, to));
                    }
                }
            }
            Kind::Pause => {
                let max = self.rng.pick(&[self.max_lease / 20, self.max_lease * 2]);
                world.pause(node, self.rng.up_to(max));
            }
            Kind::Burst => {
                let link = world.network().link;
                if link.loss_permille < 500 {
                    world.network().link = Link { loss_permille: 800, ..link };
                    self.later(now, self.max_lease, FaultEnd::EndBurst(link));
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
        self.later(world.now(), down_max, FaultEnd::Start(node));
    }

    fn mend<A: Algorithm>(&mut self, world: &mut World<A>, at: TrueTime, end: FaultEnd) {
        match end {
            FaultEnd::Start(node) => {
                world.start(node);
                if self.rng.chance(300) {
                    self.later(at, self.max_lease, FaultEnd::Again(node));
                }
            }
            FaultEnd::Again(node) => self.end(world, node),
            FaultEnd::Mend(from, to) => world.network().mend(from, to),
            FaultEnd::EndBurst(link) => world.network().link = link,
        }
    }
}

/// Ends all faults.
pub(super) fn heal<A: Algorithm>(world: &mut World<A>) {
    world.network().mend_all();
    for node in world.node_ids() {
        world.start(node);
    }
}
