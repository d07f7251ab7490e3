//! The clocks of a measurement. Wall time is what a user waits; the time this thread ran leaves
//! out what a busy machine gave to others.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The wall clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// How long this thread has run so far, in user and kernel mode.
#[must_use]
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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

/// What one reading of the wall clock takes, to be subtracted where every operation is timed.
#[must_use]
pub fn reading_cost() -> Duration {
    const READINGS: u32 = 100_000;
    let before = thread_time();
    for _ in 0..READINGS {
        std::hint::black_box(now());
    }
    (thread_time() - before) / READINGS
}

/// Nanoseconds per operation.
#[must_use]
pub fn nanos_each(span: Duration, operations: u32) -> f64 {
    span.as_nanos() as f64 / f64::from(operations)
}
