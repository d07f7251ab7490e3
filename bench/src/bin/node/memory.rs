//! What a held lease costs the members that vote on it, in resident memory, and whether growing
//! stalls them. The guards are in a process of their own that is not measured.
//!
//! A stall shows as a long turn of a member's event loop, by its own measurement, and as a slow
//! request: one client in B acquires and releases one name after the other while the tables grow.
//! Before that, the same under an equal load over few names, when they do not grow.

use std::time::Duration;

use anyhow::{Result, ensure};
use paxoslease_bench::clock::sleep;
use paxoslease_bench::report::{Goal, Section};

use crate::Extent;
use crate::cell::{Cell, Plan};
use crate::orders::{Load, Loaded, Order};
use crate::sample::Sample;

/// So long that nothing is renewed during the run.
const TTL: Duration = Duration::from_secs(24 * 3600);
const PROBE: Load = Load { in_flight: 1, names: 1024, ttl: Duration::from_secs(1) };
const EQUAL: Load = Load { in_flight: 512, names: 4096, ttl: Duration::from_secs(1) };
const EQUAL_FOR: Duration = Duration::from_secs(5);
const BYTES_MAX: f64 = 88.0;
const STALL_MAX_MS: f64 = 10.0;

pub(crate) fn measure(extent: Extent) -> Result<Section> {
    let title = "memory: leases of 16-byte names and holders, taken by a process of its own";
    let mut section = Section::new("memory", title);
    Turns::of(1_000_000, extent.pick(2, 5))?.show(&mut section, "1 M");
    if extent.full {
        Turns::of(10_000_000, 3)?.show(&mut section, "10 M");
    }
    section.note("a stall that comes with growing comes in every turn; a busy machine's does not");
    Ok(section)
}

#[derive(Default)]
struct Turns {
    /// Resident bytes per lease, of B and C.
    resident: [Sample; 2],
    /// The same, by the node's own count.
    counted: Sample,
    /// The longest turn of C's event loop so far, in milliseconds: after the equal load, and then
    /// after growing.
    turn_equal: Sample,
    turn_growing: Sample,
    /// How long the probe's slowest request took, in milliseconds.
    growing: Sample,
    equal: Sample,
    p99_growing: Sample,
    p99_equal: Sample,
}

impl Turns {
    fn of(leases: u32, turns: u32) -> Result<Self> {
        let mut all = Self::default();
        for turn in 1..=turns {
            eprintln!("memory: {} M leases, turn {turn} of {turns} ...", leases / 1_000_000);
            all.add(leases)?;
        }
        Ok(all)
    }

    fn add(&mut self, leases: u32) -> Result<()> {
        let mut cell = Cell::start(Plan { max_lease: TTL, ..Plan::default() })?;
        let mut proposer = cell.proposer()?;
        let equal = probed(&mut cell, || {
            proposer.start_load(EQUAL)?;
            sleep(EQUAL_FOR);
            proposer.stop_load().map(drop)
        })?;
        let millis = |span: Duration| span.as_secs_f64() * 1e3;
        self.turn_equal.add(millis(cell.members[2].status()?.longest_turn));
        let before = [resident(&mut cell, 1)?, resident(&mut cell, 2)?];
        let growing = probed(&mut cell, || proposer.done(&Order::Fill { leases, ttl: TTL }))?;
        for ((index, before), sample) in [1, 2].into_iter().zip(before).zip(&mut self.resident) {
            sample.add((resident(&mut cell, index)? - before) / f64::from(leases));
        }
        let status = cell.members[2].status()?;
        ensure!(status.leases >= u64::from(leases), "C has {} leases", status.leases);
        self.counted.add(status.acceptor_bytes as f64 / f64::from(leases));
        self.turn_growing.add(millis(status.longest_turn));
        self.growing.add(millis(growing.spans.max));
        self.p99_growing.add(millis(growing.spans.p99));
        self.equal.add(millis(equal.spans.max));
        self.p99_equal.add(millis(equal.spans.p99));
        Ok(())
    }

    fn show(&self, section: &mut Section, many: &str) {
        for (member, sample) in ["B", "C"].into_iter().zip(&self.resident) {
            let what = format!("{many}, resident in {member} per lease");
            section.goal(what, sample.median(), "bytes", Goal::AtMost(BYTES_MAX));
        }
        section.figure(format!("{many}, by the node's own count"), self.counted.median(), "bytes");
        let what = format!("{many}, longest turn of C's loop as they grow, best turn");
        section.goal(what, self.turn_growing.min(), "ms", Goal::AtMost(STALL_MAX_MS));
        let what = format!("{many}, longest turn of C's loop before, best turn");
        section.figure(what, self.turn_equal.min(), "ms");
        let what = format!("{many}, slowest request as they grow, best turn");
        section.figure(what, self.growing.min(), "ms");
        let what = format!("{many}, slowest request under equal load, best turn");
        section.figure(what, self.equal.min(), "ms");
        section.note(format!(
            "{many}: longest turns {} ms as they grow, {} ms before; slowest requests {} ms as they grow, {} ms under equal load; p99 {:.2} and \
             {:.2} ms",
            self.turn_growing.spread(1),
            self.turn_equal.spread(1),
            self.growing.spread(1),
            self.equal.spread(1),
            self.p99_growing.median(),
            self.p99_equal.median(),
        ));
    }
}

fn resident(cell: &mut Cell, index: usize) -> Result<f64> {
    Ok(cell.members[index].usage()?.resident_bytes as f64)
}

/// What a client in B notices of something.
fn probed(cell: &mut Cell, happens: impl FnOnce() -> Result<()>) -> Result<Loaded> {
    cell.members[1].start_load(PROBE)?;
    happens()?;
    cell.members[1].stop_load()
}
