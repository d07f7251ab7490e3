//! What hostile clients and peers cost other clients: pairs of acquire and release at an attacked
//! node, in turns with the same load without the attack; the worst input of every command, found by
//! a search; and the memory of an idle connection.
//!
//! Attackers run on the same machine and take processor time from the cell. So most attack at a
//! stated rate, and the figures say how much the node itself ran.

mod attack;
mod idle;
mod search;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use paxoslease_bench::peers::{Load, Ours, OursSettings, Service as _, Target, pairs};
use paxoslease_load::Extent;

use attack::Attack;

const IDLE_CONNECTIONS: usize = 10_000;

/// Measures what hostile clients and peers cost the others
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// One attack only, by its name; `idle` and `search` are also names
    #[arg(long)]
    only: Option<String>,
    /// With `--only search`: one command only
    #[arg(long)]
    command: Option<String>,
    /// Seconds of search for each command
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Turns with and without each attack
    #[arg(long, default_value_t = 5)]
    turns: u32,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let settings = OursSettings::new("--limit connections=15000");
    if cli.only.as_deref().is_none_or(|only| only == "search") {
        search::search(cli.command.as_deref(), Duration::from_secs_f64(cli.seconds))?;
    }
    if cli.only.as_deref().is_none_or(|only| only == "idle") {
        idle::measure(&settings, IDLE_CONNECTIONS)?;
    }
    let wanted = |attack: &&Attack| cli.only.as_deref().is_none_or(|only| only == attack.name);
    for attack in attack::ALL.iter().filter(wanted) {
        // Each attack gets a new cell, without the leases and connections of the one before.
        let tls = attack.needs_tls.then_some("off");
        let cell = Ours::start(OursSettings { tls, ..settings.clone() })?;
        measure(&cell, attack, &cli)?;
    }
    Ok(())
}

/// Prints one figure of a section.
fn figure(what: &str, value: f64, unit: &str) {
    println!("  {what:<52} {value:>14.2} {unit}");
}

/// The turns with the attack, or those without.
#[derive(Default)]
struct Turns {
    latency: Option<Histogram<u64>>,
    operations: u64,
    cpu: Duration,
    failures: u64,
}

impl Turns {
    fn turn(&mut self, cell: &Ours, turn: Duration) -> Result<()> {
        let node = &cell.members()[0];
        let before = node.cpu()?;
        let loaded = cell.run(&load(turn), Target::One)?;
        self.cpu += node.cpu()? - before;
        self.operations += loaded.operations;
        self.failures += loaded.failures();
        match &mut self.latency {
            Some(latency) => latency.add(&loaded.whole_nanos)?,
            latency @ None => *latency = Some(loaded.whole_nanos),
        }
        Ok(())
    }

    fn micros(&self, quantile: f64) -> f64 {
        let nanos = self.latency.as_ref().map_or(0, |latency| latency.value_at_quantile(quantile));
        nanos as f64 / 1e3
    }
}

fn measure(cell: &Ours, attack: &Attack, cli: &Cli) -> Result<()> {
    let turn = Duration::from_secs(1);
    let (mut calm, mut attacked) = (Turns::default(), Turns::default());
    let mut done = 0;
    Turns::default().turn(cell, turn)?;
    for _ in 0..cli.turns {
        calm.turn(cell, turn)?;
        done += attack.during(cell, || attacked.turn(cell, turn))?;
    }
    ensure!(calm.failures + attacked.failures == 0, "pairs failed under {}", attack.name);
    let (most, rss) = (cell.members()[0].peak()?, cell.members()[0].rss()?);
    println!("{}: {}", attack.name, attack.what);
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let (before, after) = (calm.micros(quantile), attacked.micros(quantile));
        figure(&format!("{name} of a pair without"), before, "us");
        figure(&format!("{name} of a pair beside it"), after, "us");
        figure(&format!("{name}, how many times"), after / before, "");
    }
    let each_second = |side: &Turns| side.operations as f64 / (turn * cli.turns).as_secs_f64();
    figure("pairs a second without", each_second(&calm), "");
    figure("pairs a second beside it", each_second(&attacked), "");
    let share = |side: &Turns| side.cpu.as_secs_f64() / (turn * cli.turns).as_secs_f64() * 100.0;
    figure("the node ran, without", share(&calm), "% of a core");
    figure("the node ran, beside it", share(&attacked), "% of a core");
    figure("done by the attackers", done as f64, attack.unit);
    figure("the node's memory, the most", most as f64 / 1e6, "MB");
    figure("the node's memory after it", rss as f64 / 1e6, "MB");
    println!();
    Ok(())
}

/// One pair at a time on each of four connections, to the attacked node.
fn load(turn: Duration) -> Load {
    Load {
        names: "behaves/".to_owned(),
        warmup: Duration::from_millis(50),
        ..pairs(4, 4, Extent::Lasting(turn))
    }
}
