//! The metrics of one node, and their text for Prometheus.
//!
//! Each node has its own [`Metrics`], so that several nodes of one process do not mix theirs.
//! Counters are those of the exporter. Histograms are not, because the exporter keeps every sample
//! until it renders, and a node decides hundreds of thousands of rounds a second. Gauges are not,
//! because the exporter never drops one: here, a gauge that is not a number is not shown.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder, SharedString,
    Unit,
};
use metrics_exporter_prometheus::formatting::{
    sanitize_label_key, sanitize_label_value, write_help_line, write_type_line,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

/// Upper bounds of the buckets of every histogram in seconds, from a round between processes of one
/// machine to the default request timeout.
const BOUNDS: [f64; 15] =
    [50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1.0, 2.0];

/// Kind, name and meaning of all metrics of a daemon, one per line.
const DESCRIPTIONS: &str = include_str!("metrics.txt");

fn descriptions() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    DESCRIPTIONS.lines().map(|line| {
        let (kind, rest) = line.split_once(' ').expect("a kind and a name");
        let (name, meaning) = rest.split_once(' ').expect("a name and a meaning");
        (kind, name, meaning)
    })
}

/// The metrics of one node. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    records: Arc<Records>,
}

impl Metrics {
    /// Without any values yet.
    #[must_use]
    pub fn new() -> Self {
        let records = Records {
            counters: PrometheusBuilder::new().build_recorder(),
            gauges: Mutex::default(),
            histograms: Mutex::default(),
        };
        for (_, name, meaning) in descriptions().filter(|(kind, ..)| *kind == "counter") {
            records.counters.describe_counter(name.into(), None, meaning.into());
        }
        Self { records: Arc::new(records) }
    }

    /// For [`paxoslease_node::front::Service`], and everything else that counts for that node.
    #[must_use]
    pub fn recorder(&self) -> Arc<dyn Recorder + Send + Sync> {
        Arc::clone(&self.records) as _
    }

    /// The metrics in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.records.counters.handle().render();
        self.records.render_gauges(&mut text);
        self.records.render_histograms(&mut text);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// By name, then by labels as they are written, each followed by a comma.
type Family<T> = Mutex<BTreeMap<String, BTreeMap<String, Arc<T>>>>;

struct Records {
    counters: PrometheusRecorder,
    /// The bits of floating-point numbers.
    gauges: Family<AtomicU64>,
    histograms: Family<Buckets>,
}

impl Records {
    fn render_gauges(&self, text: &mut String) {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, by_labels) in gauges.iter() {
            let value = |gauge: &AtomicU64| f64::from_bits(gauge.load(Ordering::Relaxed));
            let values = by_labels.iter().map(|(labels, gauge)| (labels, value(gauge)));
            let shown: Vec<_> = values.filter(|(_, value)| !value.is_nan()).collect();
            if shown.is_empty() {
                continue;
            }
            write_head(text, name, "gauge");
            for (labels, value) in shown {
                writeln!(text, "{name}{} {value}", in_braces(labels)).expect("a string");
            }
            text.push('\n');
        }
    }

    fn render_histograms(&self, text: &mut String) {
        let histograms = self.histograms.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, by_labels) in histograms.iter() {
            write_head(text, name, "histogram");
            for (labels, buckets) in by_labels {
                buckets.render(text, name, labels);
            }
            text.push('\n');
        }
    }
}

fn write_head(text: &mut String, name: &str, kind: &str) {
    let described = descriptions().find(|(_, described, _)| *described == name);
    if let Some((_, _, meaning)) = described {
        write_help_line(text, name, None, None, meaning);
    }
    write_type_line(text, name, None, None, kind);
}

/// Labels as they stand behind a name.
fn in_braces(labels: &str) -> String {
    labels.strip_suffix(',').map_or_else(String::new, |labels| format!("{{{labels}}}"))
}

fn labels_of(key: &Key) -> String {
    let label = |label: &Label| {
        let key = sanitize_label_key(label.key());
        let value = sanitize_label_value(label.value());
        format!("{key}=\"{value}\",")
    };
    key.labels().map(label).collect()
}

