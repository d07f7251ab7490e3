//! The clock a client's deadlines are measured by (T2): its own, and one that counts sleep.
//!
//! Owns every reading of it. Deliberately lacks timers: the client's thread sleeps in its own way,
//! and being late costs a renewal, never the truth of [`crate::LeaseGuard::is_held`].

#[cfg(any(test, feature = "test-util"))]
use std::sync::Arc;
#[cfg(any(test, feature = "test-util"))]
use std::sync::atomic::{AtomicU64, Ordering};

use paxoslease_core::Instant;
use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC stands still while a machine is suspended, and a holder that resumed would
/// overstay its lease by that time. This one goes on.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;

/// Counts the time asleep on Apple's systems. Elsewhere that differs: where it does not, only the
/// fence protects against what a resumed holder does (T5).
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Where a client's `now` comes from. Clones show the same time.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    #[cfg(any(test, feature = "test-util"))]
    ByHand(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's own.
    pub(crate) const fn system() -> Self {
        Self(Source::System)
    }

    /// One that shows these nanoseconds.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) const fn by_hand(nanos: Arc<AtomicU64>) -> Self {
        Self(Source::ByHand(nanos))
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        match &self.0 {
            Source::System => {
                let reading = clock_gettime(CLOCK);
                let (secs, nanos) = (reading.tv_sec as u64, reading.tv_nsec as u64);
                Instant::from_nanos(secs * 1_000_000_000 + nanos)
            }
            #[cfg(any(test, feature = "test-util"))]
            Source::ByHand(nanos) => Instant::from_nanos(nanos.load(Ordering::SeqCst)),
        }
    }
}
