//! What is counted of a load that the product's generator cannot speak: the same rules, for every
//! client in this folder. The time is an argument.

use std::time::Duration;

use hdrhistogram::Histogram;
use paxoslease_load::{Extent, Shares, Workload};

use super::{Load, Loaded};

/// Latencies beyond are counted as this long.
const LATENCY_MAX: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Connects and takes the leases that will be renewed.
    Preparing,
    /// Runs, and nothing counts yet.
    Warming {
        from: Duration,
    },
    /// Everything counts.
    Measuring {
        from: Duration,
    },
    Over,
}

/// A load from its preparation to its end.
#[derive(Debug)]
pub(super) struct Measure {
    extent: Extent,
    warmup: Duration,
    is_handover: bool,
    phase: Phase,
    /// For how long it counted.
    span: Duration,
    begun: u64,
    finished: u64,
    /// Under way, whether they count or not.
    busy: u64,
    operations: u64,
    failures: u64,
    last_error: Option<String>,
    nanos: Histogram<u64>,
    succeeded_at: Duration,
    longest_gap: Duration,
    /// Of the name that goes around, by client.
    grants: Vec<u64>,
    holder: Option<u32>,
    handovers: u64,
}

impl Measure {
    pub(super) fn new(load: &Load) -> Self {
        let nanos = Histogram::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, 3);
        let is_handover = load.workload == Workload::Handover;
        Self {
            extent: load.extent,
            warmup: load.warmup,
            is_handover,
            phase: Phase::Preparing,
            span: Duration::ZERO,
            begun: 0,
            finished: 0,
            busy: 0,
            operations: 0,
            failures: 0,
            last_error: None,
            nanos: nanos.expect("good bounds"),
            succeeded_at: Duration::ZERO,
            longest_gap: Duration::ZERO,
            grants: vec![0; if is_handover { load.in_flight as usize } else { 0 }],
            holder: None,
            handovers: 0,
        }
    }

    /// All is prepared: the warm-up begins.
    pub(super) fn warm_up(&mut self, now: Duration) {
        self.phase = Phase::Warming { from: now };
        self.advance(now);
    }

    /// Whether the end has come.
    pub(super) fn is_over(&mut self, now: Duration) -> bool {
        self.advance(now);
        self.phase == Phase::Over
    }

    /// When time alone changes something.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        match (self.phase, self.extent) {
            (Phase::Warming { from }, _) => Some(from + self.warmup),
            (Phase::Measuring { from }, Extent::Lasting(span)) => Some(from + span),
            _ => None,
        }
    }

    /// Begins an operation, if one may.
    pub(super) fn begin(&mut self, now: Duration) -> bool {
        self.advance(now);
        let may_begin = match (self.phase, self.extent) {
            (Phase::Preparing | Phase::Over, _) => false,
            (Phase::Measuring { .. }, Extent::Count(count)) => self.begun < count,
            (Phase::Measuring { .. } | Phase::Warming { .. }, _) => true,
        };
        if may_begin {
            self.begun += 1;
            self.busy += 1;
        }
        may_begin
    }

    /// One client was granted the name that all want.
    pub(super) fn granted(&mut self, client: u32, now: Duration) {
        if self.counts(now) && self.is_handover {
            self.grants[client as usize] += 1;
            let before = self.holder.replace(client);
            self.handovers += u64::from(before.is_some_and(|before| before != client));
        }
    }

    /// One that took so long did what it should.
    pub(super) fn succeeded(&mut self, took: Duration, now: Duration) {
        if self.counts(now) {
            self.operations += 1;
            self.nanos.saturating_record(took.as_nanos() as u64);
            self.end_gap(now);
        }
        self.finish(now);
    }

    /// One found its name held by another, which is no failure and no success.
    pub(super) fn refused(&mut self, now: Duration) {
        self.finish(now);
    }

    pub(super) fn failed(&mut self, why: &str, now: Duration) {
        if self.counts(now) {
            self.failures += 1;
            self.last_error = Some(why.to_owned());
        }
        self.finish(now);
    }

    pub(super) fn loaded(self) -> Loaded {
        let counted = if self.is_handover { self.handovers } else { self.operations };
        let shares = Shares {
            clients: self.grants.len() as u32,
            handovers: self.handovers,
            max: self.grants.iter().copied().max().unwrap_or(0),
            min: self.grants.iter().copied().min().unwrap_or(0),
        };
        Loaded {
            operations: self.operations,
            per_second: counted as f64 / self.span.as_secs_f64().max(f64::MIN_POSITIVE),
            failures: self.failures,
            last_error: self.last_error,
            latency: self.nanos,
            shares: self.is_handover.then_some(shares),
            longest_gap: self.longest_gap,
        }
    }

    fn counts(&mut self, now: Duration) -> bool {
        self.advance(now);
        matches!(self.phase, Phase::Measuring { .. })
    }

    fn finish(&mut self, now: Duration) {
        self.busy -= 1;
        self.finished += u64::from(self.counts(now));
        if let (Phase::Measuring { from }, true) =
            (self.phase, self.extent == Extent::Count(self.finished))
        {
            self.end(from, now);
        }
    }

    fn advance(&mut self, now: Duration) {
        if let Phase::Warming { from } = self.phase
            && now >= from + self.warmup
        {
            self.begun = self.busy;
            self.succeeded_at = now;
            self.phase = Phase::Measuring { from: now };
        }
        if let (Phase::Measuring { from }, Extent::Lasting(span)) = (self.phase, self.extent)
            && now.saturating_sub(from) >= span
        {
            self.end(from, now);
        }
    }

    fn end(&mut self, from: Duration, now: Duration) {
        self.span = now.saturating_sub(from);
        self.end_gap(now);
        self.phase = Phase::Over;
    }

    fn end_gap(&mut self, now: Duration) {
        self.longest_gap = self.longest_gap.max(now.saturating_sub(self.succeeded_at));
        self.succeeded_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_counts_before_the_warm_up_is_over_nor_after_the_end() {
        let mut measure = Measure::new(&load(Workload::Pairs, Extent::Lasting(20 * MS)));
        assert!(!measure.begin(Duration::ZERO), "it is not prepared");
        measure.warm_up(Duration::ZERO);
        for at in 0..40 {
            if measure.begin(at * MS) {
                measure.succeeded(MS, (at + 1) * MS);
            }
        }
        assert!(measure.is_over(40 * MS));
        let loaded = measure.loaded();
        // Ten milliseconds of warm-up, then those that ended before 30 ms were over.
        assert_eq!(loaded.operations, 20);
        assert_eq!(loaded.latency.len(), 20);
    }

    #[test]
    fn a_count_is_exactly_that_many_whether_they_succeed_or_not() {
        let mut measure = Measure::new(&load(Workload::Pairs, Extent::Count(3)));
        measure.warm_up(Duration::ZERO);
        assert!(measure.begin(9 * MS), "this one still counts when it ends");
        assert!(measure.begin(10 * MS) && measure.begin(10 * MS));
        assert!(!measure.begin(10 * MS));
        measure.succeeded(MS, 11 * MS);
        measure.failed("too bad", 12 * MS);
        assert!(!measure.is_over(12 * MS));
        measure.refused(15 * MS);
        assert!(measure.is_over(15 * MS));
        let loaded = measure.loaded();
        assert_eq!((loaded.operations, loaded.failures), (1, 1));
        assert_eq!(loaded.last_error.as_deref(), Some("too bad"));
        assert_eq!(loaded.longest_gap, 4 * MS);
        assert!((loaded.per_second - 200.0).abs() < 1e-6, "{}", loaded.per_second);
    }

    #[test]
    fn a_name_that_returns_to_its_holder_was_not_handed_over() {
        let mut measure = Measure::new(&load(Workload::Handover, Extent::Lasting(100 * MS)));
        measure.warm_up(Duration::ZERO);
        for client in [0, 0, 1, 0, 0] {
            assert!(measure.begin(20 * MS));
            measure.granted(client, 20 * MS);
            measure.succeeded(MS, 20 * MS);
        }
        let shares = measure.loaded().shares.expect("of a hand-over");
        assert_eq!((shares.handovers, shares.max, shares.min), (2, 4, 0));
    }
}
