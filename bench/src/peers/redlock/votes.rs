//! Redlock's arithmetic: what a majority is, and how long what it granted is worth anything.

use std::time::Duration;

/// Answers of servers to one question, decided as soon as the rest cannot change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Votes {
    servers: usize,
    yes: usize,
    no: usize,
}

impl Votes {
    pub(super) const fn new(servers: usize) -> Self {
        Self { servers, yes: 0, no: 0 }
    }

    const fn quorum(self) -> usize {
        self.servers / 2 + 1
    }

    /// Says what is decided, once.
    pub(super) fn hear(&mut self, is_yes: bool) -> Option<bool> {
        if self.yes == self.quorum() || self.no > self.servers - self.quorum() {
            return None;
        }
        if is_yes {
            self.yes += 1;
            (self.yes == self.quorum()).then_some(true)
        } else {
            self.no += 1;
            (self.no > self.servers - self.quorum()).then_some(false)
        }
    }
}

/// How long a lock may be used that took this long to get: its ttl less that and the drift that
/// the algorithm allows for, a hundredth and two milliseconds.
pub(super) fn validity(ttl: Duration, elapsed: Duration) -> Option<Duration> {
    let drift = ttl / 100 + Duration::from_millis(2);
    ttl.checked_sub(elapsed)?.checked_sub(drift).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(servers: usize, answers: &[bool]) -> Vec<Option<bool>> {
        let mut votes = Votes::new(servers);
        answers.iter().map(|is_yes| votes.hear(*is_yes)).collect()
    }

    #[test]
    fn the_first_majority_decides_and_does_so_once() {
        assert_eq!(decisions(3, &[true, true, true]), [None, Some(true), None]);
        assert_eq!(decisions(3, &[true, false, true]), [None, None, Some(true)]);
        assert_eq!(decisions(3, &[false, true, false]), [None, None, Some(false)]);
        assert_eq!(decisions(3, &[false, false, true]), [None, Some(false), None]);
        assert_eq!(decisions(1, &[true]), [Some(true)]);
    }

    #[test]
    fn half_of_an_even_number_is_no_majority() {
        assert_eq!(decisions(4, &[true, true, false]), [None, None, None]);
        assert_eq!(decisions(4, &[true, true, false, false]), [None, None, None, Some(false)]);
        assert_eq!(decisions(4, &[true, true, false, true]), [None, None, None, Some(true)]);
    }

    #[test]
    fn what_is_left_of_a_lock_counts_from_before_it_was_asked_for() {
        let ms = Duration::from_millis;
        assert_eq!(validity(ms(1000), ms(100)), Some(ms(888)));
        assert_eq!(validity(ms(1000), ms(988)), None);
        assert_eq!(validity(ms(1000), ms(2000)), None);
    }
}
