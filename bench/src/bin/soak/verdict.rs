//! Whether anything grew: compares the last quarter of a run with the first. Leaks may be slow, so
//! it also looks at the slope of the allocated memory over all minutes.
//!
//! It uses medians, because a shared machine has bad minutes, and leaves out the first minute, in
//! which a node allocates its buffers.

use crate::minute::{Minute, Node};

/// The name of a figure, and how to read it.
type Figure<T, N> = (&'static str, fn(&T) -> N);

/// The fewest minutes whose quarters can be compared.
const MINUTES_MIN: usize = 9;
const MIB: f64 = (1 << 20) as f64;
/// Bytes per minute times this are MiB per hour.
const HOUR: f64 = 60.0 / MIB;
/// Memory may grow by this factor and this many MiB, for the allocator itself.
const MEMORY_RATIO: f64 = 1.02;
const MEMORY_SPARE: f64 = 0.25;
/// Latency may grow by this factor and this many microseconds.
const LATENCY_RATIO: f64 = 1.5;
const LATENCY_SPARE: f64 = 100.0;

/// What failed and what grew, one sentence each.
pub(crate) fn of(minutes: &[Minute]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (minute, place) in minutes.iter().zip(1..).filter(|(minute, _)| minute.failures > 0) {
        let error = minute.last_error.as_deref().unwrap_or("never answered");
        complaints.push(format!("{} failures in minute {place}: {error}", minute.failures));
    }
    if minutes.len() < MINUTES_MIN {
        return complaints;
    }
    let settled = &minutes[1..];
    let quarter = settled.len() / 4;
    let (first, last) = (&settled[..quarter], &settled[settled.len() - quarter..]);
    // The medians of both quarters, if the second is greater by this factor and this much.
    let grown = |figure: &dyn Fn(&Minute) -> f64, ratio: f64, spare: f64| {
        let (before, after) = (median(first, figure), median(last, figure));
        (after > before * ratio + spare).then_some((before, after))
    };
    for (place, node) in (1..=settled[0].nodes.len()).zip(0..) {
        let growth = growth(settled, node);
        if growth * settled.len() as f64 > MIB {
            complaints.push(format!("node {place} grows by {:.2} MiB an hour", growth * HOUR));
        }
        let memory: [Figure<Node, u64>; 2] =
            [("resident", |node| node.rss), ("allocated", |node| node.allocated)];
        for (what, bytes) in memory {
            let mib = |minute: &Minute| bytes(&minute.nodes[node]) as f64 / MIB;
            if let Some((before, after)) = grown(&mib, MEMORY_RATIO, MEMORY_SPARE) {
                complaints.push(format!("node {place}: {before:.2} MiB {what} became {after:.2}"));
            }
        }
        let files = |minute: &Minute| minute.nodes[node].files as f64;
        if let Some((before, after)) = grown(&files, 1.0, 0.0) {
            complaints.push(format!("node {place}: {before} open files became {after}"));
        }
    }
    let latencies: [Figure<Minute, f64>; 4] = [
        ("pairs, p50", |minute| minute.pairs.p50_us),
        ("pairs, p99", |minute| minute.pairs.p99_us),
        ("renewals, p50", |minute| minute.renewals.p50_us),
        ("renewals, p99", |minute| minute.renewals.p99_us),
    ];
    for (what, figure) in latencies {
        if let Some((before, after)) = grown(&figure, LATENCY_RATIO, LATENCY_SPARE) {
            complaints.push(format!("{what}: {before:.0} us became {after:.0}"));
        }
    }
    complaints
}

/// The sums of a run, its growth, and the complaints.
pub(crate) fn text(minutes: &[Minute], complaints: &[String]) -> String {
    let sum = |figure: fn(&Minute) -> u64| minutes.iter().map(figure).sum::<u64>();
    let nodes = minutes.first().map_or(0, |minute| minute.nodes.len());
    let hourly = (0..nodes).map(|node| growth(&minutes[1.min(minutes.len())..], node) * HOUR);
    let hourly: Vec<String> = hourly.map(|mib| format!("{mib:+.2}")).collect();
    let mut text = format!(
        "{} operations, {} failures; {} replies over HTTP, {} changes sent to watches\n\
         allocated memory grows by {} MiB an hour after the first minute\n",
        sum(|minute| minute.pairs.count + minute.renewals.count),
        sum(|minute| minute.failures),
        sum(|minute| minute.http.answered),
        sum(|minute| minute.http.changes),
        hourly.join(", "),
    );
    for complaint in complaints {
        text += &format!("NOT FLAT: {complaint}\n");
    }
    if complaints.is_empty() && minutes.len() < MINUTES_MIN {
        text += &format!("Nothing failed. Growth is visible only after {MINUTES_MIN} minutes.\n");
    } else if complaints.is_empty() {
        text += "Everything stayed flat.\n";
    }
    text
}

/// Bytes per minute: the median of the slopes between any two minutes (Theil and Sen). A leak tilts
/// all slopes; a buffer that grows once tilts only those across that minute.
fn growth(minutes: &[Minute], node: usize) -> f64 {
    let bytes: Vec<f64> =
        minutes.iter().map(|minute| minute.nodes[node].allocated as f64).collect();
    let slopes = (1..bytes.len()).flat_map(|to| {
        let slope = |from: usize| (bytes[to] - bytes[from]) / (to - from) as f64;
        (0..to).map(slope).collect::<Vec<_>>()
    });
    let slopes: Vec<f64> = slopes.collect();
    if slopes.is_empty() { 0.0 } else { middle(slopes) }
}

fn median(minutes: &[Minute], figure: impl Fn(&Minute) -> f64) -> f64 {
    middle(minutes.iter().map(figure).collect())
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use paxoslease_load::Latency;

    use crate::http_clients::HttpCounts;

    /// Equal minutes, changed by `change`, which gets the number of each.
    fn run(minutes: u32, change: impl Fn(u32, &mut Minute)) -> Vec<Minute> {
        let (p50_us, p90_us, p99_us) = (200.0, 500.0, 900.0);
        let latency = Latency { count: 1, p50_us, p90_us, p99_us, p99_9_us: 1e3, max_us: 1e3 };
        let steady = Minute {
            pairs: latency,
            renewals: latency,
            http: HttpCounts { answered: 12, changes: 24 },
            failures: 0,
            last_error: None,
            nodes: vec![Node { rss: 110 << 20, allocated: 100 << 20, files: 20, cores: 0.5 }; 3],
        };
        let mut run = vec![steady; minutes as usize];
        for (number, minute) in (0..).zip(&mut run) {
            change(number, minute);
        }
        run
    }

    /// Minutes, what changes in each, and the complaints.
    type Case = (u32, fn(u32, &mut Minute), &'static [&'static str]);

    #[test]
    fn growth_is_seen_and_noise_is_not() {
        let flat: fn(u32, &mut Minute) = |_, _| {};
        let cases: [Case; 7] = [
            (60, flat, &[]),
            (60, |number, minute| minute.nodes[0].allocated -= u64::from(number == 0) << 26, &[]),
            (
                60,
                |number, minute| minute.nodes[1].allocated += u64::from(number) << 15,
                &["node 2 grows by 1.88 MiB an hour"],
            ),
            (60, |number, minute| minute.nodes[1].allocated += u64::from(number % 2) << 20, &[]),
            (
                60,
                |number, minute| minute.renewals.p99_us *= if number > 40 { 2.0 } else { 1.0 },
                &["renewals, p99: 900 us became 1800"],
            ),
            (60, |number, minute| minute.pairs.p99_us *= if number == 59 { 9.0 } else { 1.0 }, &[]),
            // A failure is reported also in a short run.
            (
                2,
                |number, minute| minute.failures = u64::from(number),
                &["1 failures in minute 2: never answered"],
            ),
        ];
        for (minutes, change, complaints) in cases {
            assert_eq!(of(&run(minutes, change)), complaints);
        }
    }
}
