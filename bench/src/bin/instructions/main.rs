//! Counts the instructions of the hot paths and compares them with the recorded counts.
//!
//! Callgrind counts, so the result is the same on a busy and on a quiet machine, and a part of the
//! tests. The seeds are fixed, and so is the processor that callgrind simulates.

mod callgrind;
mod path;
mod record;
mod rigs;
mod worst;

use std::sync::Mutex;
use std::thread;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};

use crate::path::Path;
use crate::record::{Counts, Record};

/// Counts the instructions of the hot paths and compares them with the record
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    /// Record the counts instead of comparing them
    #[arg(long)]
    record: bool,
    /// Show where the instructions of one path go, by function, and compare nothing
    #[arg(long, value_name = "PATH", conflicts_with = "record")]
    show: Option<Path>,
}

#[derive(Subcommand)]
enum Task {
    /// Runs one path and prints nothing, for valgrind
    #[command(hide = true)]
    Run { path: Path },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(Task::Run { path }) = cli.task {
        return path.run();
    }
    if let Some(path) = cli.show {
        return callgrind::show(path);
    }
    let counts = count_all()?;
    if cli.record {
        return Record::of(counts).write();
    }
    let (comparison, is_worse) = Record::read()?.compare(&counts);
    print!("{comparison}");
    ensure!(!is_worse, "{}", record::ADVICE);
    Ok(())
}

/// Counts one path per core at a time. The longest path comes first.
fn count_all() -> Result<Counts> {
    let mut paths = Path::value_variants().to_vec();
    paths.sort_by_key(|path| *path == Path::InsertWorst);
    let (paths, counts) = (Mutex::new(paths), Mutex::new(Counts::new()));
    let work = || -> Result<()> {
        loop {
            let Some(path) = paths.lock().expect("no thread panics").pop() else { return Ok(()) };
            let count = callgrind::count(path)?;
            counts.lock().expect("no thread panics").insert(path.name(), count);
        }
    };
    let workers = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;
    Ok(counts.into_inner().expect("no thread panics"))
}
