//! The paper's claims, measured: runs the simulator and writes `docs/paper.md`, its plots and the
//! diagrams of every schedule.
//!
//! All figures are of simulated time and counted messages, drawn from fixed seeds, so every
//! machine writes the same files; how fast anything runs is the business of the other benchmark.
//! Each module is one section: what is measured, and the words around it.

mod contention;
mod holes;
mod loss;
mod memory;
mod messages;
mod recovery;
mod round_trips;
mod sample;
mod worlds;

use std::path::PathBuf;

use clap::Parser;
use paxoslease_bench::page::Page;

/// Measures the paper's claims in the simulator
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Writes nothing; fails if what is there differs from what would be written
    #[arg(long)]
    check: bool,
    /// Where paper.md, plots/ and diagrams/ are
    folder: PathBuf,
}

const INTRODUCTION: &str = "\
# The paper's claims, measured

Written by `cargo xtask paper`; do not edit. *The paper* is Trencseni, Gazso and Reinhardt,
*PaxosLease: Diskless Paxos for Leases* (arXiv:1209.4187). Three algorithms run in the simulator, on
the same network, clocks and clients, watched by the same checkers:

- **naive**: the majority vote of the paper's introduction;
- **paper**: the paper's algorithm, taken literally, its listings where they differ from its text;
- **PaxosLease**: what this repository ships, core and codec, after the rules of
  [protocol.md](protocol.md).

Time is simulated and every figure is drawn from fixed seeds, so this page is the same wherever it
is made. Nothing here says how fast the code is; `cargo xtask bench micro` does.
";

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let mut page = Page::new("paper.md", "cargo xtask paper", INTRODUCTION);
    for (what, section) in [
        ("contention", contention::section as fn(&mut Page) -> anyhow::Result<()>),
        ("round trips", round_trips::section),
        ("recovery", recovery::section),
        ("loss", loss::section),
        ("messages", messages::section),
        ("memory", memory::section),
        ("what the paper lacks", holes::section),
    ] {
        eprintln!("{what} ...");
        section(&mut page)?;
    }
    if cli.check { page.check(&cli.folder) } else { page.write(&cli.folder) }
}
