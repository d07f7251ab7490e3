//! How long a lease stays with a holder that died.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart};
use paxoslease_sim::trace::TrueTime;
use paxoslease_sim::{Algorithm, ClientId, Clock, Rng, World};

use crate::sample::{Sample, in_millis, percentile_lines};
use crate::worlds::{Contestant, Experiment, assert_unbroken, setup, since, started};

const TTLS_MS: [u64; 6] = [500, 1000, 2000, 5000, 10_000, 30_000];
const TTL: Duration = Duration::from_secs(1);
const CONTESTANTS: [Contestant; 2] = [Contestant::Paper, Contestant::Ours];
const RUNS: u64 = 1000;
const RENEWALS: u64 = 3;

/// The holder renews every third of its ttl, and dies at a random time after the last renewal.
#[derive(Clone, Copy)]
struct HolderDies {
    ttl: Duration,
    /// Whether its node, the first of three, dies too.
    with_node: bool,
    /// The number of waiting clients, each at another node.
    waiting: u16,
}

struct Recovery {
    /// From the request of the last renewal to the next grant.
    took: Option<Duration>,
    /// Renewals that failed and were repeated.
    repeated: u64,
}

impl Experiment for HolderDies {
    type Outcome = Recovery;

    fn run<A: Algorithm>(&self, algorithm: A, seed: u64) -> Recovery {
        let ttl = self.ttl;
        let third = ttl.as_nanos() as u64 / 3;
        let mut rng = Rng::new(seed, 100);
        let mut world = started(algorithm, setup(3, seed));
        let holder = world.add_client(Clock::perfect(), 0, None);
        world.acquire(holder, 1, ttl, Duration::ZERO);
        let held = world.run_while(ttl, |world| !world.believes(holder));
        assert!(held, "seed {seed}: no other client wants it");
        let others: Vec<ClientId> =
            (0..self.waiting).map(|_| world.add_client(Clock::perfect(), 0, None)).collect();
        for (other, node) in others.iter().zip(2..) {
            world.acquire(*other, node, ttl, 20 * ttl);
        }
        let mut renewed_at = world.now();
        for turn in 1..=RENEWALS {
            world.run_until(TrueTime(renewed_at.0 + third));
            renewed_at = renew(&mut world, holder, ttl, turn);
        }
        let repeated = world.counts().no_quorums;
        world.run_for(Duration::from_nanos(rng.below(third)));
        world.vanish(holder);
        if self.with_node {
            world.crash(1);
        }
        let taken = |world: &World<A>| others.iter().any(|other| world.believes(*other));
        let recovered = world.run_while(10 * ttl, |world| !taken(world));
        assert_unbroken(&world, seed);
        Recovery { took: recovered.then(|| since(&world, renewed_at)), repeated }
    }
}

/// Renews until a renewal succeeds, and returns when that one was requested.
fn renew<A: Algorithm>(
    world: &mut World<A>,
    holder: ClientId,
    ttl: Duration,
    turn: u64,
) -> TrueTime {
    loop {
        let (asked_at, failed) = (world.now(), world.counts().no_quorums);
        world.renew(holder, 1, ttl);
        world.run_while(ttl, |world| {
            world.counts().renewals < turn && world.counts().no_quorums == failed
        });
        if world.counts().renewals >= turn {
            return asked_at;
        }
        assert!(world.believes(holder), "it holds the lease long enough to try again");
    }
}

struct Figures {
    ttl: Duration,
    sample: Sample,
    repeated: u64,
}

impl Figures {
    fn of(experiment: HolderDies, contestant: Contestant) -> Self {
        let outcomes = experiment.outcomes(contestant, RUNS);
        let repeated = outcomes.iter().map(|outcome| outcome.repeated).sum();
        let sample = Sample::new(outcomes.into_iter().map(|outcome| outcome.took).collect());
        Self { ttl: experiment.ttl, sample, repeated }
    }

    /// The time beyond the ttl.
    fn late(&self, percent: usize) -> Option<Duration> {
        self.sample.percentile(percent).map(|took| took.saturating_sub(self.ttl))
    }

    fn row(&self, what: String) -> Vec<String> {
        let share = self.sample.percentile(99).unwrap_or_default();
        let share = share.as_secs_f64() / self.ttl.as_secs_f64();
        vec![
            what,
            in_millis(self.sample.percentile(50)),
            in_millis(self.late(50)),
            in_millis(self.late(99)),
            format!("{share:.3}"),
        ]
    }
}

const HEAD: [&str; 4] = [
    "median",
    "median, beyond the ttl",
    "99th percentile, beyond the ttl",
    "99th percentile / ttl",
];

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    let ttls = TTLS_MS.map(Duration::from_millis);
    let figures = CONTESTANTS.map(|contestant| {
        let (with_node, waiting) = (true, 1);
        ttls.map(|ttl| Figures::of(HolderDies { ttl, with_node, waiting }, contestant))
    });
    let rows = (0..ttls.len()).flat_map(|place| {
        let each = CONTESTANTS.iter().zip(&figures);
        each.map(move |(contestant, of)| {
            of[place].row(format!("{} ms, {}", of[place].ttl.as_millis(), contestant.name()))
        })
    });
    page.table("recovery", &[&["ttl, algorithm"], &HEAD[..]].concat(), rows);
    page.keep("plots/recovery.svg", plot(&figures));
    let repeated = figures.each_ref().map(|of| of.iter().map(|f| f.repeated).sum::<u64>());
    page.set("recovery_runs", RUNS);
    page.set("renewals", RUNS * RENEWALS * TTLS_MS.len() as u64);
    page.set("paper_repeated", repeated[0]);
    page.set("ours_repeated", repeated[1]);
    deaths(page);
    Ok(())
}

fn deaths(page: &mut Page) {
    let mut rows = Vec::new();
    for (with_node, waiting, what) in [
        (false, 1, "the client dies, one waits"),
        (false, 2, "the client dies, two wait"),
        (true, 1, "client and node die, one waits"),
        (true, 2, "client and node die, two wait"),
    ] {
        for contestant in CONTESTANTS {
            let figures = Figures::of(HolderDies { ttl: TTL, with_node, waiting }, contestant);
            rows.push(figures.row(format!("{what}, {}", contestant.name())));
        }
    }
    page.table("deaths", &[&["what happens, algorithm"], &HEAD[..]].concat(), rows);
    page.set("deaths_ttl_ms", TTL.as_millis());
}

fn plot(figures: &[[Figures; TTLS_MS.len()]; CONTESTANTS.len()]) -> String {
    let ttls = TTLS_MS.map(|ttl| ttl as f64 / 1e3);
    Chart {
        title: "From the end of the dead holder's time to the next holder".to_owned(),
        x: Axis::log("ttl, seconds", ttls),
        y: Axis::log("milliseconds", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]),
        series: percentile_lines(ttls, &CONTESTANTS, figures, Figures::late),
    }
    .svg()
}
