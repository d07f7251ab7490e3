//! How fast the simulator runs hostile worlds, checkers included: what decides how many seeds the
//! tests can afford.

use std::time::Duration;

use paxoslease_bench::clock;
use paxoslease_bench::report::{Goal, Section};
use paxoslease_sim::{Faults, Options, run};

pub(crate) fn measure(seeds: u64) -> Section {
    let mut section = Section::new("simulator", "Simulator, one thread, checkers on every event");
    let options = Options { faults: Faults::Hostile, ..Options::default() };
    let (mut events, mut took) = (0, Duration::ZERO);
    for seed in 0..seeds {
        let before = clock::thread_time();
        let report = run(seed, &options);
        took += clock::thread_time() - before;
        events += report.counts.events;
        if !report.violations.is_empty() {
            section.note(format!("Seed {seed} broke an invariant: {:?}", report.violations));
        }
    }
    let seconds = took.as_secs_f64();
    let goal = Goal::AtLeast(200_000.0);
    section.goal("events of hostile worlds", events as f64 / seconds, "events/s", goal);
    section.figure("events in a seed", events as f64 / seeds as f64, "events");
    section.figure("seeds", seeds as f64 / seconds, "seeds/s");
    section.note(format!("Seeds 0 to {}, by the thread's own time.", seeds - 1));
    section
}
