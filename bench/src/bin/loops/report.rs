//! The table. Beside each median stands how it compares with our own blocking loop: the median of
//! the ratios within a round, and between which quartiles they lie.

use std::fmt;

use serde_json::{Value, json};

use crate::pair::Sample;
use crate::{LOADS, Loop};

/// All samples, those of one loop and load in the order of their rounds.
#[derive(Default)]
pub(crate) struct Report(Vec<(usize, Loop, Sample)>);

/// What is looked at in a sample.
type Figure = fn(&Sample) -> f64;

const FIGURES: [(&str, Figure); 4] = [
    ("requests/s", |sample| sample.requests_per_second),
    ("p50 us", |sample| sample.p50_micros),
    ("p99 us", |sample| sample.p99_micros),
    ("CPU us per request", |sample| sample.cpu_micros_per_request),
];

/// A median, and the ratios to our own blocking loop: lower quartile, median, upper quartile.
struct Summary {
    median: f64,
    ratios: [f64; 3],
}

impl Report {
    pub(crate) fn add(&mut self, load: usize, kind: Loop, sample: Sample) {
        self.0.push((load, kind, sample));
    }

    fn of(&self, load: usize, kind: Loop, figure: Figure) -> Vec<f64> {
        let wanted = self.0.iter().filter(|(l, k, _)| (*l, *k) == (load, kind));
        wanted.map(|(_, _, sample)| figure(sample)).collect()
    }

    fn summary(&self, load: usize, kind: Loop, figure: Figure) -> Summary {
        let own = self.of(load, Loop::Own, figure);
        let all = self.of(load, kind, figure);
        let ratios: Vec<f64> = all.iter().zip(own).map(|(one, own)| one / own).collect();
        let ratios = [0.25, 0.5, 0.75].map(|share| quantile(&ratios, share));
        Summary { median: quantile(&all, 0.5), ratios }
    }

    pub(crate) fn to_json(&self) -> Value {
        let row = |load: usize, kind: Loop| {
            let mut row = json!({ "in_flight": load, "loop": kind.name() });
            for (name, figure) in FIGURES {
                let Summary { median, ratios } = self.summary(load, kind, figure);
                row[name] = json!({ "median": median, "ratio_quartiles": ratios });
            }
            row
        };
        LOADS.iter().flat_map(|load| Loop::ALL.map(|kind| row(*load, kind))).collect()
    }
}

/// Ready to be pasted into a document.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = FIGURES.map(|(name, _)| name);
        writeln!(f, "| in flight | loop | {} |", names.join(" | "))?;
        writeln!(f, "|---|---|{}", "---|".repeat(FIGURES.len()))?;
        for load in LOADS {
            for kind in Loop::ALL {
                write!(f, "| {load} | {} |", kind.title())?;
                for (_, figure) in FIGURES {
                    let Summary { median, ratios: [low, ratio, high] } =
                        self.summary(load, kind, figure);
                    let decimals = if median < 10.0 { 2 } else { 0 };
                    write!(f, " {median:.decimals$}")?;
                    if kind != Loop::Own {
                        write!(f, " ({ratio:.2}, {low:.2} to {high:.2})")?;
                    }
                    write!(f, " |")?;
                }
                writeln!(f)?;
            }
        }
        let rounds = self.0.len() / (LOADS.len() * Loop::ALL.len());
        writeln!(
            f,
            "\nMedians of {rounds} rounds; in brackets the ratio to our own blocking loop within \
             a round, with its quartiles. Round trips are those of the first answer in each read."
        )
    }
}

/// The nearest value at this share of all, which are in no order.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let at = (values.len() - 1) as f64 * share;
    values[at.round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_compared_with_ours_round_by_round() {
        let mut report = Report::default();
        // The machine slows down from round to round; the ratio does not change.
        for speed in [100.0, 50.0, 10.0] {
            for (kind, factor) in [(Loop::Own, 1.0), (Loop::Tokio, 0.5)] {
                let sample = Sample {
                    requests_per_second: speed * factor,
                    p50_micros: 1.0,
                    p99_micros: 1.0,
                    cpu_micros_per_request: 1.0,
                };
                report.add(64, kind, sample);
            }
        }
        let Summary { median, ratios } =
            report.summary(64, Loop::Tokio, |sample| sample.requests_per_second);
        assert!((median - 25.0).abs() < 1e-9, "{median}");
        assert!(ratios.iter().all(|ratio| (ratio - 0.5).abs() < 1e-9), "{ratios:?}");
    }
}
