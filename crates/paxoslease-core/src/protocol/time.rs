//! Instants on one node's clock, ttls in milliseconds, and the bound on the drift between clocks.
//!
//! Owns every formula of protocol section 5 (T1 to T4). Deliberately lacks a way to read a clock:
//! `now` is always an argument. Instants of two nodes are never compared.

use core::fmt;
use core::time::Duration;

use crate::rules::{Rule, Rules};

/// A reading of one node's monotonic clock, in nanoseconds since an origin of that clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// Later than any reading of a real clock.
    pub const MAX: Self = Self(u64::MAX);

    /// From nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// In nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant plus a span; saturates, so that a huge span means "never".
    #[must_use]
    pub const fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(span)))
    }

    /// The span since `earlier`; zero if `earlier` is not earlier, so nothing wraps (T4).
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

const fn saturating_nanos(span: Duration) -> u64 {
    let nanos = span.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

/// How long a lease lasts: at least 1 ms, in whole milliseconds. The cell sets the bound M.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// The shortest ttl that a client may ask for.
    pub const MIN: Self = Self(50);
    /// The longest ttl, about 49 days; a bound on M.
    pub const MAX: Self = Self(u32::MAX);

    /// From milliseconds; `None` for zero.
    #[must_use]
    pub const fn from_millis(millis: u32) -> Option<Self> {
        if millis == 0 { None } else { Some(Self(millis)) }
    }

    /// From a span, rounded up, so that no lease is silently shortened. `None` for zero and for
    /// spans above [`Self::MAX`].
    #[must_use]
    pub fn from_duration(span: Duration) -> Option<Self> {
        let millis = u64::from(span.subsec_nanos().div_ceil(1_000_000));
        let millis = span.as_secs().checked_mul(1000)?.checked_add(millis)?;
        u32::try_from(millis).ok().and_then(Self::from_millis)
    }

    /// In milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u32 {
        self.0
    }

    /// As a span.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_duration())
    }
}

/// What a cell assumes of its clocks: every rate is within `1 ± ppm/10^6` of real time, and every
/// reading is at most `granularity` old.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Drift {
    ppm: u32,
    granularity: Duration,
    rules: Rules,
}

impl Drift {
    /// The largest rate error that a cell may assume: one part in ten.
    pub const PPM_MAX: u32 = 100_000;

    /// Perfect clocks, for models of the protocol in whole ticks.
    pub const NONE: Self = Self::of(0, Duration::ZERO);

    /// `None` when `ppm` is above [`Self::PPM_MAX`].
    #[must_use]
    pub const fn new(ppm: u32, granularity: Duration) -> Option<Self> {
        if ppm > Self::PPM_MAX { None } else { Some(Self::of(ppm, granularity)) }
    }

    const fn of(ppm: u32, granularity: Duration) -> Self {
        Self { ppm, granularity, rules: Rules::ALL }
    }

    /// Only for mutants: the same clocks, with formulas that may lack a rule (`rules.rs`).
    #[must_use]
    pub const fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    pub(crate) const fn rules(self) -> Rules {
        self.rules
    }

