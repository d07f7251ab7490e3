//! How fast the protocol is on one thread and how little it keeps: the figures of the core and
//! codec, without a network. Never part of the tests, because no machine is quiet.
//!
//! Clocks show what it is like here; what it costs anywhere is `cargo xtask instructions`.
//! `--quick` takes under a minute, `--json` prints for machines.

mod acceptor;
mod cell;
mod memory;
mod simulator;

use clap::Parser;
use paxoslease_bench::report::Report;

/// Measures the protocol core and codec on one thread
#[derive(Parser)]
#[command(version)]
struct Cli {
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

fn main() {
    let cli = Cli::parse();
    let leases = cli.leases.unwrap_or(if cli.quick { 1_000_000 } else { 10_000_000 });
    let mut report = Report::default();
    // First, while the heap is untouched: a used one would hide what growing costs.
    eprintln!("filling an acceptor with {leases} leases ...");
    report.add(acceptor::measure(leases));
    eprintln!("acquiring, releasing and renewing in a cell of three ...");
    report.add(cell::measure(if cli.quick { 5 } else { 15 }));
    eprintln!("simulating ...");
    report.add(simulator::measure(if cli.quick { 20 } else { 200 }));
    if cli.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{report}");
    }
}
