//! Clocks and sleep, for measurements of real processes.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

#[expect(clippy::disallowed_methods, reason = "measurements take real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// The processor time of this process, all threads, in user and kernel mode.
pub fn process_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// The processor time of this thread.
pub fn thread_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[expect(clippy::disallowed_methods, reason = "measurements take real time")]
pub fn sleep(span: Duration) {
    std::thread::sleep(span);
}
