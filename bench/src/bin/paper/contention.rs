//! Many proposers at once: who gets the lease, and how long until anybody does.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Series};
use paxoslease_sim::{Algorithm, Clock, Setup, World};

use crate::sample::{Sample, in_millis, in_percent, millis};
use crate::worlds::{
    Contestant, Experiment, LINK_IN_WORDS, assert_unbroken, setup, since, started,
};

const CONTENDERS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
const CONTESTANTS: [Contestant; 3] = [Contestant::Naive, Contestant::Paper, Contestant::Ours];
const ACCEPTORS: u16 = 3;
const TTL: Duration = Duration::from_secs(1);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(20);
const RUNS: u64 = 2000;

/// So many contenders ask for one lease at the same instant, each at a node of its own.
pub(crate) struct AtOnce {
    pub(crate) contenders: u16,
}

impl AtOnce {
    /// The world once somebody holds the lease, and how long that took.
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
    page.heading("1. Many proposers: the naive vote blocks, PaxosLease does not");
    page.say(&format!(
        "The paper says that with many proposers the naive vote will \"frequently block\". Here 1 to \
         {} contenders, each at a node that only proposes, ask {ACCEPTORS} acceptors for the same \
         lease at the same instant, for a ttl of {} ms. Messages take {LINK_IN_WORDS}. The time is that \
         until *somebody* holds the lease, over {RUNS} seeds; *blocked* is the share of seeds in \
         which nobody held it within a ttl.",
        CONTENDERS[CONTENDERS.len() - 1],
        TTL.as_millis(),
    ));
    let samples = CONTESTANTS.map(|contestant| {
        CONTENDERS.map(|contenders| Sample::new(AtOnce { contenders }.outcomes(contestant, RUNS)))
    });
    table(page, &samples);
    page.picture(
        "plots/contention-time.svg",
        "Time until somebody holds the lease, by number of contenders",
        time_plot(&samples)?,
    );
    page.picture(
        "plots/contention-blocked.svg",
        "Share of attempts in which nobody held the lease within a ttl",
        blocked_plot(&samples)?,
    );
    page.say(
        "With three acceptors two contenders cannot block each other, since one of them always gets \
         two votes; of three and more, each can get one. Then the naive vote waits until the votes \
         expire, and what helps afterwards is only the jitter we gave it before it tries again.",
    );
    let paper_blocked: usize =
        samples[1].iter().map(|sample| (blocked(sample) * RUNS as f64).round() as usize).sum();
    let ours_blocked: usize =
        samples[2].iter().map(|sample| (blocked(sample) * RUNS as f64).round() as usize).sum();
    page.say(&format!(
        "The paper's algorithm hardly ever blocks, but it can: {paper_blocked} of the {all} runs did. \
         Its section on liveness says that \"static deadlocks [...] are not possible because proposers \
         can overwrite acceptor states\", yet step 3 lets a proposer propose only if a majority \
         answered with *empty* proposals. Once two of three acceptors have each accepted from a \
         different proposer that then lost its race, no majority is empty before one of them \
         expires, and nothing in the algorithm takes such a proposal back; its footnote 1 has the idea. \
         P4 does: a round that is given up is released. Ours blocked in {ours_blocked} of {all} runs.",
        all = RUNS as usize * CONTENDERS.len(),
    ));
    page.say(
        "Between the paper's times and ours there is a choice more than a difference of algorithm. \
         Direct rounds save a round trip where few contend and waste one where many do. How soon a \
         loser tries again the paper leaves open (\"a small but random time\"); our reading of it takes \
         up to 50 ms, doubled at most thrice, which gives the first winner peace, while PaxosLease \
         begins with about a round trip of a local network.",
    );
    Ok(())
}

type Samples = [[Sample; CONTENDERS.len()]; CONTESTANTS.len()];

fn table(page: &mut Page, samples: &Samples) {
    let mut head = vec!["contenders".to_owned()];
    for what in ["median", "99th percentile", "blocked"] {
        head.extend(CONTESTANTS.map(|contestant| format!("{what}, {}", contestant.name())));
    }
    let rows: Vec<Vec<String>> = CONTENDERS
        .iter()
        .enumerate()
        .map(|(place, contenders)| {
            let mut row = vec![contenders.to_string()];
            for percent in [50, 99] {
                row.extend(samples.each_ref().map(|of| in_millis(of[place].percentile(percent))));
            }
            row.extend(samples.each_ref().map(|of| in_percent(blocked(&of[place]))));
            row
        })
        .collect();
    page.table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
}

fn blocked(sample: &Sample) -> f64 {
    sample.share(|took| took.is_none_or(|took| took >= TTL))
}

fn contenders_axis() -> Axis {
    Axis::log("contenders at once", CONTENDERS.map(f64::from))
}

fn time_plot(samples: &Samples) -> anyhow::Result<String> {
    let mut series = Vec::new();
    for (contestant, of) in CONTESTANTS.iter().zip(samples) {
        for (percent, what) in [(50, "median"), (99, "99th percentile")] {
            let points = CONTENDERS.iter().zip(of).filter_map(|(contenders, sample)| {
                Some((f64::from(*contenders), millis(sample.percentile(percent)?)))
            });
            series.push(Series {
                name: format!("{}, {what}", contestant.name()),
                points: points.collect(),
                look: contestant.look().dashed_if(percent == 99),
            });
        }
    }
    Chart {
        title: "Time until somebody holds the lease".to_owned(),
        x: contenders_axis(),
        y: Axis::log("milliseconds", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]),
        series,
    }
    .svg()
}

fn blocked_plot(samples: &Samples) -> anyhow::Result<String> {
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
