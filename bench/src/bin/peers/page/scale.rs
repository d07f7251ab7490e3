//! The sections about many leases, and about what goes wrong: figures of parts that each have
//! rounds of their own.

use std::time::Duration;

use anyhow::Result;
use paxoslease_bench::page::Page;
use paxoslease_bench::plot::{Axis, Chart, Series};

use super::numbers::{count, micros, three_digits, with_range};
use crate::figures::Spread;
use crate::scale::{
    After, Clients, FAILOVER_MAX_LEASE, FAILOVER_TTL, Figures, Latency, Phase, START_MAX_LEASE,
};
use crate::side::Side;

pub(crate) fn sections(page: &mut Page, scale: &Figures) -> Result<()> {
    if !scale.memory.is_empty() || !scale.growth.is_empty() {
        page.heading("Many leases held");
    }
    memory(page, scale)?;
    growth(page, scale)?;
    renewed(page, scale);
    stalls(page, scale);
    failover(page, scale);
    start(page, scale);
    neighbour(page, scale);
    Ok(())
}

/// The most bytes per lease in any node of ours, however many there were.
pub(crate) fn bytes_max(scale: &Figures) -> Option<f64> {
    let ours = scale.memory.iter().filter(|row| row.side == Side::Ours);
    ours.flat_map(|row| row.bytes.iter().copied()).max_by(f64::total_cmp)
}

/// How many times as much the dearest pair costs as the cheapest, over all numbers of leases held.
pub(crate) fn cost_growth(scale: &Figures, side: Side) -> Option<f64> {
    let costs = scale.growth.iter().filter(|row| row.side == side);
    let costs: Vec<f64> = costs.filter_map(|row| median(&row.cpu_us)).collect();
    let spread = Spread::of(costs)?;
    Some(spread.high / spread.low)
}

/// The longest turn of any node's loop while there were many leases.
pub(crate) fn longest_turn_ms(scale: &Figures) -> Option<f64> {
    let many = scale.stalls.iter().filter(|row| row.phase != Phase::Few);
    many.flat_map(|row| row.longest_turn_ms.iter().copied()).max_by(f64::total_cmp)
}

/// The longest gap of all turns, of those clients who all lose their node or of the others.
pub(crate) fn gap_max_ms(scale: &Figures, side: Side, lose_their_node: bool) -> Option<f64> {
    let rows = scale.failover.iter().filter(|row| row.side == side);
    let rows = rows.filter(|row| (row.clients == Clients::OfVictim) == lose_their_node);
    rows.flat_map(|row| row.gaps_ms.iter().copied()).max_by(f64::total_cmp)
}

/// What spinning is beside blocking in the load in which it fares worst, with a core taken.
pub(crate) fn worst_beside_neighbour(scale: &Figures) -> Option<f64> {
    let ratios =
        scale.neighbour.iter().filter_map(|row| Some(beside(&row.spinning, &row.blocking)?.median));
    ratios.min_by(f64::total_cmp)
}

fn memory(page: &mut Page, scale: &Figures) -> Result<()> {
    if scale.memory.is_empty() {
        return Ok(());
    }
    page.subheading("Memory");
    page.say(
        "Resident memory of each server beyond what it had before, divided by the leases it holds, \
         names of 23 bytes included; the server that takes most. ZooKeeper and etcd are asked for \
         fewer, because each takes them minutes. What collects garbage occupies more than it needs \
         at the moment: that is what it costs, too.",
    );
    let mut series: Vec<Series> = Vec::new();
    let mut rows = Vec::new();
    for row in &scale.memory {
        let Some(most) = row.bytes.iter().copied().max_by(f64::total_cmp) else { continue };
        let held = f64::from(row.leases);
        rows.push(vec![row.side.title().to_owned(), count(held), three_digits(most)]);
        let title = row.side.title();
        match series.iter_mut().find(|series| series.name == title) {
            Some(series) => series.points.push((held, most)),
            None => series.push(Series {
                name: title.to_owned(),
                points: vec![(held, most)],
                look: row.side.look(),
            }),
        }
    }
    page.table(&["", "leases", "bytes per lease and server"], &rows);
    let values: Vec<f64> =
        series.iter().flat_map(|series| series.points.iter().map(|(_, y)| *y)).collect();
    let chart = Chart {
        title: "Memory per held lease and server".to_owned(),
        x: Axis::log("leases held", [1e5, 1e6, 1e7]),
        y: Axis::decades("bytes", values),
        series,
    };
    page.picture("benchmarks/memory.svg", "Memory per held lease and server", chart.svg()?);
    Ok(())
}

