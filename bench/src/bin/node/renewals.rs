//! Leases held by guards in process A and renewed by them, for a while.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::clock::{now, sleep};
use paxoslease_bench::report::{Goal, Section};

use crate::Extent;
use crate::cell::{Cell, Plan};
use crate::orders::{Order, Usage};

const LEASES: u32 = 1_000_000;
const PARTS: u32 = 50;
/// Guards renew after about a third of it.
const TTL: Duration = Duration::from_secs(30);

pub(crate) fn measure(extent: Extent) -> Result<Section> {
    let title = format!("renewals: {LEASES} leases held in A, each renewed every 10 s or so");
    let mut section = Section::new("renewals", title);
    let mut cell = Cell::start(Plan::default())?;
    eprintln!("renewals: taking the leases ...");
    // Spread over the span in which they are to be renewed, and as evenly.
    let began_at = now();
    for part in 1..=PARTS {
        cell.members[0].done(&Order::Fill { leases: LEASES / PARTS, ttl: TTL })?;
        sleep((TTL / 3 * part / PARTS).saturating_sub(began_at.elapsed()));
    }
    eprintln!("renewals: holding them ...");
    let before = cell.usages()?;
    let began_at = now();
    sleep(Duration::from_secs(extent.pick(15, 60)));
    let after = cell.usages()?;
    let secs = began_at.elapsed().as_secs_f64();
    let (held, lost) = cell.members[0].held()?;
    let renewals = (after[0].renewals - before[0].renewals) as f64 / secs;
    let wanted = f64::from(LEASES) / TTL.as_secs_f64() * 3.0;
    section.goal("renewals", renewals, "/s", Goal::AtLeast(0.95 * wanted));
    for ((process, before), after) in ["A", "B", "C"].into_iter().zip(&before).zip(&after) {
        let share = (after.cpu - before.cpu).as_secs_f64() / secs * 100.0;
        section.figure(format!("CPU of {process}"), share, "% of a core");
    }
    section.figure("pauses over 100 ms", pauses(&before, &after), "");
    section.figure("held in the end", f64::from(held), "");
    section.goal("lost", f64::from(lost), "", Goal::AtMost(0.0));
    section.note(format!("over {secs:.1} s"));
    Ok(section)
}

fn pauses(before: &[Usage], after: &[Usage]) -> f64 {
    let sum = |usages: &[Usage]| usages.iter().map(|usage| usage.pauses).sum::<u64>();
    (sum(after) - sum(before)) as f64
}
