//! The clocks of measurements of real processes, and waiting.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "what runs here takes real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// How long this process has run so far, all threads, in user and kernel mode.
pub fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits for this long.
#[expect(clippy::disallowed_methods, reason = "what runs here takes real time")]
pub fn sleep(span: Duration) {
    std::thread::sleep(span);
}