    /// The assumed rate error in parts per million.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.ppm
    }

    /// The granularity of the coarsest clock in the cell.
    #[must_use]
    pub const fn granularity(self) -> Duration {
        self.granularity
    }

    /// `span / r` with r = (1+e)/(1-e), rounded down. While this time passes on one clock of the
    /// cell, at most `span` passes on any other.
    fn shrink(self, span: Duration) -> Duration {
        self.scale(span, 1_000_000 - self.ppm, 1_000_000 + self.ppm, false)
    }

    /// `span * r`, rounded up.
    fn stretch(self, span: Duration) -> Duration {
        self.scale(span, 1_000_000 + self.ppm, 1_000_000 - self.ppm, true)
    }

    fn scale(self, span: Duration, numerator: u32, denominator: u32, up: bool) -> Duration {
        if self.ppm == 0 {
            return span;
        }
        let product = u128::from(saturating_nanos(span)) * u128::from(numerator);
        let round = if up { u128::from(denominator) - 1 } else { 0 };
        let nanos = (product + round) / u128::from(denominator);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// T1: `Tp = ttl / r - 2g`, how long a holder may believe in a lease of this ttl. Two clocks
    /// are read: an acceptor whose reading was old lets go early, and a holder whose reading is old
    /// lets go late.
    #[must_use]
    pub fn belief_span(self, ttl: Ttl) -> Duration {
        let span = ttl.as_duration();
        if !self.rules.on(Rule::BeliefKeepsDriftMargin) {
            return span;
        }
        self.shrink(span).saturating_sub(self.granularity.saturating_mul(2))
    }

    /// T2 for a holder on the proposer's clock: the belief counts from before the round was sent.
    #[must_use]
    pub fn belief_ends_at(self, started_at: Instant, ttl: Ttl) -> Instant {
        started_at.after(self.belief_span(ttl))
    }

    /// T2 for a holder on another clock: the belief counts from before its request left, plus the
    /// time that the server kept the request waiting. That time is on the server's clock, hence
    /// the division, and the first of its two readings may have been old, hence the granularity.
    #[must_use]
    pub fn remote_belief_ends_at(self, sent_at: Instant, waited: Duration, ttl: Ttl) -> Instant {
        self.belief_ends_at(self.remote_began_at(sent_at, waited), ttl)
    }

    /// The instant from which the belief of a holder on another clock counts.
    #[must_use]
    pub fn remote_began_at(self, sent_at: Instant, waited: Duration) -> Instant {
        let credit = if self.rules.on(Rule::WaitedIsShrunkByDrift) {
            self.shrink(waited).saturating_sub(self.granularity)
        } else {
            waited
        };
        sent_at.after(credit)
    }

    /// T3: how long an acceptor that lost its leases answers nothing.
    #[must_use]
    pub fn quarantine_span(self, longest: Duration) -> Duration {
        if !self.rules.on(Rule::QuarantineCoversLongestTtl) {
            return longest / 2;
        }
        self.stretch(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_is_shorter_than_the_exclusion_by_the_margin() {
        let drift = Drift::new(1000, Duration::from_millis(1)).expect("in bounds");
        let ttl = Ttl::from_millis(10_000).expect("not zero");
        let belief = drift.belief_span(ttl);
        // In real time the belief of a slow holder (1-e) ends before a fast acceptor (1+e) lets go.
        let holder_real = belief.as_secs_f64() / (1.0 - 0.001);
        let acceptor_real = 10.0 / (1.0 + 0.001);
        assert!(holder_real < acceptor_real);
        assert!(acceptor_real - holder_real < 0.003, "and not much earlier than needed");
    }

    #[test]
    fn a_belief_on_coarse_clocks_ends_before_the_exclusion() {
        // Clocks that step once per granule. The holder notes `started_at` right after a step, and
        // the acceptor reads `now` right before one. Later the holder's clock is still just before
        // the end of its belief when the acceptor's clock steps past the expiry.
        let granule = Duration::from_millis(4);
        let drift = Drift::new(0, granule).expect("in bounds");
        let nanos = |span: Duration| span.as_nanos() as u64;
        for millis in 50..100 {
            let ttl = Ttl::from_millis(millis).expect("not zero");
            let ends_at = drift.belief_ends_at(Instant::ZERO, ttl);
            let holder_lets_go = ends_at.as_nanos().next_multiple_of(nanos(granule));
            let stale_by = nanos(granule) - 1;
            let acceptor_lets_go = nanos(ttl.as_duration()) - stale_by;
            assert!(holder_lets_go <= acceptor_lets_go, "{ttl:?}");
        }
    }

    #[test]
    fn a_belief_never_wraps_below_zero() {
        let drift = Drift::new(100_000, Duration::from_secs(1)).expect("in bounds");
        let ttl = Ttl::from_millis(50).expect("not zero");
        assert_eq!(drift.belief_span(ttl), Duration::ZERO);
        let sent_at = Instant::from_nanos(7);
        assert_eq!(drift.remote_belief_ends_at(sent_at, Duration::ZERO, ttl), sent_at);
    }

    #[test]
    fn a_quarantine_covers_the_longest_lease_on_a_slow_clock() {
        let drift = Drift::new(1000, Duration::ZERO).expect("in bounds");
        // 60 s * 1.001 / 0.999, rounded up.
        let expected = Duration::from_nanos(60_120_120_121);
        assert_eq!(drift.quarantine_span(Duration::from_secs(60)), expected);
    }

    #[test]
    fn a_span_is_rounded_up_to_whole_milliseconds() {
        assert_eq!(Ttl::from_duration(Duration::from_nanos(1)), Ttl::from_millis(1));
        assert_eq!(Ttl::from_duration(Duration::ZERO), None);
        assert_eq!(Ttl::from_duration(Duration::from_secs(u64::MAX)), None);
    }

    #[test]
    fn instants_saturate() {
        assert_eq!(Instant::MAX.after(Duration::from_secs(1)), Instant::MAX);
        assert_eq!(Instant::ZERO.since(Instant::MAX), Duration::ZERO);
    }
}
