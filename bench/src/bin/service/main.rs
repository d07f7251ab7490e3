//! The service beside a Redis server: a cell of three processes with a quorum on every operation,
//! one Redis that keeps nothing and asks nobody, and the same load on both, in turn and again and
//! again. What differs within one run is what counts; no machine is quiet, so this is never part
//! of the tests.
//!
//! Everything runs on loopback. Processes are ended by their ids, folders are removed.

mod cases;
mod report;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::cases::{Case, SIDES, Side};
use crate::report::Report;
use crate::servers::{Cell, Redis, Server};

/// Compares a cell of three processes with one Redis server, under the same load
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Fewer and shorter turns: less than a minute
    #[arg(long)]
    quick: bool,
    /// Only loads whose title contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// How long the threads of the cell look for work before they sleep, such as 50us
    #[arg(long, value_name = "TIME", default_value = "0s")]
    spin: String,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// The binary `paxoslease` [default: the one beside this]
    #[arg(long, value_name = "FILE")]
    paxoslease: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let (rounds, span) = if cli.quick { (3, 500) } else { (5, 1500) };
    let span = Duration::from_millis(span);
    let cases: Vec<Case> =
        cases::all().into_iter().filter(|case| case.title.contains(&cli.only)).collect();
    let redis = Redis::start()?;
    let cell = Cell::start(cli.paxoslease, &cli.spin)?;
    let mut report = Report::default();
    for round in 0..rounds {
        eprintln!("round {} of {rounds} ...", round + 1);
        for case in &cases {
            // Every round begins with another side, so that none always follows the same.
            for turn in 0..SIDES.len() {
                let side = SIDES[(round + turn) % SIDES.len()];
                let Some(plan) = case.plan(side, &cell.endpoints, &redis.endpoint, span) else {
                    continue;
                };
                let server: &dyn Server = match side {
                    Side::Redis => &redis,
                    Side::OneNode | Side::Spread => &cell,
                };
                let before = server.cpu()?;
                let loaded = paxoslease_load::run(&plan, &mut |_| {})?;
                report.add(case, side, &loaded, server.cpu()? - before);
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
