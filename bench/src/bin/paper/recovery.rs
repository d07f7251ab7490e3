//! How long a lease stays with a holder that died.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Series};
use paxoslease_sim::trace::TrueTime;
use paxoslease_sim::{Algorithm, ClientId, Clock, Rng, World};

use crate::sample::{Sample, in_millis, millis};
use crate::worlds::{
    Contestant, Experiment, LINK_IN_WORDS, assert_unbroken, setup, since, started,
};

const TTLS_MS: [u64; 6] = [500, 1000, 2000, 5000, 10_000, 30_000];
/// For the other ways to die.
const TTL: Duration = Duration::from_secs(1);
const CONTESTANTS: [Contestant; 2] = [Contestant::Paper, Contestant::Ours];
const RUNS: u64 = 1000;
const RENEWALS: u64 = 3;

/// The holder renews at every third of its ttl and dies some time after the last renewal.
#[derive(Clone, Copy)]
struct HolderDies {
    ttl: Duration,
    /// Its node, the first of three, dies with it.
    with_node: bool,
    /// How many clients wait, each at another node.
    waiting: u16,
}

/// What became of one run.
struct Recovery {
    /// From the last renewal, when it was asked for, to the next holder.
    took: Option<Duration>,
    /// Renewals that had to be asked for again.
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
        assert!(held, "seed {seed}: nobody else wants it");
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

/// Renews, again at once as long as it fails; says when the renewal that worked was asked for.
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

/// One experiment's figures.
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

    /// What is beyond the ttl.
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
    page.heading("3. When the holder dies");
    page.say(&format!(
        "A client holds the lease through one of three nodes, renews it at every third of the ttl and \
         dies together with its node at a random moment before the next renewal, while another \
         client waits at another node. Messages take {LINK_IN_WORDS}; {RUNS} seeds. The time is \
         counted from the moment the last renewal was asked for, which is when the holder's time \
         began to run.",
    ));
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
    page.table(&[&["ttl, algorithm"], &HEAD[..]].concat(), &rows.collect::<Vec<_>>());
    page.picture("plots/recovery.svg", "Time to recover after the holder died", plot(&figures)?);
    let repeated = figures.each_ref().map(|of| of.iter().map(|f| f.repeated).sum::<u64>());
    page.say(&format!(
        "What the ttl costs is the ttl. What comes on top is the protocol's. Rejects and Promises tell \
         a contender of ours how long the lease still runs, so it asks once, at the right moment. The \
         paper's contenders know nothing and sleep at random; how long is our choice, up to 400 ms. \
         Their asking has another price: every Prepare raises what the acceptors have promised, and \
         a renewal below that is rejected. Of the {} renewals of the paper's holder, {} had to be \
         repeated with a higher ballot. A4 lets our renewals ignore what contenders were promised: \
         {} were repeated.",
        RUNS * RENEWALS * TTLS_MS.len() as u64,
        repeated[0],
        repeated[1],
    ));
    others(page);
    Ok(())
}

/// Other ways to die.
fn others(page: &mut Page) {
    page.say(&format!(
        "It matters who else waits, and whether the holder's node lives; with a ttl of {} ms:",
        TTL.as_millis()
    ));
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
    page.table(&[&["what happens, algorithm"], &HEAD[..]].concat(), &rows);
    let tuning = setup(3, 1).tuning;
    page.say(&format!(
        "Where the holder's node is dead, the votes of both survivors are needed. One refusal does not \
         decide a round then, because for all the contender knows the dead node's answer is merely \
         slow; it gives that answer a few round trips, as long as rounds took of late, at least {} ms \
         and at most {} ms. One refuses because its record of the lease ends a little later than the \
         other's, or, where two wait, because each has voted for itself.",
        tuning.attempt_timeout_min.as_millis(),
        tuning.attempt_timeout.as_millis()
    ));
}

fn plot(figures: &[[Figures; TTLS_MS.len()]; CONTESTANTS.len()]) -> anyhow::Result<String> {
    let series = CONTESTANTS.iter().zip(figures).flat_map(|(contestant, of)| {
        [(50, "median"), (99, "99th percentile")].map(|(percent, what)| {
            let points = of.iter().filter_map(|figures| {
                Some((figures.ttl.as_secs_f64(), millis(figures.late(percent)?)))
            });
            Series {
                name: format!("{}, {what}", contestant.name()),
                points: points.collect(),
                look: contestant.look().dashed_if(percent == 99),
            }
        })
    });
    Chart {
        title: "From the end of the dead holder's time to the next holder".to_owned(),
        x: Axis::log("ttl, seconds", TTLS_MS.map(|ttl| ttl as f64 / 1e3)),
        y: Axis::log("milliseconds", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]),
        series: series.collect(),
    }
    .svg()
}
