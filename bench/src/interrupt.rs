//! Ctrl-C ends everything that was started, too: by their ids, as the end of a run does. Without
//! this, servers would stay behind whenever a signal reaches only this process.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::process;

/// What a shell makes of a program that a signal ended.
const EXIT_BASE: i32 = 128;

/// From now on, in a thread of its own.
///
/// # Errors
/// When the system gives no thread or no signals.
pub fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        process::end_all();
        remove_folders();
        std::process::exit(EXIT_BASE + signal);
    })?;
    Ok(())
}

fn remove_folders() {
    let prefix = format!("paxoslease-bench-{}-", std::process::id());
    for parent in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        for entry in
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        {
            let _gone = fs::remove_dir_all(entry.path());
        }
    }
}
