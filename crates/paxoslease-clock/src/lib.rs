//! The clock that leases are counted by, the same for nodes, for clients and for the watchdog of
//! `paxoslease lock` (T2): monotonic, not slewed by time daemons, and it counts the time that a
//! machine is suspended.
//!
//! Owns which clock that is and every reading of it. Deliberately lacks timers and sleeping, which
//! everybody does in their own way, and the wall clock, by which no lease is ever counted.

#[cfg(feature = "chaos")]
mod rate;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod steady;

#[cfg(feature = "test-util")]
use std::sync::Arc;
#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paxoslease_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// A resumed holder would overstay its lease by a clock that stands still during suspend, and a
/// holder on a machine whose clock is slewed (by up to 8 % with chrony) would by a slewed one.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn machine_nanos() -> u64 {
    static STEADY: steady::Steady = steady::Steady::new();
    STEADY.now(nanos_of)
}

/// Counts the time asleep on Apple's systems. On others that differs: where it does not, a
/// suspended holder believes too long by the length of the suspension, and only the fence protects
/// against what it does then (T5); a suspended acceptor merely excludes others for longer. Slewing
/// is within the drift bound only if the system keeps it there.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn machine_nanos() -> u64 {
    nanos_of(ClockId::Monotonic) as u64
}

fn nanos_of(clock: ClockId) -> i64 {
    let reading = clock_gettime(clock);
    (reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64) as i64
}

/// Where `now` comes from. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    #[cfg(feature = "test-util")]
    ByHand(Arc<dyn Hands>),
}

/// What a clock for tests shows.
#[cfg(feature = "test-util")]
pub trait Hands: std::fmt::Debug + Send + Sync {
    /// Asked at every reading.
    fn nanos(&self) -> u64;
}

#[cfg(feature = "test-util")]
impl Hands for AtomicU64 {
    fn nanos(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }
}

impl Clock {
    /// The machine's own, the same for all its processes to within a tenth of a millisecond.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// One that shows these nanoseconds.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn by_hand(hands: Arc<impl Hands + 'static>) -> Self {
        Self(Source::ByHand(hands))
    }

    /// The time now.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::from_nanos(system_nanos()),
            #[cfg(feature = "test-util")]
            Source::ByHand(hands) => Instant::from_nanos(hands.nanos()),
        }
    }
}

fn system_nanos() -> u64 {
    let nanos = machine_nanos();
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

/// How long to wait, by the machine's timers, for a span of [`Clock::system`] to pass. These
/// timers are slewed, so a long wait is cut short by an eighth, more than any time daemon slews:
/// the waiter looks at the clock then and waits for the rest. It is late by a millisecond at most.
#[must_use]
pub fn wait_for(span: Duration) -> Duration {
    let span = machine_span(span);
    if span > Duration::from_millis(10) { span / 8 * 7 } else { span }
}

/// The reading of `CLOCK_BOOTTIME` for which to set a timer that waits until [`Clock::system`]
/// shows `at`, also if the machine sleeps meanwhile; see [`wait_for`].
#[cfg(any(target_os = "linux", target_os = "android"))]
#[must_use]
pub fn timer_for(at: Duration) -> Duration {
    // In this order: after a suspend between the two the timer rings at once.
    let boottime = Duration::from_nanos(nanos_of(ClockId::Boottime).unsigned_abs());
    boottime.saturating_add(wait_for(Instant::ZERO.after(at).since(Clock::system().now())))
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

    #[test]
    fn a_wait_that_timers_stretch_by_the_most_they_are_slewed_is_late_by_a_millisecond_at_most() {
        let stretched = |wait: Duration| wait + wait / 12;
        for millis in [0, 1, 9, 10, 11, 100, 10_000, 3_600_000] {
            let span = Duration::from_millis(millis);
            let mut waited = Duration::ZERO;
            let mut waits = 0;
            while waited < span {
                waited += stretched(wait_for(span - waited));
                waits += 1;
            }
            assert!(waited <= span + Duration::from_millis(1), "{waited:?} for {span:?}");
            assert!(waits < 10, "{waits} waits for {span:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_timer_rings_at_once_for_what_has_come_and_early_for_what_is_far() {
        let boottime = || Duration::from_nanos(nanos_of(ClockId::Boottime).unsigned_abs());
        let now = Duration::from_nanos(Clock::system().now().as_nanos());
        let (second, before) = (Duration::from_secs(1), boottime());
        let rings_at = timer_for(now + second);
        assert!((before..=boottime() + second / 8 * 7).contains(&rings_at));
        assert!(timer_for(Duration::ZERO) <= boottime());
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
