//! The figures as plain data, stored as JSON beside the page. The page is made of nothing else.

use std::time::Duration;

use anyhow::{Context, Result};
use paxoslease_load::Report;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::case::Case;
use crate::machine::Machine;
use crate::scale;
use crate::side::Side;

pub(crate) const QUANTILES: [f64; 9] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999];
/// Significant digits; the others are noise.
const DIGITS: usize = 5;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) method: Method,
    pub(crate) services: Vec<Described>,
    pub(crate) rows: Vec<Row>,
    /// Turns that failed, and why.
    pub(crate) troubles: Vec<String>,
    pub(crate) scale: Option<scale::ScaleFigures>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Method {
    pub(crate) rounds: u32,
    pub(crate) turn_ms: u64,
    pub(crate) warmup_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) side: Side,
    pub(crate) version: String,
    pub(crate) settings: String,
}

/// One case on one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) side: Side,
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) turns: Vec<Turn>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) round: u32,
    pub(crate) per_second: f64,
    /// Of all processes of the service, per operation.
    pub(crate) cpu_us: f64,
    /// Of the load generator, per operation.
    pub(crate) load_cpu_us: f64,
    /// At each of [`QUANTILES`].
    pub(crate) latency_us: Vec<f64>,
    /// How often the clients with the fewest and the most grants had the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shares: Option<[u64; 2]>,
    /// The waits for the name of a hand-over: median, p99, longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits_us: Option<[f64; 3]>,
    pub(crate) failures: u64,
}

impl Turn {
    /// The two durations are the processor time of the service and of the load.
    pub(crate) fn new(round: u32, loaded: &Report, [service, load]: [Duration; 2]) -> Self {
        let operations = loaded.operations.max(1) as f64;
        let each = |cpu: Duration| rounded(cpu.as_secs_f64() * 1e6 / operations);
        let at = |quantile| rounded(loaded.whole_nanos.value_at_quantile(quantile) as f64 / 1e3);
        let waits = loaded.shares.zip(loaded.latency.get("acquire"));
        let waits = waits.map(|(shares, wait)| [wait.p50_us, wait.p99_us, shares.longest_wait_us]);
        Self {
            round,
            per_second: rounded(loaded.per_second),
            cpu_us: each(service),
            load_cpu_us: each(load),
            latency_us: QUANTILES.map(at).to_vec(),
            shares: loaded.shares.map(|shares| [shares.min, shares.max]),
            waits_us: waits.map(|waits| waits.map(rounded)),
            failures: loaded.failures(),
        }
    }
}

impl Figures {
    pub(crate) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("not the figures of this program")
    }

    /// JSON with one line per row.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(in_lines(&serde_json::to_value(self)?) + "\n")
    }

    pub(crate) fn add(&mut self, side: Side, case: Case, turn: Turn) {
        match self.rows.iter_mut().find(|row| (row.side, row.case) == (side, case)) {
            Some(row) => row.turns.push(turn),
            None => self.rows.push(Row { side, case, turns: vec![turn] }),
        }
    }

    pub(crate) fn row(&self, side: Side, case: Case) -> Option<&Row> {
        self.rows.iter().find(|row| (row.side, row.case) == (side, case))
    }

    /// The measured sides, in the order of the tables, without those that have their own table.
    pub(crate) fn sides(&self) -> Vec<Side> {
        let sides = Side::all().filter(|side| !side.is_secured());
        sides.filter(|side| self.rows.iter().any(|row| row.side == *side)).collect()
    }

    /// The ratio of two rows, computed within each round.
    pub(crate) fn ratio(
        &self,
        one: (Side, Case),
        other: (Side, Case),
        figure: impl Fn(&Turn) -> f64,
    ) -> Option<Spread> {
        let (one, other) = (self.row(one.0, one.1)?, self.row(other.0, other.1)?);
        let ratios = one.turns.iter().filter_map(|turn| {
            let same_round = other.turns.iter().find(|other| other.round == turn.round)?;
            Some(figure(turn) / figure(same_round))
        });
        Spread::of(ratios.collect())
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (&Row, u64)> {
        let failures = |row: &Row| row.turns.iter().map(|turn| turn.failures).sum::<u64>();
        self.rows.iter().map(move |row| (row, failures(row))).filter(|(_, count)| *count > 0)
    }
}

impl Row {
    pub(crate) fn spread(&self, figure: impl Fn(&Turn) -> f64) -> Option<Spread> {
        Spread::of(self.turns.iter().map(figure).collect())
    }

    pub(crate) fn median(&self, figure: impl Fn(&Turn) -> f64) -> f64 {
        self.spread(figure).map_or(f64::NAN, |spread| spread.median)
    }

    /// The median ratio of the most grants of a client to the fewest.
    pub(crate) fn unevenness(&self) -> Option<f64> {
        let ratios = self.turns.iter().filter_map(|turn| turn.shares);
        let ratios = ratios.map(|[min, max]| max as f64 / min as f64);
        Spread::of(ratios.collect()).map(|spread| spread.median)
    }

    /// The medians of the median, the p99 and the longest wait.
    pub(crate) fn waits_us(&self) -> Option<[f64; 3]> {
        self.turns.iter().all(|turn| turn.waits_us.is_some()).then(|| {
            std::array::from_fn(|at| {
                self.median(|turn| turn.waits_us.map_or(f64::NAN, |waits| waits[at]))
            })
        })
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { low, median, high })
    }
}

/// Puts each field of nested objects, and each item of their lists, on its own line.
fn in_lines(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(key, value)| format!("\"{key}\": {}", in_lines(value)));
            format!("{{\n{}\n}}", fields.collect::<Vec<_>>().join(",\n"))
        }
        Value::Array(items) if !items.is_empty() => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            format!("[\n{}\n]", items.join(",\n"))
        }
        other => other.to_string(),
    }
}

/// Rounds to [`DIGITS`] significant digits.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}