fn growth(page: &mut Page, scale: &Figures) -> Result<()> {
    if scale.growth.is_empty() {
        return Ok(());
    }
    page.subheading("Cost of a pair while others are held");
    page.say(
        "Pairs with 512 in flight, while so many other leases are held that nobody touches; \
         processor time of all of a service's processes per pair. Every number of leases has a \
         service of its own, and they take turns, so that a machine that gets slower does not \
         look like growth. Only Redis and ours: Redlock is three times the first, and ZooKeeper and \
         etcd would take too long to fill.",
    );
    let held_by = |side| scale.growth.iter().filter(move |row| row.side == side);
    let sides: Vec<Side> =
        Side::ALL.into_iter().filter(|side| held_by(*side).next().is_some()).collect();
    let mut held: Vec<u32> = scale.growth.iter().map(|row| row.held).collect();
    held.sort_unstable();
    held.dedup();
    let head: Vec<String> =
        held.iter().map(|held| format!("{} held", count(f64::from(*held)))).collect();
    let mut columns = vec![""];
    columns.extend(head.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = sides
        .iter()
        .map(|side| {
            let cell = |held: &u32| {
                let row = held_by(*side).find(|row| row.held == *held);
                let spread = row.and_then(|row| Spread::of(row.cpu_us.clone()));
                spread.map(|spread| with_range(spread, micros)).unwrap_or_default()
            };
            std::iter::once(side.title().to_owned()).chain(held.iter().map(cell)).collect()
        })
        .collect();
    page.table(&columns, &rows);
    let series: Vec<Series> = sides
        .iter()
        .map(|side| {
            let points =
                held_by(*side).filter_map(|row| Some((f64::from(row.held), median(&row.cpu_us)?)));
            Series { name: side.title().to_owned(), points: points.collect(), look: side.look() }
        })
        .collect();
    let costs = series.iter().flat_map(|series| series.points.iter().map(|(_, y)| *y));
    let chart = Chart {
        title: "Processor time per pair while leases are held".to_owned(),
        y: Axis::from_zero("microseconds", costs.collect::<Vec<_>>()),
        x: Axis::decades("leases held", held.iter().map(|held| f64::from(*held))),
        series,
    };
    page.picture(
        "benchmarks/growth.svg",
        "Processor time per pair while leases are held",
        chart.svg()?,
    );
    Ok(())
}

fn renewed(page: &mut Page, scale: &Figures) {
    let Some(first) = scale.renewed.first() else { return };
    page.subheading("Pairs beside leases that are renewed");
    page.say(&format!(
        "{} leases with a ttl of {} s are held and renewed, each at a third of it, while other clients \
         take and give back {} leases a second. Both are due at fixed times, and the latency of a \
         pair counts from when it was due, so that a stall delays all that were due meanwhile; \
         *alone* is the same without the renewals. Only Redis and ours can do it here: one of \
         ZooKeeper's pings renews a whole session, and etcd takes fewer pairs a second at best.",
        count(f64::from(first.leases)),
        three_digits(first.ttl_ms as f64 / 1e3),
        count(first.pairs_due_per_second),
    ));
    let cells = |latency: &Latency| {
        [latency.p50_us, latency.p99_us, latency.p99_9_us, latency.max_us].map(micros)
    };
    let rows: Vec<Vec<String>> = scale
        .renewed
        .iter()
        .flat_map(|row| {
            let title = row.side.title();
            let none = [String::new(), count(row.pairs_alone_per_second)];
            let rates = [count(row.renewals_per_second), count(row.pairs_per_second)];
            [(format!("{title}, alone"), none, &row.alone), (title.to_owned(), rates, &row.beside)]
                .map(|(title, rates, latency)| {
                    std::iter::once(title).chain(rates).chain(cells(latency)).collect()
                })
        })
        .collect();
    page.table(&["", "renewals/s", "pairs/s", "p50", "p99", "p99.9", "longest"], &rows);
    let failures: u64 = scale.renewed.iter().map(|row| row.failures).sum();
    page.say(&format!("{failures} operations failed."));
}

fn stalls(page: &mut Page, scale: &Figures) {
    let Some(most) = scale.stalls.iter().map(|row| row.leases).max() else { return };
    page.subheading("Stalls");
    page.say(&format!(
        "A cell of ours in which {} leases are taken as fast as they can be, renewed, given back, taken \
         again and left to expire, while a probe takes and gives back a lease at a steady rate at \
         all nodes. A *turn* is what a shard does between two looks at its sockets, the longest \
         of any node since its start as the node itself measured it. Both include what other processes took of the \
         cores, so the same load over few leases comes first.",
        count(f64::from(most)),
    ));
    let rows: Vec<Vec<String>> = scale
        .stalls
        .iter()
        .map(|row| {
            let turn = row.longest_turn_ms.iter().copied().max_by(f64::total_cmp);
            vec![
                format!("{}, {} leases", phase(row.phase), count(f64::from(row.leases))),
                format!("{} s", three_digits(row.seconds)),
                turn.map(|turn| micros(turn * 1e3)).unwrap_or_default(),
                micros(row.probe.p50_us),
                micros(row.probe.p99_9_us),
                micros(row.probe.max_us),
                row.failures.to_string(),
            ]
        })
        .collect();
    let head =
        ["", "took", "longest turn so far", "probe: p50", "p99.9", "longest", "failed probes"];
    page.table(&head, &rows);
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Few => "a load over few",
        Phase::Taking => "taking",
        Phase::Renewing => "renewing",
        Phase::GivingBack => "giving back",
        Phase::TakingAgain => "taking again",
        Phase::Expiring => "expiring",
    }
}

