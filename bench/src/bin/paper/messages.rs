//! Messages and round trips of each operation, counted.

use std::time::Duration;

use anyhow::ensure;
use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Look, Marker, Series};
use paxoslease_sim::{Algorithm, Clock, Link, Setup, World};

use crate::worlds::{Contestant, Experiment, assert_unbroken, setup, since, started};

const MEMBERS: [u16; 5] = [1, 3, 5, 7, 9];
const CONTESTANTS: [Contestant; 2] = [Contestant::Paper, Contestant::Ours];
const TTL: Duration = Duration::from_secs(10);
const DELAY: Duration = Duration::from_millis(1);
/// Longer than the messages of an operation, shorter than the lease.
const AFTERMATH: Duration = Duration::from_secs(1);

/// The only client acquires, renews and releases at the first node.
struct Alone {
    members: u16,
}

/// Messages between nodes, and round trips until the client had its answer.
#[derive(Clone, Copy)]
struct Cost {
    messages: u64,
    round_trips: u64,
}

impl Experiment for Alone {
    type Outcome = [Cost; 3];

    fn run<A: Algorithm>(&self, algorithm: A, seed: u64) -> [Cost; 3] {
        let link = Link::steady(DELAY);
        let mut world = started(algorithm, Setup { link, ..setup(self.members, seed) });
        let client = world.add_client(Clock::perfect(), 0, None);
        let acquire = cost(
            &mut world,
            |world| world.acquire(client, 1, TTL, Duration::ZERO),
            |world| world.counts().acquires,
        );
        let renew =
            cost(&mut world, |world| world.renew(client, 1, TTL), |world| world.counts().renewals);
        let release =
            cost(&mut world, |world| world.release(client, 1), |world| world.counts().releases);
        assert_unbroken(&world, seed);
        [acquire, renew, release]
    }
}

fn cost<A: Algorithm>(
    world: &mut World<A>,
    act: impl FnOnce(&mut World<A>),
    answers: impl Fn(&World<A>) -> u64,
) -> Cost {
    let (sent, started_at) = (world.counts().messages, world.now());
    act(world);
    assert!(world.run_while(AFTERMATH, |world| answers(world) == 0), "it is answered");
    let took = since(world, started_at);
    world.run_for(AFTERMATH);
    let round_trips = took.as_nanos().div_ceil(2 * DELAY.as_nanos()) as u64;
    Cost { messages: world.counts().messages - sent, round_trips }
}

pub(crate) fn section(page: &mut Page) -> anyhow::Result<()> {
    let costs = CONTESTANTS.map(|contestant| {
        MEMBERS.map(|members| {
            let outcomes = Alone { members }.outcomes(contestant, 1);
            outcomes.into_iter().next().expect("one run")
        })
    });
    let mut head = vec!["acceptors".to_owned()];
    for what in ["acquire", "renewal", "release"] {
        head.extend(CONTESTANTS.map(|contestant| format!("{what}, {}", contestant.name())));
    }
    let rows: Vec<Vec<String>> = MEMBERS
        .iter()
        .enumerate()
        .map(|(place, members)| {
            let cell = |Cost { messages, round_trips }| format!("{messages} ({round_trips})");
            let mut row = vec![members.to_string()];
            for what in 0..3 {
                row.extend(costs.each_ref().map(|of| cell(of[place][what])));
            }
            row
        })
        .collect();
    page.table("messages", &head, rows);
    let mut series = Vec::new();
    for (contestant, of) in CONTESTANTS.iter().zip(&costs) {
        let alike = of.iter().all(|[acquire, renewal, _]| acquire.messages == renewal.messages);
        ensure!(alike, "the plot says that acquires and renewals cost the same");
        for (what, name, marker) in
            [(0, "acquire or renewal", Marker::Circle), (2, "release", Marker::Triangle)]
        {
            let points = MEMBERS.iter().zip(of);
            let points = points.map(|(n, costs)| (f64::from(*n), costs[what].messages as f64));
            let dashed = *contestant == Contestant::Paper;
            series.push(Series {
                name: format!("{}, {name}", contestant.name()),
                points: points.collect(),
                look: Look { marker, dashed, ..contestant.look() },
            });
        }
    }
    let most = costs.iter().flatten().flatten().map(|cost| cost.messages).max().unwrap_or(1);
    let ticks: Vec<f64> = (0..=most.div_ceil(20)).map(|tick| tick as f64 * 20.0).collect();
    let chart = Chart {
        title: "Messages between nodes, per operation".to_owned(),
        x: Axis::even("acceptors", MEMBERS.map(f64::from)),
        y: Axis::even("messages", ticks),
        series,
    };
    page.keep("plots/messages.svg", chart.svg());
    Ok(())
}
