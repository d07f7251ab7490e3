//! Acquiring while the network loses messages.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart};
use paxoslease_sim::{Algorithm, Clock, Link, Setup};

use crate::sample::{Sample, Table, percentile_lines, table};
use crate::worlds::{Contestant, Experiment, LINK, assert_unbroken, setup, since, started};

const LOSS_PERMILLE: [u32; 8] = [0, 10, 20, 50, 100, 150, 200, 300];
const CONTESTANTS: [Contestant; 3] = [Contestant::Naive, Contestant::Paper, Contestant::Ours];
/// Longer than the request timeout, so that all algorithms try equally long.
const TTL: Duration = Duration::from_secs(5);
const RUNS: u64 = 5000;

/// One client acquires at one of three nodes, and gives up when its node does.
struct Lossy {
    loss_permille: u32,
}

impl Experiment for Lossy {
    type Outcome = Option<Duration>;

    fn run<A: Algorithm>(&self, algorithm: A, seed: u64) -> Option<Duration> {
        let link = Link { loss_permille: self.loss_permille, ..LINK };
        let mut world = started(algorithm, Setup { link, ..setup(3, seed) });
        let asked_at = world.now();
        let client = world.add_client(Clock::perfect(), 0, None);
        world.acquire(client, 1, TTL, Duration::ZERO);
        world.run_while(Duration::from_secs(10), |world| {
            let counts = world.counts();
            counts.acquires + counts.no_quorums + counts.denials == 0
        });
        assert_unbroken(&world, seed);
        (world.counts().acquires > 0).then(|| since(&world, asked_at))
    }
}

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    let samples = CONTESTANTS.map(|contestant| {
        LOSS_PERMILLE
            .map(|loss_permille| Sample::new(Lossy { loss_permille }.outcomes(contestant, RUNS)))
    });
    let of = Table {
        name: "loss",
        varied: "loss",
        labels: LOSS_PERMILLE.map(|loss| format!("{} %", loss / 10)),
        contestants: &CONTESTANTS,
        samples: &samples,
        share_name: "granted",
        share: |sample| sample.share(|took| took.is_some()),
    };
    table(page, of);
    let losses = LOSS_PERMILLE.map(|permille| f64::from(permille) / 10.0);
    let chart = Chart {
        title: "Time to acquire while messages are lost".to_owned(),
        x: Axis::even("per cent of messages lost", [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]),
        y: Axis::log("milliseconds", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]),
        series: percentile_lines(losses, &CONTESTANTS, &samples, Sample::percentile),
    };
    page.keep("plots/loss.svg", chart.svg());
    page.set("loss_ttl_ms", TTL.as_millis());
    page.set("loss_runs", RUNS);
    Ok(())
}
