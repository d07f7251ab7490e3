//! The command line of the harness: reads options, runs, and says by its exit code what came of
//! it: 0 when all was well, 3 on a violation, 1 when the harness itself failed.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, exit};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use paxoslease_bench::process::{self, paxoslease_beside_this};
use paxoslease_chaos::check::{self, Bounds, Rule};
use paxoslease_chaos::directed;
use paxoslease_chaos::network::spaces;
use paxoslease_chaos::report::{self, Facts};
use paxoslease_chaos::run::{self, Order, Played};
use paxoslease_chaos::schedule::Plan;
use paxoslease_chaos::{cell, log};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What a violation ends with.
const VIOLATED: u8 = 3;
/// Violations that are told; all are in the report.
const TOLD_MAX: usize = 20;

/// Breaks a cell of real processes in every way that a seed can think of, and proves that no two
/// clients ever held one lease
#[derive(Parser, Clone, Debug)]
#[command(name = "cargo xtask chaos", bin_name = "cargo xtask chaos")]
#[command(after_help = "Exit code: 0 when all was well, 3 on a violation, 1 for anything else.")]
struct Options {
    /// Draws everything that is random; the same seed plays the same schedule [default: another
    /// one every time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How long faults are drawn for
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    minutes: f64,

    /// How many nodes
    #[arg(long, value_name = "3|5", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(3..=5))]
    nodes: u16,

    /// The longest lease, in milliseconds: rounds are as long as a few of them
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u64).range(500..=60_000))]
    max_lease_ms: u64,

    /// Nodes without a data folder: every start waits for the longest lease
    #[arg(long)]
    diskless: bool,

    /// Switch a safety rule off, as crates/paxoslease-core/src/rules.rs spells it; the run must
    /// then end with exit code 3
    #[arg(long, value_name = "RULE", conflicts_with = "directed")]
    mutant: Option<String>,

    /// Play the schedule that finds this rule missing, with the rule in force
    #[arg(long, value_name = "RULE")]
    directed: Option<String>,

    /// Let clocks be off by far more than the cell allows: two holders are then possible, and only
    /// fences are judged
    #[arg(long, conflicts_with_all = ["mutant", "directed"])]
    clocks_outside: bool,

    /// A minute: a short run that must be clean, then one with a rule switched off that must not
    #[arg(long, conflicts_with_all = ["mutant", "directed", "clocks_outside"])]
    quick: bool,

    /// Stay on loopback, as where there is no root: proxies instead of packets
    #[arg(long)]
    loopback: bool,

    /// Another `paxoslease`, which rolling upgrades put in the place of the first, and back
    #[arg(long, value_name = "FILE")]
    upgrade: Option<PathBuf>,

    /// The `paxoslease` to break, built with the feature `chaos` [default: the one beside this]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Where events, logs and the report go [default: target/chaos/SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    end_with_signals()?;
    if options.quick {
        return quick(options);
    }
    let seed = options.seed.unwrap_or_else(|| log::now() % 1_000_000_007);
    let outcome = Outcome::of(options, seed)?;
    outcome.tell();
    Ok(outcome.code())
}

/// What came of one run.
struct Outcome {
    options: Options,
    seed: u64,
    order: Order,
    played: Played,
    violations: Vec<String>,
}

impl Outcome {
    fn of(options: &Options, seed: u64) -> Result<Self> {
        let order = order(options, seed)?;
        eprintln!("seed {seed}, {}", order.folder.display());
        let played = run::play(&order)?;
        let records = log::read(&played.events)?;
        let bounds = Bounds { settle: played.bound, ..Bounds::default() };
        let verdict = check::judge(&records.events, bounds);
        // Two holders are what such clocks lead to, and one of them cannot write then.
        let excused = [Rule::OneHolder, Rule::HoldersMayWrite];
        let excused = if options.clocks_outside { excused.to_vec() } else { Vec::new() };
        let violations = verdict
            .violations
            .iter()
            .filter(|violation| !excused.contains(&violation.rule))
            .map(|violation| format!("{} ({}): {}", violation.rule, violation.name, violation.text))
            .chain(played.bugs.iter().cloned())
            .collect();
        let versions = [Some(&order.paxoslease), order.upgrade.as_ref()];
        let facts = Facts {
            seed,
            nodes: options.nodes,
            network: played.network.to_owned(),
            versions: versions.into_iter().flatten().map(|file| version(file)).collect(),
            bound: played.bound,
            replay: format!("cargo xtask chaos {}", replay(options, seed)),
            bugs: played.bugs.clone(),
            excused,
        };
        report::write(&order.folder, &facts, &records, &verdict)?;
        Ok(Self { options: options.clone(), seed, order, played, violations })
    }

