//! Why the node has a loop of its own: the same frames between two processes, through that loop
//! and through others, in turn and again and again. What differs within one run is what counts; no
//! machine is quiet, so this is never part of the tests.
//!
//! Left out: `io_uring`. It has no safe interface that is well kept and needs no `unsafe` of ours.

mod link;
mod own;
mod pair;
mod report;
mod runtime;
mod threads;

use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::link::Link;
use crate::report::Report;

/// Compares loops that could drive a shard's sockets
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    /// Fewer rounds: half a minute
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Task {
    /// Answers on a port of its own choice, and prints how long it ran
    #[command(hide = true)]
    Serve {
        #[arg(value_enum)]
        kind: Loop,
        #[arg(long)]
        core: Option<usize>,
    },
    /// Asks for a while, and prints what came of it
    #[command(hide = true)]
    Ask(pair::Ask),
}

/// One end of a connection, and what is said there.
struct Conn {
    stream: TcpStream,
    link: Link,
}

/// What is compared; the first is what the others are compared with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Loop {
    Own,
    Spinning,
    Tokio,
    Threads,
}

impl Loop {
    const ALL: [Self; 4] = [Self::Own, Self::Spinning, Self::Tokio, Self::Threads];

    fn run(self, conns: Vec<Conn>) -> Result<Vec<Link>> {
        match self {
            Self::Own => own::run(conns, Duration::ZERO),
            Self::Spinning => own::run(conns, Duration::from_micros(50)),
            Self::Tokio => runtime::run(conns),
            Self::Threads => threads::run(conns),
        }
    }

    /// What a command line calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Spinning => "spinning",
            Self::Tokio => "tokio",
            Self::Threads => "threads",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Own => "own loop, blocking",
            Self::Spinning => "own loop, spinning 50 us",
            Self::Tokio => "tokio, a task per connection",
            Self::Threads => "a blocking thread per connection",
        }
    }
}

/// Requests in flight, over all connections together.
const LOADS: [usize; 3] = [1, 64, 512];

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.task {
        Some(Task::Serve { kind, core }) => return pair::serve(kind, core),
        Some(Task::Ask(ask)) => return ask.run(),
        None => {}
    }
    let rounds = if cli.quick { 4 } else { 16 };
    let mut report = Report::default();
    for round in 0..rounds {
        eprintln!("round {} of {rounds} ...", round + 1);
        for load in LOADS {
            // Every round begins with another one, so that none always follows the same.
            for turn in 0..Loop::ALL.len() {
                let kind = Loop::ALL[(round + turn) % Loop::ALL.len()];
                report.add(load, kind, pair::measure(kind, load)?);
            }
        }
    }
    if cli.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{report}");
    }
    Ok(())
}
