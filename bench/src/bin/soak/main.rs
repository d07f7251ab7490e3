//! A cell of three processes under the same load for as long as one likes, and whether anything
//! grew: memory, open files, latency. Nothing is broken here on purpose; that is what `chaos` does.
//!
//! Every minute is a load of its own, with connections of its own, so that what a connection, a
//! lease or a client leaves behind adds up. Ends with exit code 3 when something was not flat.

mod minute;
mod page;
mod verdict;
mod visitors;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use paxoslease_bench::peers::{Ours, OursSettings, Service as _};
use paxoslease_rig::interrupt;

use crate::minute::{Minute, Steady};

/// What `chaos` says with it, too: it ran, and what it looked for is there.
const VIOLATED: u8 = 3;

/// Runs a cell under a steady load and tells whether memory, files and latency stay flat
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// How long, in minutes
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Acquire-and-release pairs per second over RESP, a tenth of them on few names
    #[arg(long, default_value_t = 4000.0)]
    pairs: f64,
    /// Leases that are held and renewed
    #[arg(long, default_value_t = 20_000)]
    leases: u32,
    /// Renewals of these per second
    #[arg(long, default_value_t = 4000.0)]
    renewals: f64,
    /// Where the report goes
    #[arg(long, default_value = "target/soak")]
    folder: PathBuf,
    /// The binary to run instead of the one built beside this
    #[arg(long)]
    paxoslease: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let turn = f64::from(cli.leases) / cli.renewals;
    ensure!(
        turn * 2.0 <= minute::TTL.as_secs_f64(),
        "{} leases at {} renewals per second have their turn every {turn:.1} s, and run out after \
         {:?}; ask for fewer leases or more renewals",
        cli.leases,
        cli.renewals,
        minute::TTL,
    );
    interrupt::watch()?;
    let options = ["--log", "warn"].map(str::to_owned).to_vec();
    let (has_http, has_tls) = (true, true);
    let settings = OursSettings {
        binary: cli.paxoslease,
        options,
        has_http,
        has_tls,
        ..OursSettings::default()
    };
    let cell = Ours::start(settings)?;
    let steady = Steady { pairs_rate: cli.pairs, leases: cli.leases, renewals_rate: cli.renewals };
    let bar = ProgressBar::new(cli.minutes.into());
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} minutes  {msg}")?);
    let mut minutes = Vec::new();
    for _ in 0..cli.minutes {
        let minute = Minute::measure(&cell, steady, Duration::from_secs(60))?;
        bar.set_message(minute.to_string());
        bar.suspend(|| println!("{:>5} min  {minute}", minutes.len() + 1));
        bar.inc(1);
        minutes.push(minute);
    }
    bar.finish_and_clear();
    let complaints = verdict::of(&minutes);
    page::write(&cli.folder, &cell.version()?, steady, &minutes, &complaints)?;
    println!("\nreport: {}", cli.folder.join(page::NAME).display());
    for complaint in &complaints {
        println!("NOT FLAT: {complaint}");
    }
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) })
}