    /// A short summary, and what to repeat.
    fn tell(&self) {
        println!("{} faults on {}", self.played.faults, self.played.network);
        println!("report: {}", self.order.folder.join("report.md").display());
        if self.violations.is_empty() {
            println!("no violation");
            return;
        }
        for violation in self.violations.iter().take(TOLD_MAX) {
            println!("VIOLATION: {violation}");
        }
        println!("{} violations; the same schedule again:", self.violations.len());
        println!("  cargo xtask chaos {}", replay(&self.options, self.seed));
    }

    fn code(&self) -> ExitCode {
        ExitCode::from(if self.violations.is_empty() { 0 } else { VIOLATED })
    }
}

/// One run that must be clean, and one without a rule that must not.
fn quick(options: &Options) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or(1);
    let folder = options.out.clone().unwrap_or_else(|| "target/chaos/quick".into());
    let sound = Options {
        minutes: 0.3,
        max_lease_ms: 1000,
        out: Some(folder.join("sound")),
        ..options.clone()
    };
    let outcome = Outcome::of(&sound, seed)?;
    outcome.tell();
    if !outcome.violations.is_empty() {
        return Ok(outcome.code());
    }
    let mutant = Options {
        mutant: Some("ProposeRefusesForeign".to_owned()),
        out: Some(folder.join("mutant")),
        ..sound
    };
    let outcome = Outcome::of(&mutant, seed)?;
    let caught = outcome.violations.first();
    let caught = caught.context("a cell without ProposeRefusesForeign was not found out")?;
    println!("without ProposeRefusesForeign, as it must be: {caught}");
    Ok(ExitCode::SUCCESS)
}

/// What a binary calls itself, as far as it does.
fn version(binary: &Path) -> String {
    let output = Command::new(binary).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|error| format!("{}: {error}", binary.display()))
}

fn replay(options: &Options, seed: u64) -> String {
    let Options { minutes, nodes, max_lease_ms, .. } = options;
    let mut line =
        format!("--seed {seed} --minutes {minutes} --nodes {nodes} --max-lease-ms {max_lease_ms}");
    let flags = [
        (options.diskless, "diskless"),
        (options.clocks_outside, "clocks-outside"),
        (options.loopback, "loopback"),
    ];
    for (_, flag) in flags.into_iter().filter(|(is_set, _)| *is_set) {
        line += &format!(" --{flag}");
    }
    for (flag, rule) in [("mutant", &options.mutant), ("directed", &options.directed)] {
        line += &rule.as_ref().map(|rule| format!(" --{flag} {rule}")).unwrap_or_default();
    }
    let files = [("upgrade", &options.upgrade), ("binary", &options.binary)];
    for (flag, file) in files {
        let text = file.as_ref().map(|file| format!(" --{flag} {}", file.display()));
        line += &text.unwrap_or_default();
    }
    line
}

fn order(options: &Options, seed: u64) -> Result<Order> {
    ensure!((0.0..=1440.0).contains(&options.minutes), "--minutes: from 0 to 1440");
    ensure!(
        options.nodes != 4,
        "--nodes: 3 or 5; an even number survives no more than the odd below"
    );
    let paxoslease = options.binary.clone().map_or_else(paxoslease_beside_this, Ok)?;
    let client = std::env::current_exe()?.with_file_name("chaos-client");
    ensure!(client.is_file(), "no {}; build it: cargo build -p paxoslease-chaos", client.display());
    let plan = Plan {
        seed,
        nodes: options.nodes,
        groups: 2,
        clients: 0,
        max_lease: Duration::from_millis(options.max_lease_ms),
        drift_ppm: 1000,
        has_disks: false,
        has_upgrade: options.upgrade.is_some(),
    };
    let rule = options.mutant.as_ref().or(options.directed.as_ref());
    let directed = match rule {
        None => options.clocks_outside.then(|| directed::outside_the_drift(&plan)),
        Some(rule) => {
            known(rule)?;
            directed::schedule(rule, &plan)
        }
    };
    let is_drawn = directed.is_none() && options.directed.is_some();
    ensure!(!is_drawn, "--directed: no schedule of its own; leave it out, the drawn one is used");
    let folder = options.out.clone().unwrap_or_else(|| format!("target/chaos/{seed}").into());
    Ok(Order {
        plan,
        len: Duration::from_secs_f64(options.minutes * 60.0),
        directed,
        without_rule: options.mutant.clone(),
        paxoslease,
        upgrade: options.upgrade.clone(),
        client,
        is_diskless: options.diskless,
        on_loopback: options.loopback,
        folder,
    })
}

fn known(rule: &str) -> Result<()> {
    let names: Vec<String> =
        paxoslease_core::Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect();
    ensure!(
        names.iter().any(|name| name == rule),
        "no rule {rule}; there are {}",
        names.join(", ")
    );
    Ok(())
}

/// Whatever was started or made goes with us when we are asked to go.
fn end_with_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            process::end_all();
            spaces::remove(true);
            cell::unmount_all();
            exit(128 + signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}
