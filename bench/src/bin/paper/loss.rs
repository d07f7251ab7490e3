//! Acquiring while the network loses messages.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Series};
use paxoslease_sim::{Algorithm, Clock, Link, Setup};

use crate::sample::{Sample, in_millis, in_percent, millis};
use crate::worlds::{
    Contestant, Experiment, LINK, LINK_IN_WORDS, assert_unbroken, setup, since, started,
};

const LOSS_PERMILLE: [u32; 8] = [0, 10, 20, 50, 100, 150, 200, 300];
const CONTESTANTS: [Contestant; 3] = [Contestant::Naive, Contestant::Paper, Contestant::Ours];
/// Longer than a node tries, so that all of them try equally long.
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
    page.heading("4. Lost messages");
    let tuning = setup(3, 1).tuning;
    page.say(&format!(
        "One client asks one of three nodes for a lease that nobody else wants, for {} ms, while \
         the network loses a share of all messages. Messages take {LINK_IN_WORDS}; a round without a \
         majority is given up after {} ms at the latest, and the node after at most {} ms; {RUNS} seeds. The \
         latency is over all attempts, and *never* stands where that percentile was not granted.",
        TTL.as_millis(),
        tuning.attempt_timeout.as_millis(),
        tuning.request_timeout.as_millis(),
    ));
    let samples = CONTESTANTS.map(|contestant| {
        LOSS_PERMILLE
            .map(|loss_permille| Sample::new(Lossy { loss_permille }.outcomes(contestant, RUNS)))
    });
    let mut head = vec!["loss".to_owned()];
    for what in ["median", "99th percentile", "granted"] {
        head.extend(CONTESTANTS.map(|contestant| format!("{what}, {}", contestant.name())));
    }
    let granted = |sample: &Sample| sample.share(|took| took.is_some());
    let rows: Vec<Vec<String>> = LOSS_PERMILLE
        .iter()
        .enumerate()
        .map(|(place, loss)| {
            let mut row = vec![format!("{} %", loss / 10)];
            for percent in [50, 99] {
                row.extend(samples.each_ref().map(|of| in_millis(of[place].percentile(percent))));
            }
            row.extend(samples.each_ref().map(|of| in_percent(granted(&of[place]))));
            row
        })
        .collect();
    page.table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
    let losses = LOSS_PERMILLE.map(|permille| f64::from(permille) / 10.0);
    let mut series = Vec::new();
    for (contestant, of) in CONTESTANTS.iter().zip(&samples) {
        for (percent, what) in [(50, "median"), (99, "99th percentile")] {
            let points = losses.iter().zip(of);
            let points = points
                .filter_map(|(loss, sample)| Some((*loss, millis(sample.percentile(percent)?))));
            series.push(Series {
                name: format!("{}, {what}", contestant.name()),
                points: points.collect(),
                look: contestant.look().dashed_if(percent == 99),
            });
        }
    }
    let chart = Chart {
        title: "Time to acquire while messages are lost".to_owned(),
        x: Axis::even("per cent of messages lost", [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]),
        y: Axis::log("milliseconds", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]),
        series,
    };
    page.picture("plots/loss.svg", "Time to acquire while messages are lost", chart.svg()?);
    page.say(
        "The node asked is an acceptor itself, so one answer of two makes a majority, and most losses \
         go unnoticed. Where both are lost the round waits for its timeout: that is the step in the \
         99th percentile. A direct round exposes one exchange to loss where the paper exposes two. \
         A line ends where that percentile was not granted at all: what a failed round \
         left in the acceptors is in the way of the next. The naive vote has no second try before its \
         ttl is over. The paper's proposer trips over itself: only an owner may count its own \
         proposal as an open one (its section 6), so its own acceptor's vote for the failed round \
         counts against every later round until it expires. P4 releases what a round left.",
    );
    Ok(())
}
