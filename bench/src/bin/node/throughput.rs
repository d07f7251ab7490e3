//! Acquire and release with many requests under way in process A: pairs per second, and what one
//! pair costs all three processes together. Batching shows in costs that fall as load rises.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::clock::sleep;
use paxoslease_bench::report::{Goal, Section};

use crate::Extent;
use crate::cell::{Cell, Plan, Process};
use crate::orders::{Load, Usage};
use crate::sample::Sample;
use crate::syscalls;
use crate::system::Loopback;

/// Requests in flight, and how many names they go round in: many, as in a large service, or so few
/// that the processor's caches hold all there is to know of them.
const CASES: [(u32, u32); 5] = [(1, MANY), (16, MANY), (64, MANY), (512, MANY), (512, 4096)];
const MANY: u32 = 1 << 20;
const PAIRS_MIN: f64 = 300_000.0;

pub(crate) fn measure(extent: Extent) -> Result<Section> {
    let title = "throughput: acquire and release in A; costs are those of all three processes";
    let mut section = Section::new("throughput", title);
    for shards in [1, 2] {
        let mut cell = Cell::start(Plan { shards, ..Plan::default() })?;
        run(&mut cell, (512, MANY), SHORT)?;
        let mut all = CASES.map(|_| Turns::default());
        for turn in 1..=extent.pick(2, 5) {
            eprintln!("throughput, shards: {shards}, turn {turn} ...");
            for (case, turns) in CASES.into_iter().zip(&mut all) {
                turns.add(&run(&mut cell, case, extent.pick(SHORT, 2 * SHORT))?);
            }
        }
        for (case, turns) in CASES.into_iter().zip(&all) {
            let calls = count_calls(&mut cell, case);
            turns.show(&mut section, shards, case, calls);
        }
    }
    section.note("CPU includes the load itself, one thread in A, shown beside it");
    section
        .note("bytes and packets are those of the loopback interface, headers and acks included");
    Ok(section)
}

const SHORT: Duration = Duration::from_secs(1);

const fn load((in_flight, names): (u32, u32)) -> Load {
    Load { in_flight, names, ttl: Duration::from_secs(1) }
}

/// What one turn came to, each per pair but the first.
struct Costs {
    pairs_per_second: f64,
    p50_us: f64,
    cpu_us: f64,
    load_cpu_us: f64,
    messages: f64,
    bytes: f64,
    packets: f64,
    sleeps: f64,
    failures: u64,
}

fn run(cell: &mut Cell, case: (u32, u32), span: Duration) -> Result<Costs> {
    let before = cell.usages()?;
    let wire_before = Loopback::so_far()?;
    cell.members[0].start_load(load(case))?;
    sleep(span);
    let loaded = cell.members[0].stop_load()?;
    let wire = Loopback::so_far()?;
    let after = cell.usages()?;
    let pairs = loaded.pairs as f64;
    let each = |field: fn(&Usage) -> f64| {
        let sum = |usages: &[Usage]| usages.iter().map(field).sum::<f64>();
        (sum(&after) - sum(&before)) / pairs
    };
    Ok(Costs {
        pairs_per_second: pairs / loaded.took.as_secs_f64(),
        p50_us: loaded.spans.p50.as_secs_f64() * 1e6,
        cpu_us: each(|usage| usage.cpu.as_secs_f64() * 1e6),
        load_cpu_us: loaded.cpu.as_secs_f64() * 1e6 / pairs,
        messages: each(|usage| usage.messages as f64),
        bytes: (wire.bytes - wire_before.bytes) as f64 / pairs,
        packets: (wire.packets - wire_before.packets) as f64 / pairs,
        sleeps: each(|usage| usage.sleeps as f64),
        failures: loaded.failures,
    })
}

/// System calls per pair, in a turn of its own.
fn count_calls(cell: &mut Cell, case: (u32, u32)) -> Result<f64> {
    let pids: Vec<u32> = cell.members.iter().map(Process::pid).collect();
    cell.members[0].start_load(load(case))?;
    let calls = syscalls::per_second(&pids);
    let loaded = cell.members[0].stop_load()?;
    Ok(calls? / (loaded.pairs as f64 / loaded.took.as_secs_f64()))
}

#[derive(Default)]
struct Turns {
    pairs: Sample,
    p50: Sample,
    cpu: Sample,
    load_cpu: Sample,
    messages: Sample,
    bytes: Sample,
    packets: Sample,
    sleeps: Sample,
    failures: u64,
}

impl Turns {
    fn add(&mut self, costs: &Costs) {
        self.pairs.add(costs.pairs_per_second);
        self.p50.add(costs.p50_us);
        self.cpu.add(costs.cpu_us);
        self.load_cpu.add(costs.load_cpu_us);
        self.messages.add(costs.messages);
        self.bytes.add(costs.bytes);
        self.packets.add(costs.packets);
        self.sleeps.add(costs.sleeps);
        self.failures += costs.failures;
    }

    fn show(&self, section: &mut Section, shards: u16, case: (u32, u32), calls: Result<f64>) {
        let (in_flight, names) = case;
        let few = if names == MANY { String::new() } else { format!(", {names} names") };
        let of = |what: &str| format!("shards {shards}, {in_flight} in flight{few}, {what}");
        let pairs = self.pairs.median();
        match in_flight {
            512 => section.goal(of("pairs"), pairs, "/s", Goal::AtLeast(PAIRS_MIN)),
            _ => section.figure(of("pairs"), pairs, "/s"),
        }
        section.figure(of("p50 of a pair"), self.p50.median(), "us");
        section.figure(of("CPU"), self.cpu.median(), "us/pair");
        section.figure(of("CPU of the load"), self.load_cpu.median(), "us/pair");
        section.figure(of("messages"), self.messages.median(), "/pair");
        section.figure(of("bytes"), self.bytes.median(), "/pair");
        section.figure(of("packets"), self.packets.median(), "/pair");
        section.figure(of("sleeps of threads"), self.sleeps.median(), "/pair");
        match calls {
            Ok(calls) => section.figure(of("system calls"), calls, "/pair"),
            Err(error) => section.note(of(&format!("system calls not counted: {error:#}"))),
        }
        section.figure(of("failures"), self.failures as f64, "");
        section.note(of(&format!("pairs/s over the turns: {}", self.pairs.spread(0))));
    }
}
