//! Deadlines of sessions that have to send something: the rest of a request, or a token. A session
//! that is late is closed. Other clients may be silent and stay connected, as with Redis: they cost
//! next to nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use paxoslease_node::front::Instant;

#[derive(Debug)]
pub(super) struct Deadlines {
    /// How long a session may take.
    pub(super) patience: Duration,
    /// When the time of a session began, by its index.
    since: BTreeMap<usize, Instant>,
    /// When to look for sessions that are late.
    pub(super) look_at: Option<Instant>,
}

impl Deadlines {
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, since: BTreeMap::new(), look_at: None }
    }

    /// The time of a session begins, unless it has begun already.
    pub(super) fn begin(&mut self, session: usize, now: Instant) {
        self.since.entry(session).or_insert(now);
        self.look_at.get_or_insert(now.after(self.patience));
    }

    /// The session has sent everything, or has ended.
    pub(super) fn forget(&mut self, session: usize) {
        self.since.remove(&session);
    }

    /// Removes and returns the sessions that are late. Returns at once if it is not time to look.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<usize> {
        if self.look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let patience = self.patience;
        let overdue = self.since.extract_if(.., |_, since| now >= since.after(patience));
        let overdue = overdue.map(|(session, _)| session).collect();
        // One look for many sessions: an eighth of the patience later is early enough.
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
        let mut deadlines = Deadlines::new(PATIENCE);
        for second in 0..8 {
            deadlines.begin(3, at(second));
            assert!(deadlines.overdue(at(second)).is_empty());
        }
        assert_eq!(deadlines.overdue(at(8)), [3]);
        assert_eq!((deadlines.overdue(at(9)), deadlines.look_at), (vec![], None));
    }

    #[test]
    fn a_session_that_begins_again_has_all_its_time_again() {
        let mut deadlines = Deadlines::new(PATIENCE);
        deadlines.begin(3, at(0));
        deadlines.begin(4, at(1));
        deadlines.forget(3);
        deadlines.begin(3, at(7));
        deadlines.forget(4);
        assert!(deadlines.overdue(at(14)).is_empty());
        assert_eq!(deadlines.look_at, Some(at(15)));
        assert_eq!(deadlines.overdue(at(15)), [3]);
    }

    #[test]
    fn one_look_finds_many_late_sessions() {
        let mut deadlines = Deadlines::new(PATIENCE);
        for session in 0..80 {
            let came_at = Instant::from_nanos(session * 10_000_000);
            deadlines.begin(session as usize, came_at);
        }
        assert_eq!(deadlines.overdue(at(8)), [0]);
        assert_eq!(deadlines.look_at, Some(at(9)));
        assert_eq!(deadlines.overdue(at(9)).len(), 79);
    }
}
