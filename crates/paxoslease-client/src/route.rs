//! Which endpoint is tried next, and when. Knows no connection, only how they ended.

use std::time::Duration;

use paxoslease_core::{Instant, Rng};

use paxoslease_holder::AskError;

/// How long to pause when no endpoint can be reached: the first time, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long others are preferred to an endpoint that was no good.
const AVOID: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Route {
    /// Until when each is avoided.
    avoid_until: Vec<Instant>,
    /// The one that is in use, or is tried next.
    pub(crate) next: usize,
    /// How many failed since one was good.
    failures: usize,
    best_informed: Option<AskError>,
    pub(crate) retry_at: Instant,
    pub(crate) pause: Duration,
    rng: Rng,
}

impl Route {
    pub(crate) fn new(endpoints: usize, seed: u64) -> Self {
        Self {
            avoid_until: vec![Instant::ZERO; endpoints],
            next: 0,
            failures: 0,
            best_informed: None,
            retry_at: Instant::ZERO,
            pause: PAUSE,
            rng: Rng::seeded(seed),
        }
    }

    /// What was good is so no more; another may be.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.move_on(now);
        self.failures = 0;
        self.best_informed = None;
        self.pause = PAUSE;
    }

    /// An endpoint is no good. Once that is so for all of them, says why; the next round waits a
    /// little then, longer each time, but no longer than `most`.
    pub(crate) fn fail(&mut self, now: Instant, why: AskError, most: Duration) -> Option<AskError> {
        let best_informed = match (self.best_informed.take(), why) {
            // Where it can be told what to do about it, that is worth more than "not there".
            (Some(best), AskError::Unreachable { .. }) => best,
            (_, why) => why,
        };
        self.best_informed = Some(best_informed);
        self.move_on(now);
        self.failures += 1;
        if self.failures < self.avoid_until.len() {
            return None;
        }
        self.failures = 0;
        let pause = self.pause / 2 + self.rng.below(self.pause);
        self.retry_at = now.after(pause.min(most));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.best_informed.take()
    }

    /// In turn, but whoever was no good a moment ago comes last.
    fn move_on(&mut self, now: Instant) {
        self.avoid_until[self.next] = now.after(AVOID);
        let count = self.avoid_until.len();
        let in_turn = (1..=count).map(|step| (self.next + step) % count);
        let next = in_turn.min_by_key(|endpoint| self.avoid_until[*endpoint].max(now));
        self.next = next.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> AskError {
        AskError::Unreachable { endpoints: Vec::new(), problem: "refused".into() }
    }

    #[test]
    fn whoever_was_no_good_is_avoided_for_a_while() {
        let mut route = Route::new(3, 7);
        let mut now = Instant::ZERO.after(Duration::from_secs(1));
        let mut tried = vec![route.next];
        for _ in 0..5 {
            now = now.after(Duration::from_millis(1));
            route.advance(now);
            tried.push(route.next);
        }
        assert_eq!(tried, [0, 1, 2, 0, 1, 2], "in turn when all are alike");
        now = now.after(AVOID);
        route.advance(now);
        assert_eq!(route.next, 0);
        now = now.after(AVOID / 2);
        route.advance(now);
        assert_eq!(route.next, 1, "not the one that was left before");
        route.advance(now.after(AVOID / 2));
        assert_eq!(route.next, 2, "the time of avoiding it is over");
    }

    #[test]
    fn when_all_have_failed_the_best_informed_error_is_told() {
        let mut route = Route::new(3, 7);
        let (now, alone) = (Instant::ZERO, AskError::NoQuorum("alone".into()));
        let most = Duration::from_millis(1);
        for _ in 0..3 {
            assert_eq!(route.fail(now, unreachable(), most), None);
            assert_eq!(route.fail(now, alone.clone(), most), None);
            assert_eq!(route.fail(now, unreachable(), most), Some(alone.clone()));
            assert!(route.retry_at <= now.after(most), "whoever has no time does not wait long");
        }
    }
}
