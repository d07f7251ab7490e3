//! Lines of a log about what anybody can bring about as often as they like.

use std::time::Duration;

use paxoslease_core::Instant;

/// A line in so much time is enough.
const EVERY: Duration = Duration::from_secs(10);

/// Says when something that happens often is worth a line of the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seldom {
    untold: u64,
    told_at: Option<Instant>,
}

impl Seldom {
    /// It happened again. How often since it was last told, if it is to be told now.
    pub fn again(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told_at.is_some_and(|at| now < at.after(EVERY)) {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_told_seldom_and_counted_always() {
        let (mut seldom, now) = (Seldom::default(), Instant::ZERO);
        assert_eq!(seldom.again(now), Some(1));
        assert_eq!(seldom.again(now), None);
        assert_eq!(seldom.again(now.after(EVERY / 2)), None);
        assert_eq!(seldom.again(now.after(EVERY)), Some(3));
        assert_eq!(seldom.again(now.after(EVERY)), None);
    }
}
