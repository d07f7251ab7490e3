//! The command line of `chaos linear`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use paxoslease_rig::paxoslease_beside_this;

use super::report;
use super::run::{Faults, LinearOptions, run};
use crate::log;

/// Lets many clients use few keys at once, and a linearizability checker judge every reply
#[derive(Args, Clone, Debug)]
pub struct LinearArgs {
    /// The seed of commands and faults; the schedule of threads remains to chance [default: a new
    /// one every time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How long clients run at most
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,

    /// How many operations there are at most
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    operations: u64,

    /// Use a Redis server, the control, instead of a cell of three nodes
    #[arg(long, conflicts_with_all = ["faults", "binary"])]
    redis: bool,

    /// What happens to one node after another
    #[arg(long, value_enum, default_value = "none")]
    faults: Faults,

    /// How many clients
    #[arg(long, value_name = "N", default_value_t = 24)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,

    /// How many keys are in use at a time
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    keys: u16,

    /// After how many operations a key is replaced by a new one: the time for a verdict can grow
    /// exponentially with them
    #[arg(long, value_name = "N", default_value_t = 40)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=200))]
    operations_per_key: u16,

    /// The longest lease of the cell, in milliseconds. A killed node votes again after the longest
    /// ttl in use [default: 60000; with --faults kill 2000]
    #[arg(long, value_name = "MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(500..=60_000))]
    max_lease_ms: Option<u64>,

    /// Also use leases that are longer than the longest lease of the cell, or endless
    #[arg(long)]
    beyond: bool,

    /// The `paxoslease` to judge [default: the one beside this]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Where the data of nodes, logs and the report go [default: target/chaos/linear]
    #[arg(long, value_name = "DIR", default_value = "target/chaos/linear")]
    out: PathBuf,
}

/// Runs the workload and prints the figures. Whether every reply was right.
pub fn judge_run(args: &LinearArgs) -> Result<bool> {
    ensure!((0.0..=1440.0).contains(&args.minutes), "--minutes: from 0 to 1440");
    let paxoslease = match (&args.binary, args.redis) {
        (_, true) => None,
        (Some(binary), false) => Some(binary.clone()),
        (None, false) => Some(paxoslease_beside_this()?),
    };
    let is_killing = args.faults == Faults::Kill;
    let max_lease_ms = args.max_lease_ms.unwrap_or(if is_killing { 2000 } else { 60_000 });
    let options = LinearOptions {
        seed: args.seed.unwrap_or_else(|| log::now() % 1_000_000_007),
        len: Duration::from_secs_f64(args.minutes * 60.0),
        operations: args.operations,
        clients: args.clients,
        keys: args.keys.into(),
        operations_per_key: args.operations_per_key.into(),
        max_lease: Duration::from_millis(max_lease_ms),
        beyond: args.beyond,
        faults: args.faults,
        paxoslease,
        folder: args.out.clone(),
    };
    eprintln!("seed {}, {}", options.seed, options.folder.display());
    let findings = run(&options)?;
    let text = report::text(&findings);
    fs::create_dir_all(&options.folder)?;
    fs::write(options.folder.join("linear.txt"), &text)?;
    print!("{text}");
    Ok(findings.is_clean())
}
