//! The clock that measures leases, the same for nodes, for clients and for the watchdog of
//! `paxoslease lock` (T2): it is monotonic, time daemons do not slew it, and it counts the time for
//! which a machine is suspended.
//!
//! Owns the choice of the clock and every reading of it. Deliberately lacks timers and sleeping,
//! which differ from caller to caller, and the wall clock, which never measures a lease.

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
#[cfg(any(target_os = "linux", target_os = "android"))]
use rustix::time::{ClockId, clock_gettime};

/// A clock that stops during suspend would let a resumed holder overstay its lease. A slewed clock
/// (by up to 8 % with chrony) would let a holder overstay it too.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn machine_nanos() -> u64 {
    static STEADY: steady::Steady = steady::Steady::new();
    STEADY.now(nanos_of)
}

/// Apple's `CLOCK_MONOTONIC_RAW` has both properties, unlike that of Linux (clock_gettime(3)).
#[cfg(target_vendor = "apple")]
fn machine_nanos() -> u64 {
    let clock = nix::time::ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
    let reading = Duration::from(clock.now().expect("a clock of macOS 10.12 and later"));
    reading.as_nanos() as u64
}

/// Where the clock stops during suspend, a holder believes for too long, by the length of the
/// suspension, and only the fence protects against what it does then (T5). So a system is allowed
/// only if its clock is known.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn machine_nanos() -> u64 {
    compile_error!(
        "PaxosLease runs on Linux; its library also builds on macOS. It knows no clock of this system \
         that counts the time for which a machine sleeps, so two clients could hold one lease."
    )
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn nanos_of(clock: ClockId) -> i64 {
    let reading = clock_gettime(clock);
    (reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64) as i64
}

/// A source of the current time. Clones share their source.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    #[cfg(feature = "test-util")]
    Manual(Arc<dyn TimeSource>),
}

/// The source of a clock for tests.
#[cfg(feature = "test-util")]
pub trait TimeSource: std::fmt::Debug + Send + Sync {
    /// The time in nanoseconds; called at every reading.
    fn nanos(&self) -> u64;
}

#[cfg(feature = "test-util")]
impl TimeSource for AtomicU64 {
    fn nanos(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }
}

impl Clock {
    /// The machine's clock. All processes of a machine agree to within a tenth of a millisecond.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock for tests, which shows the time of `source`.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn manual(source: Arc<impl TimeSource + 'static>) -> Self {
        Self(Source::Manual(source))
    }

    /// The current time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::from_nanos(shown(machine_nanos())),
            #[cfg(feature = "test-util")]
            Source::Manual(source) => Instant::from_nanos(source.nanos()),
        }
    }

    /// The current time, and for how long the machine has run by then. The second has the same rate
    /// in all processes, also where the chaos harness set one.
    #[must_use]
    pub fn now_since_boot(&self) -> (Instant, Duration) {
        let (now, machine) = match &self.0 {
            Source::System => {
                let machine = machine_nanos();
                (shown(machine), machine)
            }
            #[cfg(feature = "test-util")]
            Source::Manual(source) => {
                let nanos = source.nanos();
                (nanos, nanos)
            }
        };
        (Instant::from_nanos(now), Duration::from_nanos(machine))
    }
}

/// What the clock of this process shows after that many nanoseconds.
fn shown(machine: u64) -> u64 {
    #[cfg(feature = "chaos")]
    let machine = rate::shown(machine, rate::ppm());
    machine
}

/// Whether this build reads a clock rate from the chaos harness.
pub const HAS_RATE: bool = cfg!(feature = "chaos");

/// How many parts per million [`Clock::system`] runs too fast in this process: 0, unless the chaos
/// harness set a rate.
#[must_use]
pub fn rate_ppm() -> i64 {
    #[cfg(feature = "chaos")]
    return rate::ppm();
    #[cfg(not(feature = "chaos"))]
    0
}

/// How long to wait, by the machine's timers, for a span of [`Clock::system`] to pass. Time daemons
/// slew the timers, by less than an eighth. So a long wait is cut short by an eighth; the caller
/// then reads the clock and waits for the rest. The caller is late by a millisecond at most.
#[must_use]
pub fn wait_for(span: Duration) -> Duration {
    let span = machine_span(span);
    if span > Duration::from_millis(10) { span / 8 * 7 } else { span }
}

/// When to set a `CLOCK_BOOTTIME` timer so that it fires once [`Clock::system`] shows `at`, even if
/// the machine sleeps meanwhile; see [`wait_for`].
#[cfg(any(target_os = "linux", target_os = "android"))]
#[must_use]
pub fn timer_for(at: Duration) -> Duration {
    // BOOTTIME is read first: after a suspend between the two readings the timer fires at once.
    let boottime = Duration::from_nanos(nanos_of(ClockId::Boottime).unsigned_abs());
    boottime.saturating_add(wait_for(Instant::ZERO.after(at).since(Clock::system().now())))
}

/// The length of a span of [`Clock::system`] by the machine's timers. It differs only in a process
/// whose clock rate the chaos harness set.
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
    fn a_wait_with_slewed_timers_is_late_by_at_most_a_millisecond() {
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
    fn a_timer_for_the_past_fires_at_once_and_a_far_one_early() {
        let boottime = || Duration::from_nanos(nanos_of(ClockId::Boottime).unsigned_abs());
        let now = Duration::from_nanos(Clock::system().now().as_nanos());
        let (second, before) = (Duration::from_secs(1), boottime());
        let fires_at = timer_for(now + second);
        assert!((before..=boottime() + second / 8 * 7).contains(&fires_at));
        assert!(timer_for(Duration::ZERO) <= boottime());
    }

    #[cfg(feature = "test-util")]
    #[test]
    fn clones_of_a_manual_clock_show_the_same_time() {
        let nanos = Arc::new(AtomicU64::new(0));
        let clock = Clock::manual(Arc::clone(&nanos));
        let clone = clock.clone();
        nanos.store(7, Ordering::SeqCst);
        assert_eq!((clock.now(), clone.now()), (Instant::from_nanos(7), Instant::from_nanos(7)));
    }
}
