//! Ends every started process when this process gets a signal such as Ctrl-C, and removes the
//! folders.

use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{folder, process};

/// The exit code of a shell for a program that a signal ended, less the signal.
const EXIT_BASE: i32 = 128;

/// Starts a thread that waits for signals. `clean_up` runs before the exit.
pub fn watch(clean_up: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        process::end_all();
        folder::remove_all();
        clean_up();
        std::process::exit(EXIT_BASE + signal);
    })?;
    Ok(())
}
