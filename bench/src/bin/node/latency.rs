//! An uncontended acquire in process A beside a ping to process B: both wake a process on another
//! core and come back, so their ratio is what the protocol adds.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::report::{Goal, Section};

use crate::Extent;
use crate::cell::{Cell, Plan};
use crate::orders::{Order, Spans};
use crate::ping::as_an_acquire;
use crate::sample::Sample;

const SPIN: Duration = Duration::from_micros(50);
const RATIO_MAX: f64 = 1.5;

pub(crate) fn measure(extent: Extent) -> Result<Section> {
    let title = "latency: A on one core, B and C on the other, one request at a time";
    let mut section = Section::new("latency", title);
    for (mode, spin) in [("blocking", Duration::ZERO), ("spinning", SPIN)] {
        eprintln!("latency, {mode} ...");
        beside(&mut section, mode, spin, extent.pick((6, 500), (30, 1000)))?;
    }
    Ok(section)
}

/// Quantiles of every turn.
#[derive(Default)]
struct Turns {
    p50: Sample,
    p99: Sample,
}

impl Turns {
    fn add(&mut self, spans: Spans) {
        self.p50.add(micros(spans.p50));
        self.p99.add(micros(spans.p99));
    }
}

fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}

fn beside(
    section: &mut Section,
    mode: &str,
    spin: Duration,
    (turns, count): (u32, u32),
) -> Result<()> {
    let mut cell = Cell::start(Plan { spin, pinned: true, ..Plan::default() })?;
    let pinging = as_an_acquire(spin);
    let at = cell.members[1].echo(pinging)?;
    let a = &mut cell.members[0];
    // The first turn warms everything up.
    a.timed(&Order::Acquire { count })?;
    a.timed(&Order::Ping { at, count, pinging })?;
    let (mut acquires, mut pings, mut ratios) =
        (Turns::default(), Turns::default(), Sample::default());
    for _ in 0..turns {
        let acquire = a.timed(&Order::Acquire { count })?;
        let ping = a.timed(&Order::Ping { at, count, pinging })?;
        ratios.add(micros(acquire.p50) / micros(ping.p50));
        acquires.add(acquire);
        pings.add(ping);
    }
    for (what, turns) in [("acquire", &acquires), ("ping", &pings)] {
        section.figure(format!("{mode}, {what}, p50"), turns.p50.median(), "us");
        section.figure(format!("{mode}, {what}, p99"), turns.p99.median(), "us");
    }
    let goal = Goal::AtMost(RATIO_MAX);
    section.goal(format!("{mode}, acquire : ping, p50"), ratios.median(), "", goal);
    section.note(format!(
        "{mode}: medians of {turns} turns of {count} each; acquire p50 {} us, ping p50 {} us, \
         ratio {}; {} bytes there, {} back",
        acquires.p50.spread(1),
        pings.p50.spread(1),
        ratios.spread(2),
        pinging.ping_len,
        pinging.pong_len,
    ));
    Ok(())
}
