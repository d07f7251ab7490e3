//! Signals: the first SIGINT or SIGTERM stops a node cleanly, the second at once. SIGHUP makes a
//! node read its certificates and tokens again.

use std::process::exit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A request to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// Stop; contains the name of the reason.
    Stop(&'static str),
    /// Read certificates and tokens again.
    Reload,
}

/// Receives the name of the first signal. The second signal ends the process with exit code 1,
/// however far the stop has come.
pub(crate) fn stop() -> anyhow::Result<Receiver<&'static str>> {
    let (asked, stop) = channel();
    listen(&[SIGINT, SIGTERM], move |signal| asked.send(name(signal)).is_ok())?;
    Ok(stop)
}

/// Like [`stop`], and also receives each SIGHUP. `with_parent` also stops when the parent ends,
/// which closes stdin.
pub(crate) fn stop_or_reload(with_parent: bool) -> anyhow::Result<Receiver<Asked>> {
    let (asked, receiver) = channel();
    if with_parent {
        stop_with_parent(asked.clone())?;
    }
    listen(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        let request = if signal == SIGHUP { Asked::Reload } else { Asked::Stop(name(signal)) };
        asked.send(request).is_ok()
    })?;
    Ok(receiver)
}

fn stop_with_parent(asked: Sender<Asked>) -> anyhow::Result<()> {
    let wait = move || {
        // No data is expected there. An error also counts as the end.
        let _end = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _stopping_already = asked.send(Asked::Stop("the parent process has ended"));
    };
    let thread = thread::Builder::new().name("parent".to_owned());
    thread.spawn(wait).context("cannot watch the parent process")?;
    Ok(())
}

const fn name(signal: i32) -> &'static str {
    if signal == SIGINT { "SIGINT" } else { "SIGTERM" }
}

/// Forwards signals while `tell` returns true. A second signal to stop ends the process.
fn listen(signals: &[i32], tell: impl Fn(i32) -> bool + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals).context("cannot handle signals")?;
    let wait = move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            if signal == SIGHUP && is_stopping {
                continue;
            }
            if is_stopping || !tell(signal) {
                exit(1);
            }
            is_stopping = signal != SIGHUP;
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).context("cannot handle signals")?;
    Ok(())
}
