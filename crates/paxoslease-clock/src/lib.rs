//! The clock that leases are counted by, the same for nodes, for clients and for the watchdog of
//! `paxoslease lock` (T2): monotonic, and one that counts the time a machine sleeps.
//!
//! Owns which clock that is and every reading of it. Deliberately lacks timers and sleeping, which
//! everybody does in their own way, and the wall clock, by which no lease is ever counted.

#[cfg(feature = "chaos")]
mod rate;

#[cfg(feature = "test-util")]
use std::sync::Arc;
#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paxoslease_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC stands still while a machine is suspended, and a holder that resumed would
/// overstay its lease by that time. This one goes on.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;

/// Counts the time asleep.
#[cfg(target_vendor = "apple")]
const CLOCK: ClockId = ClockId::Monotonic;

/// Whether this counts the time suspended differs from system to system. Where it does not, a
/// suspended holder believes too long by the length of the suspension, and only the fence protects
/// against what it does then (T5); a suspended acceptor merely excludes others for longer.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Where `now` comes from. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    #[cfg(feature = "test-util")]
    ByHand(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's own, the same for all its processes.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// One that shows these nanoseconds.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub const fn by_hand(nanos: Arc<AtomicU64>) -> Self {
        Self(Source::ByHand(nanos))
    }

    /// The time now.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::from_nanos(system_nanos()),
            #[cfg(feature = "test-util")]
            Source::ByHand(nanos) => Instant::from_nanos(nanos.load(Ordering::SeqCst)),
        }
    }
}

fn system_nanos() -> u64 {
    let reading = clock_gettime(CLOCK);
    let (secs, nanos) = (reading.tv_sec as u64, reading.tv_nsec as u64);
    let nanos = secs * 1_000_000_000 + nanos;
    #[cfg(feature = "chaos")]
    let nanos = rate::shown(nanos, rate::ppm());
    nanos
}

/// Whether this build heeds a rate that the chaos harness sets.
pub const HAS_RATE: bool = cfg!(feature = "chaos");

/// How many parts per million [`Clock::system`] runs too fast in this process: none, unless the
/// chaos harness set a rate.
#[must_use]
pub fn rate_ppm() -> i64 {
    #[cfg(feature = "chaos")]
    return rate::ppm();
    #[cfg(not(feature = "chaos"))]
    0
}

/// How long a span of [`Clock::system`] is for the machine's timers: the same, unless this process
/// is one whose clock the chaos harness lets run at another rate.
#[must_use]
pub fn machine_span(span: Duration) -> Duration {
    #[cfg(feature = "chaos")]
    let span = rate::passed(span, rate::ppm());
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = Clock::system();
        let readings: Vec<Instant> = (0..1000).map(|_| clock.now()).collect();
        assert!(readings.is_sorted());
        assert!(readings[0] > Instant::ZERO);
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn clones_of_a_clock_by_hand_show_the_same_time() {
        let nanos = Arc::new(AtomicU64::new(0));
        let clock = Clock::by_hand(Arc::clone(&nanos));
        let clone = clock.clone();
        nanos.store(7, Ordering::SeqCst);
        assert_eq!((clock.now(), clone.now()), (Instant::from_nanos(7), Instant::from_nanos(7)));
    }
}
