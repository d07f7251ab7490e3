//! The clocks of a measurement.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The wall clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// How long this process has run so far, all threads, in user and kernel mode.
#[must_use]
pub fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lets the load go on for this long.
#[expect(clippy::disallowed_methods, reason = "a benchmark lets time pass")]
pub fn sleep(span: Duration) {
    std::thread::sleep(span);
}
