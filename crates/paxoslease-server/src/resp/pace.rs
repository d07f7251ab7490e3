//! How fast a connection may go: so many a second on average, and up to a second's worth at once.

use paxoslease_node::front::Instant;

const SECOND: u64 = 1_000_000_000;

/// When the next would be due if they came evenly. That one number says all (Turner's leaky bucket
/// as a meter, known as GCRA).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimiter {
    interval: u64,
    due_at: u64,
}

impl RateLimiter {
    /// At least one a second.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { interval: SECOND / u64::from(per_second.max(1)), due_at: 0 }
    }

    /// Whether one more may come now. If so, it did.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        let now = now.as_nanos();
        let due_at = self.due_at.max(now);
        let admitted = due_at - now + self.interval <= SECOND;
        if admitted {
            self.due_at = due_at + self.interval;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(pace: &mut RateLimiter, millis: u64, tries: u32) -> u32 {
        let now = Instant::from_nanos(millis * 1_000_000);
        (0..tries).map(|_| u32::from(pace.admits(now))).sum()
    }

    #[test]
    fn a_seconds_worth_may_come_at_once_and_then_as_many_as_time_allows() {
        let mut pace = RateLimiter::new(100);
        assert_eq!(admitted(&mut pace, 5_000, 500), 100);
        assert_eq!(admitted(&mut pace, 5_050, 500), 5);
        assert_eq!(admitted(&mut pace, 5_050, 500), 0);
        assert_eq!(admitted(&mut pace, 90_000, 500), 100, "more is not saved up");
    }

    #[test]
    fn one_a_second_is_one_a_second() {
        let mut pace = RateLimiter::new(1);
        assert_eq!([0, 400, 999, 1000].map(|at| admitted(&mut pace, at, 2)), [1, 0, 0, 1]);
    }
}
