//! Ctrl-C ends everything that was started, too: by their ids, as the end of a run does. Without
//! this, servers would stay behind whenever a signal reaches only this process.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What a shell makes of a program that a signal ended.
const EXIT_BASE: i32 = 128;
/// Whoever is not gone by then cannot be killed.
const TRIES_MAX: u32 = 10_000;

/// From now on, in a thread of its own.
pub(crate) fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        // The measuring thread may start another one meanwhile.
        (0..TRIES_MAX).take_while(|_| end_children() > 0).for_each(|_| thread::yield_now());
        remove_folders();
        std::process::exit(EXIT_BASE + signal);
    })?;
    Ok(())
}

/// Kills those that live; how many there were.
fn end_children() -> usize {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
    let children = threads
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("children")).ok());
    let children: Vec<Pid> = children
        .flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|id| is_alive(id))
        .filter_map(|id| Pid::from_raw(id.parse().ok()?))
        .collect();
    for child in &children {
        // It may be gone already.
        let _gone = kill_process(*child, Signal::KILL);
    }
    children.len()
}

/// A dead one stays in the list until whoever started it asks.
fn is_alive(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
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
