//! How fast a cell of real processes is, how little it keeps, and what it rides out: the figures
//! of the node, over loopback. Never part of the tests, because no machine is quiet.
//!
//! Where a figure depends on the machine, it stands beside another one taken in the same run, turn
//! by turn. The spread over the turns is printed: a difference within it means nothing.

mod cell;
mod counters;
mod failover;
mod latency;
mod load;
mod member;
mod memory;
mod orders;
mod ping;
mod renewals;
mod rolling;
mod sample;
mod syscalls;
mod system;
mod throughput;

use anyhow::Result;
use clap::{Parser, Subcommand};
use paxoslease_bench::report::Section;

/// Measures cells of three processes on loopback
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// What to measure; everything unless told otherwise
    #[command(subcommand)]
    workload: Option<Workload>,
    #[command(flatten)]
    extent: Extent,
    /// Print a line of JSON per workload instead of tables
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Args, Clone, Copy)]
struct Extent {
    /// Fewer and shorter turns: about two minutes for everything
    #[arg(long, global = true)]
    quick: bool,
    /// Also ten million leases, which takes minutes and some 10 GB of memory
    #[arg(long, global = true, conflicts_with = "quick")]
    full: bool,
}

impl Extent {
    /// One for a short run, the other otherwise.
    fn pick<T>(self, quick: T, usual: T) -> T {
        if self.quick { quick } else { usual }
    }
}

#[derive(Subcommand)]
enum Workload {
    /// An uncontended acquire beside a ping between the same two processes
    Latency,
    /// Acquire and release with many requests under way
    Throughput,
    /// A million leases held and renewed
    Renewals,
    /// kill -9 of a member, and what the others notice
    Failover,
    /// Every member restarted in turn while leases are held
    Rolling,
    /// Resident bytes per lease, and how the table grows
    Memory,
    /// One process of a cell
    #[command(hide = true)]
    Member(member::Member),
}

fn main() -> Result<()> {
    let Cli { workload, extent, json } = Cli::parse();
    let show = |section: Section| {
        if json {
            let mut line = section.to_json();
            line["workload"] = section.key().into();
            println!("{line}");
        } else {
            println!("{section}");
        }
    };
    match workload {
        Some(Workload::Member(member)) => member::run(&member)?,
        Some(Workload::Latency) => show(latency::measure(extent)?),
        Some(Workload::Throughput) => show(throughput::measure(extent)?),
        Some(Workload::Renewals) => show(renewals::measure(extent)?),
        Some(Workload::Failover) => show(failover::measure(extent)?),
        Some(Workload::Rolling) => show(rolling::measure(extent)?),
        Some(Workload::Memory) => show(memory::measure(extent)?),
        None => {
            show(latency::measure(extent)?);
            show(throughput::measure(extent)?);
            show(renewals::measure(extent)?);
            show(failover::measure(extent)?);
            show(rolling::measure(extent)?);
            show(memory::measure(extent)?);
        }
    }
    Ok(())
}