fn failover(page: &mut Page, scale: &Figures) {
    if scale.failover.is_empty() {
        return;
    }
    page.heading("When a member dies");
    page.say(&format!(
        "`kill -9` of a member in the middle of a load of 16 pairs in flight: the leader where \
         there is one, otherwise any. The longest time in which nobody succeeded, beside the \
         longest of an equal load in which nobody died; each the median of its turns, with the \
         least and the greatest where there were several. Nodes of ours have `--max-lease {}`, so that the dead one soon \
         votes again for the next turn, and leases last {} ms; neither shortens the gap, since \
         every pair takes a new name and nobody waits for a lease of the dead.",
        seconds(FAILOVER_MAX_LEASE),
        FAILOVER_TTL.as_millis(),
    ));
    let rows: Vec<Vec<String>> = scale
        .failover
        .iter()
        .map(|row| {
            let clients = match row.clients {
                Clients::All => "clients of all members",
                Clients::OfSurvivor => "clients of a member that lives",
                Clients::OfVictim => "clients of the one that dies",
            };
            let spread = |values: &[f64]| {
                let micros_each = values.iter().map(|millis| millis * 1e3).collect();
                let spread = Spread::of(micros_each);
                spread.map(|spread| with_range(spread, micros)).unwrap_or_default()
            };
            let failures = row.failures.iter().map(|count| *count as f64).collect();
            vec![
                format!("{}, {clients}", row.side.title()),
                spread(&row.gaps_ms),
                spread(&row.quiet_ms),
                Spread::of(failures)
                    .map(|spread| with_range(spread, |count| format!("{count:.0}")))
                    .unwrap_or_default(),
            ]
        })
        .collect();
    page.table(&["", "longest gap", "without a death", "operations that failed"], &rows);
}

fn start(page: &mut Page, scale: &Figures) {
    if scale.start.is_empty() {
        return;
    }
    page.heading("Starts");
    page.say(&format!(
        "From the start of all members with empty folders until clients of each have taken a lease \
         and given it back, and from the restart of one until they have again. A node of ours that \
         was killed serves clients at once, but votes again only after the longest lease there may \
         be, since it may have forgotten one: `--max-lease`, here {}. One that was stopped cleanly \
         left a snapshot and need not wait.",
        seconds(START_MAX_LEASE),
    ));
    let spread = |values: &[f64]| {
        let spread = Spread::of(values.iter().map(|millis| millis * 1e3).collect());
        spread.map(|spread| with_range(spread, micros)).unwrap_or_default()
    };
    let rows: Vec<Vec<String>> = scale
        .start
        .iter()
        .map(|row| {
            let after = match row.after {
                After::Nothing => "a new cell",
                After::Kill => "a member after `kill -9`",
                After::Stop => "a member after a clean stop",
            };
            let held = match row.held {
                0 => String::new(),
                held => format!(", {} leases held", count(f64::from(held))),
            };
            let what = format!("{}, {after}{held}", row.side.title());
            vec![what, spread(&row.serves_ms), spread(&row.votes_ms)]
        })
        .collect();
    page.table(&["", "serves after", "votes after"], &rows);
}

fn neighbour(page: &mut Page, scale: &Figures) {
    if scale.neighbour.is_empty() {
        return;
    }
    page.heading("Beside a busy neighbour");
    page.say(
        "One core is taken by a loop of normal priority that never sleeps. Spinning then costs time \
         that others need, so threads that spin have to notice; the two cells take turns.",
    );
    let rows: Vec<Vec<String>> = scale
        .neighbour
        .iter()
        .map(|row| {
            let rate = |values: &[f64]| {
                let spread = Spread::of(values.to_vec());
                spread.map(|spread| with_range(spread, count)).unwrap_or_default()
            };
            let ratio = beside(&row.spinning, &row.blocking);
            vec![
                row.case.to_string(),
                rate(&row.blocking),
                rate(&row.spinning),
                ratio.map(|ratio| with_range(ratio, three_digits)).unwrap_or_default(),
            ]
        })
        .collect();
    page.table(
        &["", "blocking, per second", "spinning, per second", "spinning beside blocking"],
        &rows,
    );
}

/// As options take it.
fn seconds(span: Duration) -> String {
    format!("{}s", span.as_secs())
}

/// Round by round.
fn beside(one: &[f64], other: &[f64]) -> Option<Spread> {
    Spread::of(one.iter().zip(other).map(|(one, other)| one / other).collect())
}

fn median(values: &[f64]) -> Option<f64> {
    Some(Spread::of(values.to_vec())?.median)
}
