//! Keeps the node's metrics, so that a benchmark can ask for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};

/// Every counter of this process, by its name and labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<Mutex<BTreeMap<Key, Arc<AtomicU64>>>>);

impl Counters {
    /// From now on the node's counters are kept here.
    pub(crate) fn install() -> Result<Self> {
        let counters = Self::default();
        set_global_recorder(counters.clone())?;
        Ok(counters)
    }

    /// The sum over all counters of this name that have this label, if one is asked for.
    pub(crate) fn sum(&self, name: &str, label: Option<(&str, &str)>) -> u64 {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = |key: &Key| {
            let mut labels = key.labels().map(|label| (label.key(), label.value()));
            key.name() == name && label.is_none_or(|label| labels.any(|own| own == label))
        };
        let of_name = counters.iter().filter(|(key, _)| asked(key));
        of_name.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(Arc::clone(counters.entry(key.clone()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
