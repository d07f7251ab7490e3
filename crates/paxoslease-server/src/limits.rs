//! The limits on clients that RESP and HTTP share.

use paxoslease_node::front::Instant;

/// Patterns watched in one shard by RESP, and watches at a time by HTTP. The thread of a shard
/// compares each change with all its patterns, and each watch by HTTP may keep a quarter of a MiB
/// that its client does not read.
pub(crate) const WATCHERS_MAX: u32 = 1024;

const SECOND: u64 = 1_000_000_000;

/// A bound on the average rate, with up to a second's worth at once. Its state is the time at which
/// the next event would be due if events came evenly (Turner's leaky bucket as a meter, or GCRA).
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

    /// Whether one more event may come now. If so, it is counted.
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

    fn admitted(limiter: &mut RateLimiter, millis: u64, tries: u32) -> u32 {
        let now = Instant::from_nanos(millis * 1_000_000);
        (0..tries).map(|_| u32::from(limiter.admits(now))).sum()
    }

    #[test]
    fn a_seconds_worth_may_come_at_once_and_then_at_the_rate() {
        let mut limiter = RateLimiter::new(100);
        assert_eq!(admitted(&mut limiter, 5_000, 500), 100);
        assert_eq!(admitted(&mut limiter, 5_050, 500), 5);
        assert_eq!(admitted(&mut limiter, 5_050, 500), 0);
        assert_eq!(admitted(&mut limiter, 90_000, 500), 100, "more is not saved up");
    }

    #[test]
    fn one_a_second_is_one_a_second() {
        let mut limiter = RateLimiter::new(1);
        assert_eq!([0, 400, 999, 1000].map(|at| admitted(&mut limiter, at, 2)), [1, 0, 0, 1]);
    }
}
