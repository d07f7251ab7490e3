//! Round trips per acquire: how often a proposer asked the acceptors before it held the lease.

use std::collections::BTreeSet;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Series, panels};
use paxoslease_sim::trace::TraceEvent;
use paxoslease_sim::{Algorithm, Keep, Setup};

use crate::contention::AtOnce;
use crate::sample::in_percent;
use crate::worlds::{Contestant, Experiment, setup};

const CONTENDERS: [u16; 4] = [1, 2, 3, 8];
const CONTESTANTS: [Contestant; 3] = [Contestant::Paper, Contestant::Prepared, Contestant::Ours];
const ACCEPTORS: u16 = 3;
const RUNS: u64 = 1000;
/// The last column is for this many and more.
const MANY: usize = 8;

/// How many Prepares and Proposes to all acceptors the node of the first holder had sent.
struct Asked(AtOnce);

impl Experiment for Asked {
    type Outcome = usize;

    fn run<A: Algorithm>(&self, algorithm: A, seed: u64) -> usize {
        let setup = Setup { keep: Keep::All, ..setup(ACCEPTORS, seed) };
        let (world, took) = self.0.play(algorithm, setup);
        assert!(took.is_some(), "seed {seed}: no client ever held the lease");
        let trace = world.into_trace();
        let winner = trace.iter().find_map(|entry| match entry.event {
            TraceEvent::Believes { node, .. } => Some(node),
            _ => None,
        });
        assert!(winner.is_some(), "seed {seed}: the holder knows nothing of it");
        let questions = trace.iter().filter_map(|entry| match &entry.event {
            TraceEvent::Sent { from, text, .. } if Some(*from) == winner => Some(text.as_str()),
            _ => None,
        });
        // A question has its ballot in its text: the copies for each acceptor count once.
        let is_question = |text: &&str| text.starts_with("Prepare") || text.starts_with("Propose");
        questions.filter(is_question).collect::<BTreeSet<_>>().len()
    }
}

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    let asked = CONTENDERS.map(|contenders| {
        CONTESTANTS.map(|contestant| Asked(AtOnce { contenders }).outcomes(contestant, RUNS))
    });
    table(page, &asked);
    let charts: Vec<Chart> = CONTENDERS
        .iter()
        .zip(&asked)
        .filter(|(contenders, _)| **contenders > 1)
        .map(|(contenders, asked)| chart(*contenders, asked))
        .collect();
    page.keep("plots/round-trips.svg", panels(&charts));
    page.set("round_trips_runs", RUNS);
    Ok(())
}

type Asks = [Vec<usize>; CONTESTANTS.len()];

/// The share of runs with at most this many round trips.
fn within(asked: &[usize], most: usize) -> f64 {
    asked.iter().filter(|asked| **asked <= most).count() as f64 / asked.len() as f64
}

fn table(page: &mut Page, asked: &[Asks; CONTENDERS.len()]) {
    let mut head = vec!["contenders, algorithm".to_owned()];
    head.extend((1..MANY).map(|count| count.to_string()));
    head.push(format!("{MANY} and more"));
    let mut rows = Vec::new();
    for (contenders, asked) in CONTENDERS.iter().zip(asked) {
        for (contestant, asked) in CONTESTANTS.iter().zip(asked) {
            let mut row = vec![format!("{contenders}, {}", contestant.name())];
            let exactly = |count| within(asked, count) - within(asked, count - 1);
            row.extend((1..MANY).map(|count| in_percent(exactly(count))));
            row.push(in_percent(1.0 - within(asked, MANY - 1)));
            rows.push(row);
        }
    }
    page.table("round_trips", &head, rows);
}

fn chart(contenders: u16, asked: &Asks) -> Chart {
    let series = CONTESTANTS.iter().zip(asked).map(|(contestant, asked)| {
        let points = (1..=MANY).map(|most| (most as f64, 100.0 * within(asked, most)));
        let name = contestant.name().replace(", ", ": ");
        Series { name, points: points.collect(), look: contestant.look() }
    });
    let counts: Vec<f64> = (1..=MANY).map(|count| count as f64).collect();
    Chart {
        title: format!("{contenders} contenders at once"),
        x: Axis::even("round trips, at most", counts),
        y: Axis::even("per cent of attempts", [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
        series: series.collect(),
    }
}
