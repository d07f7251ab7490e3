//! Sessions in the middle of a request, and since when: what was said of it is kept until the rest
//! comes, so one that lets that wait is given up. A client that says nothing may stay, as with
//! Redis; it costs next to nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease::front::Instant;

#[derive(Debug)]
pub(super) struct Halves {
    /// How long a request may take from its first byte to its last.
    pub(super) patience: Duration,
    /// By number of the session.
    since: BTreeMap<usize, Instant>,
    /// When to look for those that are too slow.
    look_at: Option<Instant>,
}

impl Halves {
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, since: BTreeMap::new(), look_at: None }
    }

    /// Something of a session was read: whether a request became whole by that, and whether one is
    /// not whole.
    pub(super) fn heard(&mut self, session: usize, now: Instant, got_one: bool, is_half: bool) {
        if got_one || !is_half {
            self.since.remove(&session);
        }
        if is_half {
            self.since.entry(session).or_insert(now);
            self.look_at.get_or_insert(now.after(self.patience));
        }
    }

    /// The session is over, or nothing more of it is read.
    pub(super) fn forget(&mut self, session: usize) {
        self.since.remove(&session);
    }

    pub(super) const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Those whose time is over; they are not looked at again. At once, if it is not time to look.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<usize> {
        if self.look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let patience = self.patience;
        let overdue = self.since.extract_if(.., |_, since| now >= since.after(patience));
        let overdue = overdue.map(|(session, _)| session).collect();
        // Not for each of very many alone: an eighth later is early enough.
        let earliest = now.after(patience / 8);
        let next = self.since.values().min().map(|since| since.after(patience).max(earliest));
        self.look_at = next;
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(8);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_byte_now_and_then_gains_no_time() {
        let mut halves = Halves::new(PATIENCE);
        for second in 0..8 {
            halves.heard(3, at(second), false, true);
            assert!(halves.overdue(at(second)).is_empty());
        }
        assert_eq!(halves.overdue(at(8)), [3]);
        assert_eq!((halves.overdue(at(9)), halves.look_at()), (vec![], None));
    }

    #[test]
    fn a_request_that_becomes_whole_begins_the_time_of_the_next() {
        let mut halves = Halves::new(PATIENCE);
        halves.heard(3, at(0), false, true);
        halves.heard(4, at(1), false, true);
        halves.heard(3, at(7), true, true);
        halves.heard(4, at(7), true, false);
        assert!(halves.overdue(at(14)).is_empty());
        assert_eq!(halves.look_at(), Some(at(15)));
        assert_eq!(halves.overdue(at(15)), [3]);
    }

    #[test]
    fn many_are_looked_at_together() {
        let mut halves = Halves::new(PATIENCE);
        for session in 0..80 {
            let came_at = Instant::from_nanos(session * 10_000_000);
            halves.heard(session as usize, came_at, false, true);
        }
        assert_eq!(halves.overdue(at(8)), [0]);
        assert_eq!(halves.look_at(), Some(at(9)));
        assert_eq!(halves.overdue(at(9)).len(), 79);
    }
}
