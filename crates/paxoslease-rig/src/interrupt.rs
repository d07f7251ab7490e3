//! Ctrl-C also ends every process that was started, by its id. Without this, servers would stay
//! behind whenever a signal reaches only this process.

use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{folder, process};

/// What a shell makes of a program that a signal ended.
const EXIT_BASE: i32 = 128;

/// From now on, in a thread of its own.
pub fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        process::end_all();
        folder::remove_all();
        std::process::exit(EXIT_BASE + signal);
    })?;
    Ok(())
}
