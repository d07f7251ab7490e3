//! Adaptive spinning: polling for a while before blocking saves the wake-up, as long as something
//! comes soon and no other thread needs the core.
//!
//! A failure is followed by waits without spinning, twice as many each time; a success halves their
//! number. So spinning goes on where most waits are short, and stops where most are long. A `yield`
//! to a thread that keeps the core until the time for spinning is over counts as a failure.
//!
//! A wait for the votes of peers and a wait for the next request are of different lengths, so each
//! kind has failures of its own.

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
    /// By whether votes are awaited.
    kinds: [Backoff; 2],
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    /// The waits without spinning that are left.
    pausing: u32,
    /// The waits without spinning after the next failure.
    pause: u32,
}

impl Spin {
    pub(super) const fn new(most: Duration) -> Self {
        Self { most, kinds: [Backoff { pausing: 0, pause: 1 }; 2] }
    }

    /// Whether to spin before this wait.
    pub(super) fn is_on(&mut self, awaits_votes: bool) -> bool {
        if self.most.is_zero() {
            return false;
        }
        let pausing = &mut self.kinds[usize::from(awaits_votes)].pausing;
        let is_on = *pausing == 0;
        *pausing = pausing.saturating_sub(1);
        is_on
    }

    /// Spins until something is ready, `wake_at` has come, or the time for spinning is over.
    pub(super) fn find<E>(
        &mut self,
        clock: &Clock,
        awaits_votes: bool,
        wake_at: Instant,
        events: &mut E,
        mut ready: impl FnMut(&mut E) -> bool,
    ) -> bool {
        let backoff = &mut self.kinds[usize::from(awaits_votes)];
        let until = clock.now().after(self.most).min(wake_at);
        loop {
            if ready(events) {
                backoff.pause = (backoff.pause / 2).max(1);
                return true;
            }
            thread::yield_now();
            if clock.now() >= until {
                backoff.pausing = backoff.pause;
                backoff.pause = (backoff.pause * 2).min(PAUSE_MAX);
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that the test moves.
    struct Waits {
        nanos: Arc<AtomicU64>,
        clock: Clock,
        spin: Spin,
    }

    impl Waits {
        fn new() -> Self {
            let nanos = Arc::new(AtomicU64::new(0));
            let clock = Clock::manual(Arc::clone(&nanos));
            Self { nanos, clock, spin: Spin::new(Duration::from_micros(50)) }
        }

        fn look(&mut self, awaits_votes: bool, finds: bool) {
            let Self { nanos, clock, spin } = self;
            let found = spin.find(clock, awaits_votes, Instant::MAX, &mut (), |()| {
                nanos.fetch_add(10_000, Ordering::Relaxed);
                finds
            });
            assert_eq!(found, finds);
        }

        /// The waits without spinning before the next with it.
        fn skipped(&mut self, awaits_votes: bool) -> usize {
            (0..).take_while(|_| !self.spin.is_on(awaits_votes)).count()
        }
    }

    #[test]
    fn failures_double_the_pauses_and_successes_halve_them() {
        let mut waits = Waits::new();
        for skipped in [0, 1, 2, 4, 8, 16] {
            assert_eq!(waits.skipped(false), skipped);
            waits.look(false, false);
        }
        assert_eq!(waits.skipped(false), 32);
        for _ in 0..4 {
            waits.look(false, true);
            assert_eq!(waits.skipped(false), 0, "it goes on while it succeeds");
        }
        waits.look(false, false);
        assert_eq!(waits.skipped(false), 4);
    }

    #[test]
    fn waits_for_votes_are_judged_apart() {
        let mut waits = Waits::new();
        for _ in 0..100 {
            waits.skipped(false);
            waits.look(false, false);
        }
        assert_eq!(waits.skipped(true), 0);
        assert_eq!(waits.skipped(false), PAUSE_MAX as usize);
    }

    #[test]
    fn without_a_span_it_never_spins() {
        assert!(!Spin::new(Duration::ZERO).is_on(true));
    }
}
