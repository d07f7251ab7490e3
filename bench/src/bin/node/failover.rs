//! kill -9 of process C while A and B acquire and release: the longest time either of them went
//! without a successful acquire, beside the longest of an equal span in which nobody died.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::clock::sleep;
use paxoslease_bench::report::{Goal, Section};

use crate::Extent;
use crate::cell::{Cell, Plan};
use crate::orders::Load;
use crate::sample::Sample;

/// Short, so that a member that was killed votes again soon.
const MAX_LEASE: Duration = Duration::from_secs(1);
const SPAN: Duration = Duration::from_millis(500);
const LOAD: Load = Load { in_flight: 16, names: 1 << 20, ttl: Duration::from_millis(500) };
const GAP_MAX_MS: f64 = 50.0;

/// Longest gaps of every turn, in milliseconds.
#[derive(Default)]
struct Gaps {
    a: Sample,
    b: Sample,
    failures: u64,
}

pub(crate) fn measure(extent: Extent) -> Result<Section> {
    let title = "failover: kill -9 of C, clients in A and B, 16 requests in flight each";
    let mut section = Section::new("failover", title);
    let mut cell = Cell::start(Plan { max_lease: MAX_LEASE, ..Plan::default() })?;
    let (mut quiet, mut killed) = (Gaps::default(), Gaps::default());
    let turns = extent.pick(3, 10);
    for turn in 1..=turns {
        eprintln!("failover, turn {turn} of {turns} ...");
        window(&mut cell, &mut quiet, |_| Ok(()))?;
        window(&mut cell, &mut killed, |cell| cell.members[2].kill())?;
        cell.restart(2)?;
        for member in 0..3 {
            cell.await_member(member)?;
        }
    }
    let goal = Goal::AtMost(GAP_MAX_MS);
    section.goal("longest gap in A, C killed", killed.a.max(), "ms", goal);
    section.goal("longest gap in B, C killed", killed.b.max(), "ms", goal);
    section.figure("median of the turns' longest in A", killed.a.median(), "ms");
    section.figure("median of the turns' longest in B", killed.b.median(), "ms");
    section.figure("longest gap in A, nobody killed", quiet.a.max(), "ms");
    section.figure("longest gap in B, nobody killed", quiet.b.max(), "ms");
    section.goal("failed requests", killed.failures as f64, "", Goal::AtMost(0.0));
    section.note(format!(
        "{turns} turns; longest gaps with C killed: A {} ms, B {} ms; with nobody killed: A {} ms, \
         B {} ms",
        killed.a.spread(1),
        killed.b.spread(1),
        quiet.a.spread(1),
        quiet.b.spread(1),
    ));
    Ok(section)
}

/// Load on A and B, and something in the middle of it.
fn window(
    cell: &mut Cell,
    gaps: &mut Gaps,
    happens: impl FnOnce(&mut Cell) -> Result<()>,
) -> Result<()> {
    cell.members[0].start_load(LOAD)?;
    cell.members[1].start_load(LOAD)?;
    sleep(SPAN);
    happens(cell)?;
    sleep(SPAN);
    let (a, b) = (cell.members[0].stop_load()?, cell.members[1].stop_load()?);
    gaps.a.add(a.gap.as_secs_f64() * 1e3);
    gaps.b.add(b.gap.as_secs_f64() * 1e3);
    gaps.failures += a.failures + b.failures;
    Ok(())
}
