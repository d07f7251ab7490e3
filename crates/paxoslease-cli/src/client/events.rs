//! What a command that holds or wants a lease has to react to: signals, and its watchdog.
//!
//! Signals that were ignored when this process began stay ignored, as `nohup` and `&` in a script
//! want it, also for the command that is run. Deliberately lacks what to do about any of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context as _;
use async_channel::{Receiver, Sender, bounded};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::{Handle, Signals};

use super::watchdog::orders::Report;

/// Those that ask a process to end.
pub(crate) const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Those a command also wants to hear of.
const OTHERS: [i32; 5] = [SIGCONT, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH];

/// How many events may wait. Whoever has more to say waits too.
const QUEUED_MAX: usize = 64;

/// Something happened outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// This process got a signal.
    Signal(i32),
    /// The watchdog says something.
    Report(Report),
    /// The watchdog is gone.
    Gone,
    /// It should have said that the command has ended.
    Overdue,
}

/// What happens outside, in turn.
pub(crate) struct Events {
    pub(crate) sender: Sender<Event>,
    receiver: Receiver<Event>,
    signals: Handle,
}

impl Events {
    /// From here on, signals that ask this process to end are events.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let mut signals =
            Signals::new(ENDING.into_iter().filter(is_heeded)).context("cannot handle signals")?;
        let (sender, receiver) = bounded(QUEUED_MAX);
        let (handle, to) = (signals.handle(), sender.clone());
        let wait = move || {
            for signal in signals.forever() {
                if to.send_blocking(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)
            .context("cannot handle signals")?;
        Ok(Self { sender, receiver, signals: handle })
    }

    /// From here on, so are those that are to be passed on.
    pub(crate) fn heed_all(&self) -> anyhow::Result<()> {
        for signal in OTHERS.into_iter().filter(is_heeded) {
            self.signals.add_signal(signal).context("cannot handle signals")?;
        }
        Ok(())
    }

    /// Cancel-safe.
    pub(crate) async fn next(&self) -> Event {
        self.receiver.recv().await.expect("a sender is kept")
    }

    /// The next signal that asks for the end, whatever else happens.
    pub(crate) async fn signal(&self) -> i32 {
        loop {
            if let Event::Signal(signal) = self.next().await
                && ENDING.contains(&signal)
            {
                return signal;
            }
        }
    }
}

/// Lets this process go on when somebody asks it to end. Whatever it starts is asked as usual.
pub(crate) fn refuse_to_end() -> anyhow::Result<()> {
    for signal in ENDING.into_iter().filter(is_heeded) {
        signal_hook::flag::register(signal, Arc::<AtomicBool>::default())
            .context("cannot handle signals")?;
    }
    Ok(())
}

/// Whether whoever started this process left the signal alone. `/proc` tells without `unsafe`;
/// where there is none, nobody is taken to have ignored anything.
fn is_heeded(signal: &i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or_default() >> (signal - 1) & 1 == 0
}
