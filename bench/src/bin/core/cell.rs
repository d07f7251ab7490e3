//! How many leases a cell of three in memory can give and renew, on one thread, and what goes
//! between its nodes meanwhile.

use std::time::Duration;

use paxoslease_bench::clock;
use paxoslease_bench::report::{Goal, Section};
use paxoslease_bench::rigs::cell::{Rig, Traffic};

use crate::memory::Heap;

/// Names the clients go through; none is wanted by two at once.
const NAMES: u32 = 1 << 16;

/// The best of some runs: a shared machine only ever makes a run slower.
struct Best {
    per_second: f64,
    traffic: Traffic,
    allocations: usize,
}

const OPERATIONS: u64 = 300_000;

fn best_of(runs: u32, rig: &mut Rig, answers_each: u64) -> Best {
    // Queues and tables reach the size they keep.
    rig.run(answers_each * OPERATIONS);
    let before_runs = rig.traffic();
    let heap_before = Heap::now();
    let mut shortest = Duration::MAX;
    for _ in 0..runs {
        let before = clock::thread_time();
        rig.run(answers_each * OPERATIONS);
        shortest = shortest.min(clock::thread_time() - before);
    }
    Best {
        per_second: OPERATIONS as f64 / shortest.as_secs_f64(),
        traffic: rig.traffic() - before_runs,
        allocations: Heap::now().allocations - heap_before.allocations,
    }
}

pub(crate) fn measure(runs: u32) -> Section {
    let mut section =
        Section::new("cell", "Cell of three in memory, through the codec, one thread");
    for in_flight in [64, 512] {
        let pairs = best_of(runs, &mut Rig::new(in_flight, NAMES), 2);
        let total = f64::from(runs) * OPERATIONS as f64;
        let label = |what: &str| format!("{what}, {in_flight} in flight");
        let goal = Goal::AtLeast(300_000.0);
        section.goal(label("acquire+release"), pairs.per_second, "pairs/s", goal);
        let Traffic { messages, frames, bytes } = pairs.traffic;
        section.figure(label("messages between nodes"), messages as f64 / total, "/pair");
        section.figure(label("bytes between nodes"), bytes as f64 / total, "/pair");
        section.figure(label("messages in a frame"), messages as f64 / frames as f64, "");
        section.goal(
            label("allocations"),
            pairs.allocations as f64 / total,
            "/pair",
            Goal::AtMost(0.0),
        );
        let mut rig = Rig::new(in_flight, NAMES);
        rig.hold_all_and_renew(in_flight);
        let renewals = best_of(runs, &mut rig, 1);
        section.figure(label("renew"), renewals.per_second, "renewals/s");
        section.figure(
            label("allocations while renewing"),
            renewals.allocations as f64 / total,
            "/renewal",
        );
    }
    section.note(format!(
        "The best of {runs} runs of {OPERATIONS}, by the thread's own time, over {NAMES} names."
    ));
    section
}
