//! A timer that is finer than the milliseconds of a poll's timeout, so that requests are sent when
//! they are due, without spinning.

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Alarm(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Alarm {
    /// Makes the poll return an event with this token.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Option<Self>> {
        use std::os::fd::AsRawFd as _;

        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let mut source = mio::unix::SourceFd(&timer.as_raw_fd());
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Some(Self(timer)))
    }

    /// Replaces the alarm. Zero would disable it, so the caller must not pass zero.
    pub(crate) fn ring_after(&mut self, span: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let tv_sec = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec, tv_nsec: i64::from(span.subsec_nanos()) };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

/// Other systems use the timeout of the poll.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) enum Alarm {}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    pub(crate) fn new(_: &Registry, _: Token) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn ring_after(&mut self, _: Duration) -> io::Result<()> {
        match *self {}
    }
}
