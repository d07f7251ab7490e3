//! What many runs took, its quantiles, and how these are shown.

use std::time::Duration;

use paxoslease_bench::page::Page;
use paxoslease_bench::plot::Series;

use crate::worlds::Contestant;

/// How long each run took; `None` for those that did not get there.
pub(crate) struct Sample(Vec<Option<Duration>>);

impl Sample {
    pub(crate) fn new(mut took: Vec<Option<Duration>>) -> Self {
        // Those that never got there took longest.
        took.sort_unstable_by_key(|took| took.unwrap_or(Duration::MAX));
        Self(took)
    }

    /// The smallest that at least so many in a hundred do not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().flatten()
    }

    /// The share of runs for which this is true.
    pub(crate) fn share(&self, is: impl Fn(Option<Duration>) -> bool) -> f64 {
        let count = self.0.iter().filter(|took| is(**took)).count();
        count as f64 / self.0.len() as f64
    }
}

pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Milliseconds with three digits that count, or the words for never.
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

/// By contestant, a sample for each of what is varied.
pub(crate) type Samples<const N: usize, const M: usize> = [[Sample; N]; M];

/// A row for each of what is varied: two percentiles of each contestant, and a share of its runs.
pub(crate) fn table<const N: usize, const M: usize>(
    page: &mut Page,
    (name, varied, labels): (&str, &str, [String; N]),
    (contestants, samples): (&[Contestant; M], &Samples<N, M>),
    (share_name, share): (&str, &dyn Fn(&Sample) -> f64),
) {
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
    page.table(name, &head, &rows.collect::<Vec<_>>());
}

/// Two lines for each contestant: the median and the 99th percentile over what is varied.
pub(crate) fn percentile_lines<const N: usize, const M: usize>(
    varied: [f64; N],
    contestants: &[Contestant; M],
    samples: &Samples<N, M>,
) -> Vec<Series> {
    let mut series = Vec::new();
    for (contestant, of) in contestants.iter().zip(samples) {
        for (percent, what) in [(50, "median"), (99, "99th percentile")] {
            let points = varied.iter().zip(of).filter_map(|(varied, sample)| {
                Some((*varied, millis(sample.percentile(percent)?)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_runs_and_never_counts_as_longest() {
        let millis = |millis| Some(Duration::from_millis(millis));
        let sample = Sample::new(vec![millis(3), None, millis(1), millis(2)]);
        assert_eq!(sample.percentile(50), millis(2));
        assert_eq!(sample.percentile(75), millis(3));
        assert_eq!(sample.percentile(99), None);
        assert!((sample.share(|took| took.is_none()) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn figures_have_three_digits() {
        let shown = |micros| in_millis(Some(Duration::from_micros(micros)));
        assert_eq!(
            [shown(1_234), shown(56_789), shown(1_000_400)],
            ["1.23 ms", "56.8 ms", "1000 ms"]
        );
        assert_eq!(in_millis(None), "never");
    }
}
