//! Waits for files or for an instant of the clock that counts suspended time, whichever is first.
//!
//! The timeouts of system calls stop while a machine is suspended, but leases do not.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use paxoslease_clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{self, Errno};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// The current time of the clock for leases, the same for all processes of this machine.
pub(crate) fn since_boot() -> Duration {
    Duration::from_nanos(Clock::system().now().as_nanos())
}

fn timespec(span: Duration) -> Timespec {
    let tv_sec = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: span.subsec_nanos().into() }
}

/// Waits until one of `files` is readable, `at` has come or is near, or a signal interrupts.
/// Returns which files are readable. The caller then reads the clock and waits again.
pub(crate) fn wait_until(files: &[BorrowedFd<'_>], at: Option<Duration>) -> io::Result<Vec<bool>> {
    let timer = at.map(Timer::at).transpose()?;
    let watched = files.iter().copied().chain(timer.as_ref().map(Timer::file));
    let mut watched: Vec<_> =
        watched.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    match poll(&mut watched, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(vec![false; files.len()]),
        Err(error) => return Err(error),
    }
    Ok(watched.iter().take(files.len()).map(|file| !file.revents().is_empty()).collect())
}

/// Waits until this instant, in a thread of its own; for rare cases.
pub(crate) async fn sleep_until(at: Duration) {
    let (done, waits) = async_channel::bounded::<()>(1);
    let wait = move || {
        while since_boot() < at && wait_until(&[], Some(at)).is_ok() {}
        drop(done);
    };
    if std::thread::Builder::new().name("sleep_until".to_owned()).spawn(wait).is_ok() {
        let _done = waits.recv().await;
    }
}

/// A file that becomes readable at this instant or before, even if the machine was suspended then.
struct Timer(OwnedFd);

impl Timer {
    fn at(at: Duration) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        // A timer of zero would never fire.
        let at = timespec(paxoslease_clock::timer_for(at).max(Duration::from_nanos(1)));
        let times = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: at };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &times)?;
        Ok(Self(timer))
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_instant_in_the_past_or_a_byte_ends_the_wait() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let files = [theirs.as_fd()];
        let begun_at = since_boot();
        for at in [Duration::ZERO, begun_at, begun_at + Duration::from_millis(1)] {
            while since_boot() < at {
                assert_eq!(wait_until(&files, Some(at)).expect("waits"), [false]);
            }
        }
        ours.write_all(b"x").expect("written");
        let in_an_hour = begun_at + Duration::from_secs(3600);
        assert_eq!(wait_until(&files, Some(in_an_hour)).expect("waits"), [true]);
        assert_eq!(wait_until(&files, None).expect("waits"), [true]);
    }
}
