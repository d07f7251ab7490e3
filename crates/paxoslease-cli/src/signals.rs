//! When to stop: SIGINT and SIGTERM. The first asks, the second does not.

use std::process::exit;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Receives the name of the first signal. The second ends the process with exit code 1, however
/// far its stop has come.
pub(crate) fn stop() -> anyhow::Result<Receiver<&'static str>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let (asked, stop) = channel();
    let wait = move || {
        for (earlier, signal) in signals.forever().enumerate() {
            let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
            if earlier > 0 || asked.send(name).is_err() {
                exit(1);
            }
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot handle signals")?;
    Ok(stop)
}
