//! The events of a command that holds or acquires a lease: signals, and reports of its watchdog.
//!
//! Signals that were ignored when this process began stay ignored, for the command too, as `nohup`
//! and `&` in a script require. Deliberately lacks the reactions to events.

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

/// Signals that ask a process to end.
pub(crate) const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Other signals that are forwarded to the command.
const OTHERS: [i32; 5] = [SIGCONT, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH];

/// The most queued events. A sender waits while the queue is full.
const QUEUED_MAX: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// This process received a signal.
    Signal(i32),
    /// A report of the watchdog.
    Report(Report),
    /// The watchdog has ended.
    Gone,
    /// The watchdog has not reported the end of the command in time.
    Overdue,
}

pub(crate) struct Events {
    pub(crate) sender: Sender<Event>,
    receiver: Receiver<Event>,
    signals: Handle,
}

impl Events {
    /// From now on, signals that ask this process to end are events.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let mut signals =
            Signals::new(ENDING.into_iter().filter(is_handled)).context("cannot handle signals")?;
        let (sender, receiver) = bounded(QUEUED_MAX);
        let (handle, to) = (signals.handle(), sender.clone());
        let wait = move || {
            for signal in signals.forever() {
                if to.send_blocking(Event::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).context("cannot handle signals")?;
        Ok(Self { sender, receiver, signals: handle })
    }

    /// From now on, signals that are forwarded to the command are events too.
    pub(crate) fn add_forwarded(&self) -> anyhow::Result<()> {
        for signal in OTHERS.into_iter().filter(is_handled) {
            self.signals.add_signal(signal).context("cannot handle signals")?;
        }
        Ok(())
    }

    /// Cancel-safe.
    pub(crate) async fn next(&self) -> Event {
        self.receiver.recv().await.expect("this struct keeps a sender")
    }

    /// The next signal that asks this process to end; other events are dropped.
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

/// Makes this process ignore signals that ask it to end. Its children handle them as usual.
pub(crate) fn ignore_end_signals() -> anyhow::Result<()> {
    for signal in ENDING.into_iter().filter(is_handled) {
        signal_hook::flag::register(signal, Arc::<AtomicBool>::default())
            .context("cannot handle signals")?;
    }
    Ok(())
}

/// Whether the signal was not ignored when this process started. `/proc` tells without `unsafe`;
/// without `/proc`, no signal counts as ignored.
fn is_handled(signal: &i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or_default() >> (signal - 1) & 1 == 0
}
