//! When to stop: SIGINT and SIGTERM. The first asks, the second does not.

use std::process::exit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Receives the name of the first signal. The second ends the process with exit code 1, however
/// far its stop has come.
pub(crate) fn stop() -> anyhow::Result<Receiver<&'static str>> {
    let (asked, stop) = channel();
    listen(asked)?;
    Ok(stop)
}

/// As [`stop`], and also when whoever started this process is gone, which closes its stdin.
pub(crate) fn stop_with_parent() -> anyhow::Result<Receiver<&'static str>> {
    let (asked, stop) = channel();
    let orphaned = asked.clone();
    let wait = move || {
        // Nothing is expected there; also an error is an end.
        let _end = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _stopping_already = orphaned.send("whoever started it is gone");
    };
    let thread = thread::Builder::new().name("parent".to_owned());
    thread.spawn(wait).context("cannot look after the parent process")?;
    listen(asked)?;
    Ok(stop)
}

fn listen(asked: Sender<&'static str>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
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
    Ok(())
}
