//! Swarm runs: one seed draws a whole world and everything that goes wrong in it.
//!
//! First a safety phase, in which faults come and go and the checkers look at every event. Then
//! everything heals, and progress is demanded: every client must be granted its lease within a
//! bound, and once all have stopped asking, no node may keep anything for them.

mod faults;
mod plan;

use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::checker::{Check, Violation};
use crate::client::Habits;
use crate::network::Link;
use crate::paxoslease::PaxosLease;
use crate::trace::{Entry, Keep, TrueTime};
use crate::world::{Counts, World};

use faults::Nemesis;
pub use faults::{Faults, UnknownFaults};
use plan::Plan;

/// What a run is to be like; what is `None` the seed draws.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// What goes wrong.
    pub faults: Faults,
    /// How many acceptors, 1 to 9.
    pub nodes: Option<u16>,
    /// How many nodes that only propose.
    pub proposers: Option<u16>,
    /// How many clients.
    pub clients: Option<u32>,
    /// How many names.
    pub names: Option<usize>,
    /// How many events the safety phase has at most.
    pub events_max: u64,
    /// How much of the trace is kept.
    pub keep: Keep,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            faults: Faults::Swarm,
            nodes: None,
            proposers: None,
            clients: None,
            names: None,
            events_max: 20_000,
            keep: Keep::Nothing,
        }
    }
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed, to run it again.
    pub seed: u64,
    /// Acceptors.
    pub nodes: u16,
    /// Nodes that only proposed.
    pub proposers: u16,
    /// Clients.
    pub clients: u32,
    /// Names.
    pub names: usize,
    /// What happened how often.
    pub counts: Counts,
    /// How long it took in true time.
    pub lasted: Duration,
    /// What broke.
    pub violations: Vec<Violation>,
    /// Same seed and options, same hash, on every machine.
    pub trace_hash: u64,
    /// What was kept of the trace.
    pub trace: Vec<Entry>,
}

/// Runs PaxosLease in the world a seed draws.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    run_with(PaxosLease::default(), seed, options)
}

/// Runs any algorithm in the world a seed draws.
#[must_use]
pub fn run_with<A: Algorithm>(algorithm: A, seed: u64, options: &Options) -> Report {
    let Plan { setup, clients, troubles } = Plan::draw(seed, options);
    let (cell, names) = (setup.cell, setup.names.len());
    let (nodes, proposers) = (cell.members().len() as u16, setup.proposers);
    let client_count = clients.len() as u32;
    let mut world = World::new(algorithm, setup);
    for (clock, name, habits) in clients {
        world.add_client(clock, name, Some(habits));
    }
    let mut nemesis = Nemesis::new(seed, troubles, cell.max_lease().as_duration());
    nemesis.run(&mut world, options.events_max);
    if world.violations().is_empty() {
        nemesis.heal(&mut world);
        demand_progress(&mut world, cell.max_lease().as_duration());
    }
    let lasted = Duration::from_nanos(world.now().0);
    Report {
        seed,
        nodes,
        proposers,
        clients: client_count,
        names,
        counts: world.counts(),
        lasted,
        violations: world.violations().to_vec(),
        trace_hash: world.tracer().value(),
        trace: world.into_trace(),
    }
}

/// How long a calm client waits for its turn before it asks again.
const CALM_WAIT: Duration = Duration::from_secs(3);

/// Liveness: nothing is in the way any more. Somebody must hold every name within a bound, and
/// every client's loop must get answers. Who of several wins is chance, and so not demanded.
fn demand_progress<A: Algorithm>(world: &mut World<A>, max_lease: Duration) {
    let link =
        Link { delay_max: Duration::from_millis(1), ..Link::steady(Duration::from_micros(100)) };
    world.network().link = link;
    world.set_client_link(link);
    let habits = Habits { wait: CALM_WAIT, ..Habits::calm(max_lease) };
    world.calm_clients(|_| Some(habits));
    // Pauses, quarantines, leases of those who died, and requests from before still out.
    let bound = max_lease * 6 + Duration::from_secs(3);
    demand(world, bound, World::without_grant, "no client was granted it");
    let bound = CALM_WAIT * 2 + habits.patience;
    demand(world, bound, World::without_answer, "a client that wants it got no answer");
    world.calm_clients(|_| None);
    world.run_for(CALM_WAIT + max_lease * 2 + Duration::from_secs(3));
    let left = world.in_flight();
    if left > 0 {
        world.report(Check::NothingLeaks, || format!("{left} rounds and requests are kept"));
    }
}

/// Runs until no name is `lacking` something any more.
fn demand<A: Algorithm>(
    world: &mut World<A>,
    bound: Duration,
    lacking: impl Fn(&World<A>) -> Option<usize>,
    what: &str,
) {
    let reached =
        world.run_while(bound, |world| world.violations().is_empty() && lacking(world).is_some());
    if let Some(name) = lacking(world).filter(|_| !reached) {
        world.report(Check::Progress, || format!("name {name}: {what} within {bound:?}"));
    }
}

/// The end of time, as far as a run is concerned.
const NEVER: TrueTime = TrueTime(u64::MAX);
