//! Swarm runs: one seed generates a whole world and all faults in it.
//!
//! First comes a safety phase, in which faults come and go and the checker sees every event. Then
//! all faults end and the run demands progress: every name must be granted within a bound, every
//! client must get an answer, and once all clients have stopped, no node may keep state for them.

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

use faults::FaultInjector;
pub use faults::{Faults, UnknownFaults};
use plan::Plan;

/// The options of a run. The seed decides what is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The faults that occur.
    pub faults: Faults,
    /// The number of acceptors, 1 to 9.
    pub nodes: Option<u16>,
    /// The number of proposer-only nodes.
    pub proposers: Option<u16>,
    /// The number of clients.
    pub clients: Option<u32>,
    /// The number of names.
    pub names: Option<usize>,
    /// The most events in the safety phase.
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

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed, to repeat the run.
    pub seed: u64,
    /// The number of acceptors.
    pub nodes: u16,
    /// The number of proposer-only nodes.
    pub proposers: u16,
    /// The number of clients.
    pub clients: u32,
    /// The number of names.
    pub names: usize,
    /// How often things happened.
    pub counts: Counts,
    /// The duration in true time.
    pub lasted: Duration,
    /// The checks that failed.
    pub violations: Vec<Violation>,
    /// The same seed and options give the same hash on every machine.
    pub trace_hash: u64,
    /// The part of the trace that was kept.
    pub trace: Vec<Entry>,
}

/// Runs PaxosLease in the world of a seed.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    run_with(PaxosLease::default(), seed, options)
}

/// Runs any algorithm in the world of a seed.
#[must_use]
pub fn run_with<A: Algorithm>(algorithm: A, seed: u64, options: &Options) -> Report {
    let Plan { setup, clients, faults: plan } = Plan::draw(seed, options);
    let max_lease = setup.cell.max_lease().as_duration();
    let mut world = World::new(algorithm, setup);
    for (clock, name, habits) in clients {
        world.add_client(clock, name, Some(habits));
    }
    FaultInjector::new(seed, plan, max_lease).run(&mut world, options.events_max);
    if world.violations().is_empty() {
        faults::heal(&mut world);
        demand_progress(&mut world, max_lease);
    }
    world.into_report()
}

/// How long a calm client waits in the queue before it asks again.
const CALM_WAIT: Duration = Duration::from_secs(3);

/// Liveness, without faults: within a bound some client must hold each name, and every client must
/// get answers. The winner among several clients is random.
fn demand_progress<A: Algorithm>(world: &mut World<A>, max_lease: Duration) {
    let link =
        Link { delay_max: Duration::from_millis(1), ..Link::steady(Duration::from_micros(100)) };
    world.network().link = link;
    world.set_client_link(link);
    let habits = Habits { wait: CALM_WAIT, ..Habits::calm(max_lease) };
    world.calm_clients(Some(habits));
    // Time for pauses, quarantines, leases of dead clients, and earlier requests.
    let bound = max_lease * 6 + Duration::from_secs(3);
    demand(world, bound, World::without_grant, "no client was granted it");
    let bound = CALM_WAIT * 2 + habits.patience;
    demand(world, bound, World::without_answer, "a client that wants it got no answer");
    world.calm_clients(None);
    world.run_for(CALM_WAIT + max_lease * 2 + Duration::from_secs(3));
    let left = world.in_flight();
    if left > 0 {
        world.report(Check::NothingLeaks, || format!("{left} rounds and requests are kept"));
    }
}

/// Runs until no name is `lacking` any more.
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

/// Later than any event of a run.
const NEVER: TrueTime = TrueTime(u64::MAX);
