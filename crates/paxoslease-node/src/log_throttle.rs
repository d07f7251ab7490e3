//! A limit on log lines about events that clients can cause as often as they like.

use std::time::Duration;

use paxoslease_core::Instant;

/// At most one line in this time.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides when a frequent event is worth a line of the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogThrottle {
    unlogged: u64,
    logged_at: Option<Instant>,
}

impl LogThrottle {
    /// The event happened again. Returns how often it happened since the last line, if a line is
    /// due now.
    pub fn again(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.logged_at.is_some_and(|at| now < at.after(INTERVAL)) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_event_is_logged_seldom_and_counted_always() {
        let (mut throttle, now) = (LogThrottle::default(), Instant::ZERO);
        assert_eq!(throttle.again(now), Some(1));
        assert_eq!(throttle.again(now), None);
        assert_eq!(throttle.again(now.after(INTERVAL / 2)), None);
        assert_eq!(throttle.again(now.after(INTERVAL)), Some(3));
        assert_eq!(throttle.again(now.after(INTERVAL)), None);
    }
}
