//! Adaptive spinning: polling for a while before blocking saves the wake-up, as long as something
//! comes soon and no other thread needs the core.
//!
//! A failure is followed by waits without spinning, more each time. A `yield` to a thread that
//! keeps the core until the time for spinning is over counts as a failure. Success ends the pauses.

use std::thread;
use std::time::Duration;

use paxoslease_core::Instant;

use crate::clock::Clock;

/// The most waits without spinning after a failure.
const PAUSE_MAX: u32 = 1024;

#[derive(Debug)]
pub(super) struct Spin {
    /// How long to spin at most; zero for never.
    most: Duration,
    /// The waits without spinning that are left.
    pausing: u32,
    /// The waits without spinning after the next failure.
    pause: u32,
}

impl Spin {
    pub(super) const fn new(most: Duration) -> Self {
        Self { most, pausing: 0, pause: 1 }
    }

    /// Whether to spin before this wait.
    pub(super) const fn is_on(&mut self) -> bool {
        if self.most.is_zero() {
            return false;
        }
        if self.pausing > 0 {
            self.pausing -= 1;
            return false;
        }
        true
    }

    /// Spins until something is ready, `wake_at` has come, or the time for spinning is over.
    pub(super) fn find<E>(
        &mut self,
        clock: &Clock,
        now: Instant,
        wake_at: Instant,
        events: &mut E,
        mut ready: impl FnMut(&mut E) -> bool,
    ) -> bool {
        let until = clock.now().after(self.most).min(wake_at.max(now));
        loop {
            if ready(events) {
                self.pause = 1;
                return true;
            }
            thread::yield_now();
            if clock.now() >= until {
                self.failed();
                return false;
            }
        }
    }

    fn failed(&mut self) {
        self.pausing = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn failures_make_pauses_longer_and_a_success_ends_them() {
        let nanos = Arc::new(AtomicU64::new(0));
        let clock = Clock::manual(Arc::clone(&nanos));
        let mut spin = Spin::new(Duration::from_micros(50));
        let look = |spin: &mut Spin, finds: bool| {
            spin.find(&clock, clock.now(), Instant::MAX, &mut (), |()| {
                nanos.fetch_add(10_000, Ordering::Relaxed);
                finds
            })
        };
        let waits_until_on = |spin: &mut Spin| (0..).take_while(|_| !spin.is_on()).count();
        assert!(spin.is_on());
        assert!(!look(&mut spin, false));
        assert_eq!(waits_until_on(&mut spin), 1);
        assert!(!look(&mut spin, false));
        assert_eq!(waits_until_on(&mut spin), 2);
        assert!(look(&mut spin, true));
        assert!(!look(&mut spin, false));
        assert_eq!(waits_until_on(&mut spin), 1);
    }

    #[test]
    fn without_a_span_it_never_spins() {
        assert!(!Spin::new(Duration::ZERO).is_on());
    }
}
