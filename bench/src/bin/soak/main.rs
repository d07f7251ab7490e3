//! Runs a cell of three processes under a steady load, and tells whether memory, open files or
//! latency grew. It injects no faults; `chaos` does.
//!
//! Every minute is a new load with new connections, so that what a connection, a lease or a client
//! leaves behind adds up. The exit code is 3 if something grew.

mod http_clients;
mod minute;
mod verdict;

use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use paxoslease_bench::peers::{Ours, OursSettings, Service as _};
use paxoslease_rig::interrupt;

use crate::minute::Minute;

/// The exit code of `chaos` for a violation, too.
const VIOLATED: u8 = 3;

/// Runs a cell under a steady load and tells whether memory, files and latency stay flat
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// How long, in minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    interrupt::watch(|| {})?;
    let settings = OursSettings::new("--log warn");
    let cell = Ours::start(OursSettings { tls: Some("off"), ..settings })?;
    let mut report = format!("version {}\n", cell.version()?);
    let mut minutes = Vec::new();
    for number in 1..=cli.minutes {
        let minute = Minute::measure(&cell, Duration::from_secs(60))?;
        println!("{number:>5}/{} min  {minute}", cli.minutes);
        writeln!(report, "{number:>5} min  {minute}")?;
        minutes.push(minute);
    }
    let complaints = verdict::of(&minutes);
    report += &verdict::text(&minutes, &complaints);
    fs::create_dir_all("target/soak")?;
    fs::write("target/soak/soak.txt", report)?;
    println!("\nreport: target/soak/soak.txt\n{}", verdict::text(&minutes, &complaints));
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) })
}
