//! What signals ask for: SIGINT and SIGTERM to stop, the first kindly and the second at once;
//! SIGHUP, of a node, to read its certificates and tokens again.

use std::process::exit;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Context as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What is asked of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// To stop, and by what.
    Stop(&'static str),
    /// To read its certificates and tokens again.
    Reload,
}

/// Receives the name of the first signal. The second ends the process with exit code 1, however
/// far its stop has come.
pub(crate) fn stop() -> anyhow::Result<Receiver<&'static str>> {
    let (asked, stop) = channel();
    listen(&[SIGINT, SIGTERM], move |signal| asked.send(name(signal)).is_ok())?;
    Ok(stop)
}

/// As [`stop`], and SIGHUP any number of times; with a parent, its end too, which closes stdin.
pub(crate) fn stop_or_reload(with_parent: bool) -> anyhow::Result<Receiver<Asked>> {
    let (asked, receiver) = channel();
    if with_parent {
        stop_with_parent(asked.clone())?;
    }
    listen(&[SIGINT, SIGTERM, SIGHUP], move |signal| {
        let wish = if signal == SIGHUP { Asked::Reload } else { Asked::Stop(name(signal)) };
        asked.send(wish).is_ok()
    })?;
    Ok(receiver)
}

fn stop_with_parent(asked: Sender<Asked>) -> anyhow::Result<()> {
    let wait = move || {
        // Nothing is expected there; also an error is an end.
        let _end = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _stopping_already = asked.send(Asked::Stop("whoever started it is gone"));
    };
    let thread = thread::Builder::new().name("parent".to_owned());
    thread.spawn(wait).context("cannot look after the parent process")?;
    Ok(())
}

const fn name(signal: i32) -> &'static str {
    if signal == SIGINT { "SIGINT" } else { "SIGTERM" }
}

/// Tells of signals, as long as somebody hears it and none asks to stop again.
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
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot handle signals")?;
    Ok(())
}
