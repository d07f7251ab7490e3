//! Whether anything grew: the last quarter of a run held against the first, and, as leaks may be
//! slow, the slope of what nodes allocated over all minutes.
//!
//! Medians, because a machine that others use has bad minutes. The first minute is left out: a
//! node that starts has yet to make its buffers.

use crate::minute::{Minute, Node, mib};

/// As many minutes as make quarters worth comparing.
pub(crate) const MINUTES_MIN: usize = 9;
/// By so much memory may seem to grow over a run, however long it is.
const GROWTH_SPARE: f64 = (1 << 20) as f64;
/// Memory may be this many times what it was, and this many bytes more: the allocator's own pieces.
const MEMORY_RATIO: f64 = 1.02;
const MEMORY_SPARE: f64 = (256 << 10) as f64;
/// Latency may be this many times what it was, and this many microseconds more.
const LATENCY_RATIO: f64 = 1.5;
const LATENCY_SPARE: f64 = 100.0;

/// What was not as it should be, for people.
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
    for node in 0..settled[0].nodes.len() {
        let growth = growth(settled, node);
        if growth * settled.len() as f64 > GROWTH_SPARE {
            let hourly = mib(growth * 60.0);
            complaints.push(format!("node {} grows by {hourly:.2} MiB an hour", node + 1));
        }
        type Memory = fn(&Node) -> u64;
        let memory: [(&str, Memory); 2] =
            [("resident", |node| node.rss), ("allocated", |node| node.allocated)];
        for (what, figure) in memory {
            let bytes = |minute: &Minute| figure(&minute.nodes[node]) as f64;
            let (before, after) = (median(first, bytes), median(last, bytes));
            if after > before * MEMORY_RATIO + MEMORY_SPARE {
                let (before, after) = (mib(before), mib(after));
                let node = node + 1;
                complaints.push(format!("node {node}: {before:.2} MiB {what} became {after:.2}"));
            }
        }
        let files = |minute: &Minute| minute.nodes[node].files as f64;
        let (before, after) = (median(first, files), median(last, files));
        if after > before {
            complaints.push(format!("node {}: {before} open files became {after}", node + 1));
        }
    }
    type Figure = fn(&Minute) -> f64;
    let latencies: [(&str, Figure); 4] = [
        ("pairs, p50", |minute| minute.pairs.p50),
        ("pairs, p99", |minute| minute.pairs.p99),
        ("renewals, p50", |minute| minute.renewals.p50),
        ("renewals, p99", |minute| minute.renewals.p99),
    ];
    for (what, figure) in latencies {
        let (before, after) = (median(first, figure), median(last, figure));
        if after > before * LATENCY_RATIO + LATENCY_SPARE {
            complaints.push(format!("{what}: {before:.0} us became {after:.0}"));
        }
    }
    complaints
}

/// By how many MiB a node would have grown in an hour.
pub(crate) fn hourly_growth_mib(minutes: &[Minute], node: usize) -> f64 {
    mib(growth(&minutes[1.min(minutes.len())..], node) * 60.0)
}

/// Bytes a minute: the median of the slopes between any two minutes (Theil and Sen). A leak tilts
/// all of them; a buffer that had to grow once, in a bad minute, only those across that minute.
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
    use crate::minute::Latency;
    use crate::visitors::Visits;

    /// The same for as long, but for what is done to each with its number.
    fn run(minutes: u32, change: impl Fn(u32, &mut Minute)) -> Vec<Minute> {
        let latency = Latency { operations: 1, p50: 200.0, p99: 900.0 };
        let steady = Minute {
            pairs: latency,
            renewals: latency,
            visits: Visits { answered: 12, told: 24 },
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

    #[test]
    fn what_stays_the_same_is_flat_and_so_is_what_grows_at_the_start_only() {
        assert_eq!(of(&run(60, |_, _| {})), [""; 0]);
        let warm =
            run(60, |number, minute| minute.nodes[0].allocated -= u64::from(number == 0) << 26);
        assert_eq!(of(&warm), [""; 0]);
    }

    #[test]
    fn a_slow_leak_of_memory_is_seen_and_noise_is_not() {
        let leaky = run(60, |number, minute| minute.nodes[1].allocated += u64::from(number) << 15);
        assert_eq!(of(&leaky), ["node 2 grows by 1.88 MiB an hour"]);
        let noisy =
            run(60, |number, minute| minute.nodes[1].allocated += u64::from(number % 2) << 20);
        assert_eq!(of(&noisy), [""; 0]);
    }

    #[test]
    fn a_step_is_seen_also_of_memory_that_was_not_allocated() {
        let step =
            run(60, |number, minute| minute.nodes[1].allocated += u64::from(number > 40) << 22);
        assert_eq!(of(&step), ["node 2: 100.00 MiB allocated became 104.00"]);
        let step = run(60, |number, minute| minute.nodes[0].rss += u64::from(number > 40) << 22);
        assert_eq!(of(&step), ["node 1: 110.00 MiB resident became 114.00"]);
        let small = run(60, |number, minute| minute.nodes[0].rss += u64::from(number > 40) << 20);
        assert_eq!(of(&small), [""; 0]);
    }

    #[test]
    fn a_leak_of_one_file_is_seen() {
        let leaky = run(60, |number, minute| minute.nodes[2].files += usize::from(number > 30));
        assert_eq!(of(&leaky), ["node 3: 20 open files became 21"]);
    }

    #[test]
    fn latency_that_doubles_is_seen_and_one_bad_minute_is_not() {
        let slower = run(60, |number, minute| {
            minute.renewals.p99 *= if number > 40 { 2.0 } else { 1.0 };
        });
        assert_eq!(of(&slower), ["renewals, p99: 900 us became 1800"]);
        let bad =
            run(60, |number, minute| minute.pairs.p99 *= if number == 59 { 9.0 } else { 1.0 });
        assert_eq!(of(&bad), [""; 0]);
    }

    #[test]
    fn any_failure_is_told_also_in_a_short_run() {
        let failing = run(2, |number, minute| minute.failures = u64::from(number));
        assert_eq!(of(&failing), ["1 failures in minute 2: never answered"]);
    }
}
