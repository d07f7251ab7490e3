//! Many proposers at once: how long until the first grant.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Series};
use paxoslease_sim::{Algorithm, Clock, Setup, World};

use crate::sample::{Sample, Samples, Table, percentile_lines, table};
use crate::worlds::{Contestant, Experiment, assert_unbroken, setup, since, started};

const CONTENDERS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
const CONTESTANTS: [Contestant; 3] = [Contestant::Naive, Contestant::Paper, Contestant::Ours];
const ACCEPTORS: u16 = 3;
const TTL: Duration = Duration::from_secs(1);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(20);
const RUNS: u64 = 2000;

/// The contenders acquire one lease at the same instant, each at another node.
pub(crate) struct AtOnce {
    pub(crate) contenders: u16,
}

impl AtOnce {
    /// The world after the first grant, and how long that took.
    pub(crate) fn play<A: Algorithm>(
        &self,
        algorithm: A,
        setup: Setup,
    ) -> (World<A>, Option<Duration>) {
        let seed = setup.seed;
        let setup = Setup { proposers: self.contenders, ..setup };
        let members = setup.cell.members().len() as u16;
        let mut world = started(algorithm, setup);
        let asked_at = world.now();
        for place in 1..=self.contenders {
            let client = world.add_client(Clock::perfect(), 0, None);
            world.acquire(client, members + place, TTL, GIVEN_UP_AFTER);
        }
        let held = world.run_while(GIVEN_UP_AFTER, |world| world.counts().acquires == 0);
        // The client hears of it at the same instant.
        world.run_for(Duration::ZERO);
        assert_unbroken(&world, seed);
        let took = held.then(|| since(&world, asked_at));
        (world, took)
    }
}

impl Experiment for AtOnce {
    type Outcome = Option<Duration>;

    fn run<A: Algorithm>(&self, algorithm: A, seed: u64) -> Option<Duration> {
        self.play(algorithm, setup(ACCEPTORS, seed)).1
    }
}

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    let samples = CONTESTANTS.map(|contestant| {
        CONTENDERS.map(|contenders| Sample::new(AtOnce { contenders }.outcomes(contestant, RUNS)))
    });
    let of = Table {
        name: "contention",
        varied: "contenders",
        labels: CONTENDERS.map(|contenders| contenders.to_string()),
        contestants: &CONTESTANTS,
        samples: &samples,
        share_name: "blocked",
        share: blocked,
    };
    table(page, of);
    page.keep("plots/contention-time.svg", time_plot(&samples));
    page.keep("plots/contention-blocked.svg", blocked_plot(&samples));
    let runs_blocked = |of: &[Sample]| {
        of.iter().map(|sample| (blocked(sample) * RUNS as f64).round() as usize).sum::<usize>()
    };
    page.set("contenders_max", CONTENDERS[CONTENDERS.len() - 1]);
    page.set("acceptors", ACCEPTORS);
    page.set("contention_ttl_ms", TTL.as_millis());
    page.set("contention_runs", RUNS);
    page.set("contention_all", RUNS as usize * CONTENDERS.len());
    page.set("paper_blocked", runs_blocked(&samples[1]));
    page.set("ours_blocked", runs_blocked(&samples[2]));
    Ok(())
}

fn blocked(sample: &Sample) -> f64 {
    sample.share(|took| took.is_none_or(|took| took >= TTL))
}

fn contenders_axis() -> Axis {
    Axis::log("contenders at once", CONTENDERS.map(f64::from))
}

fn time_plot(samples: &Samples<7, 3>) -> String {
    Chart {
        title: "Time until a client holds the lease".to_owned(),
        x: contenders_axis(),
        y: Axis::log("milliseconds", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]),
        series: percentile_lines(
            CONTENDERS.map(f64::from),
            &CONTESTANTS,
            samples,
            Sample::percentile,
        ),
    }
    .svg()
}

fn blocked_plot(samples: &Samples<7, 3>) -> String {
    let series = CONTESTANTS.iter().zip(samples).map(|(contestant, of)| {
        let points = CONTENDERS.iter().zip(of);
        let points = points.map(|(n, sample)| (f64::from(*n), 100.0 * blocked(sample)));
        let name = contestant.name().to_owned();
        Series { name, points: points.collect(), look: contestant.look() }
    });
    Chart {
        title: "Nobody held the lease within a ttl".to_owned(),
        x: contenders_axis(),
        y: Axis::even("per cent of attempts", [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
        series: series.collect(),
    }
    .svg()
}
