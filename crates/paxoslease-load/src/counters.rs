//! Counters and latencies of the measured time. Only the first error of a kind allocates.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::report::{Latency, Shares};
use crate::resp::{first_word, text_of};

/// The bound of kinds of errors; further kinds count as `other`.
const KINDS_MAX: usize = 32;
/// Longer latencies count as this.
const LATENCY_MAX: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
}

impl Kind {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Acquire, "acquire"), (Self::Renew, "renew"), (Self::Release, "release")];
}

#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) operations: u64,
    /// Successes and failures.
    pub(crate) finished: u64,
    pub(crate) held: u64,
    pub(crate) handovers: u64,
    pub(crate) last_error: String,
    errors: Vec<(String, u64)>,
    nanos: [Histogram<u64>; 3],
    /// Of whole operations, from their due time.
    pub(crate) whole_nanos: Histogram<u64>,
    /// The last success, or the begin of the measurement.
    succeeded_at: Duration,
    pub(crate) longest_gap: Duration,
    /// The longest wait for the hand-over name that did not end during the measurement.
    pub(crate) unended_wait: Duration,
    /// Of the hand-over name, by client.
    grants: Vec<u64>,
    holder: Option<u32>,
}

impl Counters {
    pub(crate) fn new(clients: u32) -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, 3).expect("good bounds")
        };
        Self {
            operations: 0,
            finished: 0,
            held: 0,
            handovers: 0,
            last_error: String::new(),
            errors: Vec::new(),
            nanos: std::array::from_fn(|_| histogram()),
            whole_nanos: histogram(),
            succeeded_at: Duration::ZERO,
            longest_gap: Duration::ZERO,
            unended_wait: Duration::ZERO,
            grants: vec![0; clients as usize],
            holder: None,
        }
    }

    pub(crate) fn time(&mut self, kind: Kind, took: Duration) {
        self.nanos[kind as usize].saturating_record(took.as_nanos() as u64);
    }

    pub(crate) fn begin(&mut self, now: Duration) {
        self.succeeded_at = now;
    }

    pub(crate) fn succeeded(&mut self, now: Duration, took: Duration) {
        self.operations += 1;
        self.whole_nanos.saturating_record(took.as_nanos() as u64);
        self.end_gap(now);
    }

    /// Ends the time without a success, by a success or the end of the load.
    pub(crate) fn end_gap(&mut self, now: Duration) {
        self.longest_gap = self.longest_gap.max(now.saturating_sub(self.succeeded_at));
        self.succeeded_at = now;
    }

    pub(crate) fn grant(&mut self, client: u32) {
        self.grants[client as usize] += 1;
        let before = self.holder.replace(client);
        self.handovers += u64::from(before.is_some_and(|before| before != client));
    }

    pub(crate) fn error(&mut self, text: &[u8]) {
        let place =
            |kind: &[u8]| self.errors.iter().position(|(known, _)| known.as_bytes() == kind);
        let kind = first_word(text);
        let is_over_bound = self.errors.len() >= KINDS_MAX && place(kind).is_none();
        let kind = if is_over_bound { b"other" } else { kind };
        let place = place(kind).unwrap_or_else(|| {
            self.errors.push((text_of(kind), 0));
            self.last_error = text_of(text);
            self.errors.len() - 1
        });
        self.errors[place].1 += 1;
    }

    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.iter().cloned().collect()
    }

    pub(crate) fn latency(&self) -> BTreeMap<&'static str, Latency> {
        let timed = Kind::ALL.iter().map(|(kind, name)| (*name, &self.nanos[*kind as usize]));
        timed
            .filter(|(_, nanos)| !nanos.is_empty())
            .map(|(name, nanos)| (name, Latency::of(nanos)))
            .collect()
    }

    pub(crate) fn shares(&self) -> Shares {
        let ended_nanos = self.nanos[Kind::Acquire as usize].max();
        let longest_nanos = ended_nanos.max(self.unended_wait.as_nanos() as u64);
        Shares {
            clients: self.grants.len() as u32,
            handovers: self.handovers,
            max: self.grants.iter().copied().max().unwrap_or(0),
            min: self.grants.iter().copied().min().unwrap_or(0),
            longest_wait_us: longest_nanos as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word_and_kinds_are_bounded() {
        let mut counters = Counters::new(1);
        for text in ["NOQUORUM a", "NOQUORUM b", "BUSY"] {
            counters.error(text.as_bytes());
        }
        let errors = counters.errors();
        assert_eq!(errors.get("NOQUORUM"), Some(&2));
        assert_eq!(errors.get("BUSY"), Some(&1));
        for kind in 0..1000 {
            counters.error(format!("E{kind} x").as_bytes());
        }
        assert_eq!(counters.errors().len(), KINDS_MAX + 1);
        assert_eq!(counters.errors().values().sum::<u64>(), 1003);
    }
}