/// The member of a family with these labels, which is new if there was none.
fn registered<T: Default>(family: &Family<T>, key: &Key) -> Arc<T> {
    let mut family = family.lock().unwrap_or_else(PoisonError::into_inner);
    let by_labels = family.entry(key.name().to_owned()).or_default();
    Arc::clone(by_labels.entry(labels_of(key)).or_default())
}

impl Recorder for Records {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.counters.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.counters.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(registered(&self.gauges, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(registered(&self.histograms, key))
    }
}

/// The number of samples between two bounds each, and their sum.
#[derive(Default)]
struct Buckets {
    /// The last one is for samples above all bounds.
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// The bits of a floating-point number.
    sum: AtomicU64,
}

impl Buckets {
    fn render(&self, text: &mut String, name: &str, labels: &str) {
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut total = 0;
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            writeln!(text, "{name}_bucket{{{labels}le=\"{bound}\"}} {total}").expect("a string");
        }
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        let labels = in_braces(labels);
        writeln!(text, "{name}_sum{labels} {sum}").expect("a string");
        writeln!(text, "{name}_count{labels} {total}").expect("a string");
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let place = BOUNDS.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(count as u64, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + value * count as f64).to_bits());
        let _always = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::metrics::{counter, gauge, histogram, with_local_recorder};

    #[test]
    fn a_bucket_counts_samples_up_to_its_bound() {
        let metrics = Metrics::new();
        with_local_recorder(&*metrics.recorder(), || {
            histogram!("paxoslease_round_seconds").record_many(50e-6, 3);
            histogram!("paxoslease_round_seconds").record(0.3);
            histogram!("paxoslease_round_seconds").record(7.0);
            histogram!("other", "say" => "\"hi\"").record(1.0);
        });
        let text = metrics.render();
        for line in [
            "# HELP paxoslease_round_seconds From the start of a round to its majority.",
            "# TYPE paxoslease_round_seconds histogram",
            "paxoslease_round_seconds_bucket{le=\"0.00005\"} 3",
            "paxoslease_round_seconds_bucket{le=\"0.2\"} 3",
            "paxoslease_round_seconds_bucket{le=\"0.5\"} 4",
            "paxoslease_round_seconds_bucket{le=\"+Inf\"} 5",
            "paxoslease_round_seconds_sum 7.30015",
            "paxoslease_round_seconds_count 5",
            "other_count{say=\"\\\"hi\\\"\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in:\n{text}");
        }
    }

    #[test]
    fn a_gauge_without_a_value_is_not_shown() {
        let metrics = Metrics::new();
        let set = |peer: &'static str, value| {
            with_local_recorder(&*metrics.recorder(), || {
                gauge!("paxoslease_peer_up", "peer" => peer).set(value);
            });
        };
        set("2", 1.0);
        set("3", 0.0);
        let text = metrics.render();
        assert!(text.contains("# TYPE paxoslease_peer_up gauge\n"), "{text}");
        assert!(text.contains("\npaxoslease_peer_up{peer=\"2\"} 1\n"), "{text}");
        assert!(text.contains("\npaxoslease_peer_up{peer=\"3\"} 0\n"), "{text}");
        set("3", f64::NAN);
        let text = metrics.render();
        assert!(text.contains("peer=\"2\"") && !text.contains("peer=\"3\""), "{text}");
        set("2", f64::NAN);
        assert!(!metrics.render().contains("paxoslease_peer_up"));
    }

    #[test]
    fn every_metric_is_documented() {
        let page = include_str!("../../../docs/operating.md");
        for (_, name, _) in descriptions() {
            assert!(page.contains(&format!("`{name}")), "{name}");
        }
    }

    #[test]
    fn two_nodes_do_not_mix_their_metrics() {
        let (one, two) = (Metrics::new(), Metrics::new());
        with_local_recorder(&*one.recorder(), || {
            counter!("paxoslease_releases_total").increment(2);
            gauge!("paxoslease_leases").set(5.0);
        });
        assert!(one.render().contains("paxoslease_releases_total 2"));
        assert!(one.render().contains("# HELP paxoslease_leases "));
        assert!(!two.render().contains("paxoslease_releases_total 2"));
    }
}
