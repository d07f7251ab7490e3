//! Every member stopped cleanly and started again, one after the other, while a process of its own
//! holds leases and takes others: snapshots make that free of loss and of quarantine (R4).

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::clock::{now, sleep};
use paxoslease_bench::report::{Goal, Section};

use crate::Extent;
use crate::cell::{Cell, Plan};
use crate::orders::{Load, Order};
use crate::sample::Sample;

const LEASES: u32 = 10_000;
const TTL: Duration = Duration::from_secs(10);
const LOAD: Load = Load { in_flight: 16, names: 1 << 20, ttl: TTL };

pub(crate) fn measure(extent: Extent) -> Result<Section> {
    let title = format!("rolling: all members restarted in turn, {LEASES} leases held elsewhere");
    let mut section = Section::new("rolling", title);
    let mut cell = Cell::start(Plan { max_lease: 3 * TTL, ..Plan::default() })?;
    let mut proposer = cell.proposer()?;
    proposer.done(&Order::Fill { leases: LEASES, ttl: TTL })?;
    proposer.start_load(LOAD)?;
    let (mut away, mut quarantine) = (Sample::default(), Duration::ZERO);
    let rounds = extent.pick(1, 3);
    for round in 1..=rounds {
        for member in 0..3 {
            eprintln!("rolling, round {round} of {rounds}, member {} ...", member + 1);
            let began_at = now();
            cell.members[member].shut_down()?;
            cell.restart(member)?;
            quarantine = quarantine.max(cell.members[member].status()?.quarantine_remaining);
            cell.await_member(member)?;
            proposer.await_peers(3)?;
            away.add(began_at.elapsed().as_secs_f64() * 1e3);
            // Work goes on with all three for a moment.
            sleep(Duration::from_millis(300));
        }
    }
    let load = proposer.stop_load()?;
    // Until every lease had to be renewed once more.
    sleep(TTL / 2);
    let (held, lost) = proposer.held()?;
    section.goal("leases lost", f64::from(lost), "", Goal::AtMost(0.0));
    section.figure("leases held in the end", f64::from(held), "");
    section.goal("longest quarantine", quarantine.as_secs_f64(), "s", Goal::AtMost(0.0));
    section.goal("failed requests meanwhile", load.failures as f64, "", Goal::AtMost(0.0));
    section.figure("pairs meanwhile", load.pairs as f64, "");
    section.figure("longest gap without an acquire", load.gap.as_secs_f64() * 1e3, "ms");
    section.figure("a member's absence", away.median(), "ms");
    section.note(format!("absences: {} ms", away.spread(0)));
    Ok(section)
}
