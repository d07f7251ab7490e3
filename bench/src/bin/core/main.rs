//! How fast the protocol is on one thread and how little it keeps: the figures of the core and
//! codec, without a network. Never part of the tests, because no machine is quiet.
//!
//! Wall clocks show what it is like here, instruction counts what it costs anywhere. `--quick`
//! takes under a minute, `--json` prints for machines.

mod acceptor;
mod cell;
mod instructions;
mod memory;
mod names;
mod simulator;

use anyhow::Result;
use clap::{Parser, Subcommand};
use paxoslease_bench::report::Report;

use crate::instructions::Workload;

/// Measures the protocol core and codec on one thread
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    task: Option<Task>,
    /// Smaller tables and fewer repetitions: under a minute
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Live leases in the acceptor's table [default: 10 million, quick: 1 million]
    #[arg(long)]
    leases: Option<u32>,
}

#[derive(Subcommand)]
enum Task {
    /// Runs one workload and prints nothing: what valgrind counts
    #[command(hide = true)]
    Count { workload: Workload, operations: u32 },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(Task::Count { workload, operations }) = cli.task {
        workload.run(operations);
        return Ok(());
    }
    let leases = cli.leases.unwrap_or(if cli.quick { 1_000_000 } else { 10_000_000 });
    let mut report = Report::default();
    // First, while the heap is untouched: a used one would hide what growing costs.
    eprintln!("filling an acceptor with {leases} leases ...");
    report.add(acceptor::measure(leases));
    eprintln!("acquiring, releasing and renewing in a cell of three ...");
    report.add(cell::measure(if cli.quick { 5 } else { 15 }));
    eprintln!("simulating ...");
    report.add(simulator::measure(if cli.quick { 20 } else { 200 }));
    eprintln!("counting instructions ...");
    report.extend(instructions::measure(cli.quick)?);
    if cli.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{report}");
    }
    Ok(())
}
