//! The durations of many runs, their quantiles, and how these are shown.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::Series;

use crate::worlds::Contestant;

/// The durations of runs, ascending; `None` for runs without a grant.
pub(crate) struct Sample(Vec<Option<Duration>>);

impl Sample {
    pub(crate) fn new(mut took: Vec<Option<Duration>>) -> Self {
        // Those that never got there took longest.
        took.sort_unstable_by_key(|took| took.unwrap_or(Duration::MAX));
        Self(took)
    }

    /// The percentile by nearest rank.
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().flatten()
    }

    pub(crate) fn share(&self, is: impl Fn(Option<Duration>) -> bool) -> f64 {
        let count = self.0.iter().filter(|took| is(**took)).count();
        count as f64 / self.0.len() as f64
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Milliseconds with three significant digits.
pub(crate) fn in_millis(span: Option<Duration>) -> String {
    let Some(span) = span else { return "never".to_owned() };
    let millis = millis(span);
    match millis {
        0.0..10.0 => format!("{millis:.2} ms"),
        10.0..100.0 => format!("{millis:.1} ms"),
        _ => format!("{millis:.0} ms"),
    }
}

pub(crate) fn in_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A sample per contestant and value of the varied parameter.
pub(crate) type Samples<const N: usize, const M: usize> = [[Sample; N]; M];

/// A table with a row per value of the varied parameter: two percentiles of each contestant, and a
/// share of its runs.
pub(crate) struct Table<'a, const N: usize, const M: usize> {
    pub(crate) name: &'static str,
    pub(crate) varied: &'static str,
    pub(crate) labels: [String; N],
    pub(crate) contestants: &'a [Contestant; M],
    pub(crate) samples: &'a Samples<N, M>,
    pub(crate) share_name: &'static str,
    pub(crate) share: fn(&Sample) -> f64,
}

pub(crate) fn table<const N: usize, const M: usize>(page: &mut Page, table: Table<'_, N, M>) {
    let Table { name, varied, labels, contestants, samples, share_name, share } = table;
    let mut head = vec![varied.to_owned()];
    for what in ["median", "99th percentile", share_name] {
        head.extend(contestants.map(|contestant| format!("{what}, {}", contestant.name())));
    }
    let rows = labels.into_iter().enumerate().map(|(place, label)| {
        let mut row = vec![label];
        for percent in [50, 99] {
            row.extend(samples.each_ref().map(|of| in_millis(of[place].percentile(percent))));
        }
        row.extend(samples.each_ref().map(|of| in_percent(share(&of[place]))));
        row
    });
    page.table(name, &head, rows);
}

/// The median and the 99th percentile of each contestant, by the varied parameter.
pub(crate) fn percentile_lines<F, const N: usize, const M: usize>(
    varied: [f64; N],
    contestants: &[Contestant; M],
    figures: &[[F; N]; M],
    percentile: fn(&F, usize) -> Option<Duration>,
) -> Vec<Series> {
    let mut series = Vec::new();
    for (contestant, of) in contestants.iter().zip(figures) {
        for (percent, what) in [(50, "median"), (99, "99th percentile")] {
            let points = varied.iter().zip(of).filter_map(|(varied, figures)| {
                Some((*varied, millis(percentile(figures, percent)?)))
            });
            series.push(Series {
                name: format!("{}, {what}", contestant.name()),
                points: points.collect(),
                look: contestant.look().dashed_if(percent == 99),
            });
        }
    }
    series
}
