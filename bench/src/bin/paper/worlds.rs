//! The worlds everything is measured in, and how many of them are run at a time.

use std::num::NonZero;
use std::time::Duration;

use paxoslease_bench::plot::{Look, Marker};
use paxoslease_core::{Cell, Drift, NodeId, Ttl};
use paxoslease_sim::baseline::{Naive, Paper};
use paxoslease_sim::trace::TrueTime;
use paxoslease_sim::{Algorithm, Link, PaxosLease, Setup, World};

/// In milliseconds.
const MAX_LEASE: u32 = 60_000;

/// The default network: a busy local one.
pub(crate) const LINK: Link = Link {
    delay_min: Duration::from_micros(500),
    delay_max: Duration::from_micros(1500),
    ..Link::steady(Duration::ZERO)
};
pub(crate) const LINK_IN_WORDS: &str = "0.5 to 1.5 ms each way, drawn for every message";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contestant {
    Naive,
    Paper,
    /// PaxosLease without direct rounds (P1).
    Prepared,
    Ours,
}

impl Contestant {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Paper => "paper",
            Self::Prepared => "PaxosLease, prepared rounds only",
            Self::Ours => "PaxosLease",
        }
    }

    /// Each has its marker, so that plots need no colour.
    pub(crate) const fn look(self) -> Look {
        let (colour, marker) = match self {
            Self::Naive => ((0xb4, 0x53, 0x09), Marker::Triangle),
            Self::Paper => ((0x1d, 0x4e, 0x89), Marker::Square),
            Self::Prepared => ((0x7b, 0x2d, 0x8b), Marker::Diamond),
            Self::Ours => ((0x0b, 0x7a, 0x4b), Marker::Circle),
        };
        Look { colour, marker, dashed: false }
    }
}

/// An experiment with any algorithm, run once per seed.
pub(crate) trait Experiment: Sync {
    type Outcome: Send;

    fn run<A: Algorithm>(&self, algorithm: A, seed: u64) -> Self::Outcome;

    /// The outcomes with the seeds from 1 to `runs`, in that order.
    fn outcomes(&self, contestant: Contestant, runs: u64) -> Vec<Self::Outcome> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let share = (runs as usize).div_ceil(threads) as u64;
        let one = |seed| match contestant {
            Contestant::Naive => self.run(Naive, seed),
            Contestant::Paper => self.run(Paper, seed),
            Contestant::Prepared => {
                self.run(PaxosLease { prepared_only: true, ..PaxosLease::default() }, seed)
            }
            Contestant::Ours => self.run(PaxosLease::default(), seed),
        };
        let some = |first: u64| (first..=runs.min(first + share - 1)).map(one).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let firsts = (1..=runs).step_by(share as usize);
            let parts: Vec<_> = firsts.map(|first| scope.spawn(move || some(first))).collect();
            let joined = parts.into_iter().map(|part| part.join().expect("no run panics"));
            joined.flatten().collect()
        })
    }
}

/// A world without faults and with instant disks: only network and protocol take time.
pub(crate) fn setup(members: u16, seed: u64) -> Setup {
    let nodes: Vec<NodeId> = (1..=members).filter_map(NodeId::new).collect();
    let max_lease = Ttl::from_millis(MAX_LEASE).expect("not zero");
    let cell = Cell::new(&nodes, max_lease, Drift::NONE).expect("a cell in bounds");
    Setup {
        link: LINK,
        client_link: Link::steady(Duration::ZERO),
        disk: Some((Duration::ZERO, Duration::ZERO)),
        seed,
        ..Setup::quiet(cell)
    }
}

/// A world whose nodes have started and written their first records.
pub(crate) fn started<A: Algorithm>(algorithm: A, setup: Setup) -> World<A> {
    let mut world = World::new(algorithm, setup);
    world.run_for(Duration::from_millis(10));
    world
}

pub(crate) fn since<A: Algorithm>(world: &World<A>, then: TrueTime) -> Duration {
    Duration::from_nanos(world.now().0 - then.0)
}

pub(crate) fn assert_unbroken<A: Algorithm>(world: &World<A>, seed: u64) {
    assert!(world.violations().is_empty(), "seed {seed}: {:?}", world.violations());
}
