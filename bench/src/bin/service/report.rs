//! The table: medians over the rounds, and how each side compares with Redis within a round.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use paxoslease_load::Report as Loaded;
use serde_json::{Value, json};

use crate::cases::{Case, Side};

/// All rounds, by load in the order of the table.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Row>);

#[derive(Debug)]
struct Row {
    title: String,
    side: Side,
    unit: &'static str,
    rounds: Vec<Round>,
}

/// What one turn came to.
#[derive(Clone, Debug)]
struct Round {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    /// Of all processes of the server, per operation.
    cpu_us: f64,
    /// The luckiest client beside the unluckiest.
    shares: Option<f64>,
    errors: BTreeMap<String, u64>,
}

type Figure = fn(&Round) -> f64;

impl Report {
    pub(crate) fn add(&mut self, case: &Case, side: Side, loaded: &Loaded, cpu: Duration) {
        // The first in the order of the names: acquire, else renew.
        let latency = loaded.latency.values().next();
        // The warm-up takes its share too.
        let all = loaded.operations as f64 * (1.0 + case.warmup_share(loaded.seconds));
        let round = Round {
            per_second: loaded.per_second,
            p50_us: latency.map_or(f64::NAN, |latency| latency.p50_us),
            p99_us: latency.map_or(f64::NAN, |latency| latency.p99_us),
            cpu_us: cpu.as_secs_f64() * 1e6 / all,
            shares: loaded.shares.map(|shares| shares.ratio()),
            errors: loaded.errors.clone(),
        };
        let is_same = |row: &&mut Row| row.title == case.title && row.side == side;
        match self.0.iter_mut().find(is_same) {
            Some(row) => row.rounds.push(round),
            None => {
                let title = case.title.clone();
                self.0.push(Row { title, side, unit: case.unit(), rounds: vec![round] });
            }
        }
    }

    /// Rows by load, Redis first.
    fn rows(&self) -> Vec<&Row> {
        let mut titles: Vec<&str> = Vec::new();
        for row in &self.0 {
            if !titles.contains(&row.title.as_str()) {
                titles.push(&row.title);
            }
        }
        let place = |row: &&Row| titles.iter().position(|title| *title == row.title);
        let mut rows: Vec<&Row> = self.0.iter().collect();
        rows.sort_by_key(|row| (place(row), row.side as u8));
        rows
    }

    /// Against Redis within each round: lower quartile, median, upper quartile.
    fn ratios(&self, row: &Row) -> Option<[f64; 3]> {
        let is_redis = |other: &&Row| other.title == row.title && other.side == Side::Redis;
        let redis = self.0.iter().find(is_redis).filter(|_| row.side != Side::Redis)?;
        let pairs = row.rounds.iter().zip(&redis.rounds);
        let ratios: Vec<f64> =
            pairs.map(|(one, redis)| one.per_second / redis.per_second).collect();
        Some([0.25, 0.5, 0.75].map(|share| quantile(&ratios, share)))
    }

    pub(crate) fn to_json(&self) -> Value {
        let row = |row: &Row| {
            let mut errors = BTreeMap::<&str, u64>::new();
            for (kind, count) in row.rounds.iter().flat_map(|round| &round.errors) {
                *errors.entry(kind).or_default() += count;
            }
            json!({
                "load": row.title,
                "side": row.side.title(),
                "unit": row.unit,
                "per_second": row.median(|round| round.per_second),
                "ratio_quartiles": self.ratios(row),
                "p50_us": row.median(|round| round.p50_us),
                "p99_us": row.median(|round| round.p99_us),
                "cpu_us": row.median(|round| round.cpu_us),
                "share_ratio": row.shares(),
                "errors": errors,
            })
        };
        self.rows().into_iter().map(row).collect()
    }
}

impl Row {
    fn median(&self, figure: Figure) -> f64 {
        let all: Vec<f64> = self.rounds.iter().map(figure).collect();
        quantile(&all, 0.5)
    }

    fn shares(&self) -> Option<f64> {
        self.rounds.iter().any(|round| round.shares.is_some()).then(|| {
            let all: Vec<f64> = self.rounds.iter().filter_map(|round| round.shares).collect();
            quantile(&all, 0.5)
        })
    }

    fn errors(&self) -> u64 {
        self.rounds.iter().flat_map(|round| round.errors.values()).sum()
    }
}

/// Ready to be pasted into a document.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| load | server | per second | ratio to Redis | p50 us | p99 us | server CPU us each \
             | max/min share | errors |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for row in self.rows() {
            let ratio = match self.ratios(row) {
                Some([low, ratio, high]) => format!("**{ratio:.2}** ({low:.2} to {high:.2})"),
                None => "1".to_owned(),
            };
            let shares = row.shares().map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            writeln!(
                f,
                "| {} | {} | {:.0} | {ratio} | {:.0} | {:.0} | {:.1} | {shares} | {} |",
                row.title,
                row.side.title(),
                row.median(|round| round.per_second),
                row.median(|round| round.p50_us),
                row.median(|round| round.p99_us),
                row.median(|round| round.cpu_us),
                row.errors(),
            )?;
        }
        let rounds = self.0.first().map_or(0, |row| row.rounds.len());
        writeln!(
            f,
            "\nMedians of {rounds} rounds; the ratio is that within a round, with its quartiles. \
             Latency is that of an acquire, or of a renewal. Redis is polled every millisecond \
             where the cell's clients wait."
        )
    }
}

/// The nearest value at this share of all, which are in no order.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let at = values.len().saturating_sub(1) as f64 * share;
    values.get(at.round_ties_even() as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_compared_with_redis_round_by_round() {
        let row = |side, factor: f64| {
            // The machine slows down from round to round; the ratio does not change.
            let round = |speed: f64| Round {
                per_second: speed * factor,
                p50_us: 1.0,
                p99_us: 1.0,
                cpu_us: 1.0,
                shares: None,
                errors: BTreeMap::from([("BUSY".to_owned(), 2)]),
            };
            let rounds = [100.0, 50.0, 10.0].map(round).to_vec();
            Row { title: "pairs".to_owned(), side, unit: "pairs", rounds }
        };
        let report = Report(vec![row(Side::Spread, 2.0), row(Side::Redis, 1.0)]);
        let rows = report.rows();
        assert_eq!([rows[0].side, rows[1].side], [Side::Redis, Side::Spread]);
        assert_eq!(report.ratios(rows[0]), None);
        assert_eq!(report.ratios(rows[1]), Some([2.0; 3]));
        assert!(report.to_string().contains("| pairs | spread over three | 100 | **2.00** "));
        assert_eq!(report.to_json()[1]["errors"]["BUSY"], 6);
    }
}
