//! Waiting for something that other threads do.

use std::time::{Duration, Instant};

/// The longest that a test waits for something that must happen. Passing tests do not depend on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until `happened`, and fails the test if that takes too long.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "bounds the wait of a failing test")]
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun_at = Instant::now();
    while !happened() {
        assert!(begun_at.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        std::thread::yield_now();
    }
}
