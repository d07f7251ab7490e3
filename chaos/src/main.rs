//! The command line of the harness. The exit code is 0 without a violation, 3 after one, and 1 if
//! the harness itself failed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};
use paxoslease_chaos::check::{self, Bounds, Rule, Verdict};
use paxoslease_chaos::directed;
use paxoslease_chaos::linear::args::{LinearArgs, judge_run};
use paxoslease_chaos::network::spaces;
use paxoslease_chaos::report::{self, ReportFacts};
use paxoslease_chaos::run::{self, RunOptions, RunOutcome};
use paxoslease_chaos::schedule::Plan;
use paxoslease_chaos::{cell, log, traces};
use paxoslease_rig::{interrupt, paxoslease_beside_this};
use paxoslease_trace::Clocks;
use sha2::{Digest as _, Sha256};

/// The exit code after a violation.
const VIOLATED: u8 = 3;
/// The exit code after a failure of the harness.
const FAILED: u8 = 1;
/// Violations that clocks outside of the drift may cause.
const OUTSIDE: [Rule; 3] = [Rule::OneHolder, Rule::HoldersMayWrite, Rule::LeasesAreKept];
/// The least time that a busy machine gets to hand a lease over.
const AVAILABLE_MIN: Duration = Duration::from_secs(1);
/// The variables that only a build with the feature `chaos` reads.
const KNOBS: [&str; 2] = ["PAXOSLEASE_CLOCK_PPM", "PAXOSLEASE_WITHOUT_RULE"];
/// The most violations on the terminal; the report has all of them.
const TOLD_MAX: usize = 20;
/// The rule that a change of members shows to be missing.
const CHANGE: &str = "EndWaits";
/// How often a mutant is run until its harm shows.
const TRIES: u64 = 3;

/// Injects faults, drawn from a seed, into a cell of real processes, and proves that no two clients
/// ever held one lease
#[derive(Parser, Clone, Debug)]
#[command(name = "cargo xtask chaos", bin_name = "cargo xtask chaos")]
#[command(after_help = "Exit code: 0 when all was well, 3 on a violation, 1 for anything else.")]
#[command(args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,

    /// The seed of everything random; the same seed gives the same schedule [default: a new one
    /// every time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// How long faults are drawn for
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    minutes: f64,

    /// How many nodes
    #[arg(long, value_name = "3|5", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(3..=5))]
    nodes: u16,

    /// How many more nodes there are, which `members` commands make members and remove again
    /// [default: 2; none without data folders or with a directed schedule]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=4))]
    spares: Option<u16>,

    /// The longest lease, in milliseconds: rounds are as long as a few of them
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u64).range(500..=60_000))]
    max_lease_ms: u64,

    /// Nodes without a data folder: every start waits for the longest lease
    #[arg(long)]
    diskless: bool,

    /// Switch a safety rule off, by its name in crates/paxoslease-core/src/rules.rs; the run must
    /// then end with exit code 3
    #[arg(long, value_name = "RULE", conflicts_with = "directed")]
    mutant: Option<String>,

    /// Play the schedule that finds this rule missing, with the rule in force
    #[arg(long, value_name = "RULE")]
    directed: Option<String>,

    /// Give clocks a much larger rate error than the cell allows: two holders are then possible,
    /// and only fences are judged
    #[arg(long, conflicts_with_all = ["mutant", "directed"])]
    clocks_outside: bool,

    /// A minute: a short run that must be clean, then one with a rule switched off that must not
    #[arg(long, conflicts_with_all = ["mutant", "directed", "clocks_outside"])]
    quick: bool,

    /// Switch off every rule that has a directed schedule, one after another: each must lead to two
    /// holders at once
    #[arg(long, conflicts_with_all = ["mutant", "directed", "clocks_outside", "quick"])]
    mutants: bool,

    /// Stay on loopback, as without root: the network has no faults then
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

#[derive(Subcommand, Clone, Debug)]
enum Task {
    Linear(LinearArgs),
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            FAILED.into()
        }
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    interrupt::watch(|| {
        spaces::remove(true);
        cell::unmount_all();
    })?;
    if let Some(Task::Linear(args)) = &options.task {
        return Ok(code(!judge_run(args)?, false).into());
    }
    if options.quick {
        return quick(options);
    }
    if options.mutants {
        return mutants(options);
    }
    let seed = options.seed.unwrap_or_else(|| log::now() % 1_000_000_007);
    let outcome = Outcome::of(options, seed)?;
    outcome.tell();
    Ok(outcome.code().into())
}

struct Outcome {
    facts: ReportFacts,
    folder: PathBuf,
    verdict: Verdict,
    /// The verdict on the traces; `None` if a binary writes none.
    traced: Option<paxoslease_trace::Report>,
    violations: Vec<String>,
}

impl Outcome {
    fn of(options: &Options, seed: u64) -> Result<Self> {
        let order = order(options, seed)?;
        eprintln!("seed {seed}, {}", order.folder.display());
        let versions = [Some(&order.paxoslease), order.upgrade.as_ref()];
        let versions =
            versions.into_iter().flatten().map(|file| identity(file)).collect::<Result<_>>()?;
        let mut outcome = run::play(&order)?;
        let records = log::read(&order.events())?;
        let verdict = check::judge(&records.events, bounds(&order.plan));
        let traced = match writes_traces(&order)? {
            true => Some(traces::judge(&order.folder, clocks(options))?),
            false => None,
        };
        let expected = if options.clocks_outside { OUTSIDE.to_vec() } else { Vec::new() };
        if options.clocks_outside && verdict.count(Rule::OneHolder) == 0 {
            let bug = "no two held at once, though clocks were that far off: no fault";
            outcome.bugs.push(bug.to_owned());
        }
        let unruly = traced.iter().flat_map(|traced| &traced.violations);
        outcome.bugs.extend(unruly.map(|(rule, seen)| format!("{rule}: {seen}")));
        let violations = verdict
            .violations
            .iter()
            .filter(|violation| !expected.contains(&violation.rule))
            .map(|violation| format!("{} ({}): {}", violation.rule, violation.name, violation.text))
            .chain(outcome.bugs.iter().cloned())
            .collect();
        let replay = format!("cargo xtask chaos {}", replay(options, seed));
        let facts = ReportFacts { seed, nodes: options.nodes, versions, replay, outcome, expected };
        report::write(&order.folder, &facts, &records, &verdict)?;
        Ok(Self { facts, folder: order.folder, verdict, traced, violations })
    }

    /// Prints a summary, and the command that repeats the run.
    fn tell(&self) {
        let RunOutcome { faults, network, failure, .. } = &self.facts.outcome;
        println!("{faults} faults on {network}");
        match &self.traced {
            Some(traced) => println!("traces: {traced}"),
            None => println!("traces: none, not every binary was built with the feature `trace`"),
        }
        println!("report: {}", self.folder.join("report.md").display());
        if let Some(failure) = failure {
            println!("the run ended before its time: {failure}");
        }
        if self.violations.is_empty() {
            match self.verdict.count(Rule::OneHolder) {
                0 => println!("no violation"),
                met => println!("no violation but two holders {met} times, as expected"),
            }
            return;
        }
        for violation in self.violations.iter().take(TOLD_MAX) {
            println!("VIOLATION: {violation}");
        }
        println!("{} violations; the same schedule again:", self.violations.len());
        println!("  {}", self.facts.replay);
    }

    fn code(&self) -> u8 {
        code(!self.violations.is_empty(), self.facts.outcome.failure.is_some())
    }
}

/// A violation counts, even if the harness failed later.
const fn code(is_violated: bool, is_failed: bool) -> u8 {
    match (is_violated, is_failed) {
        (true, _) => VIOLATED,
        (false, true) => FAILED,
        (false, false) => 0,
    }
}

/// The guarantees of a cell: a waiter gets a released name long before the lease would have ended.
fn bounds(plan: &Plan) -> Bounds {
    Bounds {
        available: (plan.max_lease / 2).max(AVAILABLE_MIN),
        settle: plan.bound(),
        silence: plan.bound() + Plan::QUIET,
        ..Bounds::default()
    }
}

const fn clocks(options: &Options) -> Clocks {
    if options.clocks_outside { Clocks::Outside } else { Clocks::WithinDrift }
}

/// A run without violations, then a mutant that must be caught.
fn quick(options: &Options) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or(1);
    let folder = options.out.clone().unwrap_or_else(|| "target/chaos/quick".into());
    let options = Options { minutes: 0.2, ..options.clone() };
    let sound = Options { out: Some(folder.join("sound")), ..options.clone() };
    let outcome = Outcome::of(&sound, seed)?;
    outcome.tell();
    if outcome.code() != 0 {
        return Ok(outcome.code().into());
    }
    caught(&options, "ProposeRefusesForeign", seed, folder.join("mutant"))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs every mutant that has a directed schedule. Each must be caught.
fn mutants(options: &Options) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or(1);
    let folder = options.out.clone().unwrap_or_else(|| "target/chaos/mutants".into());
    let plan = plan(options, seed).with_spares(2);
    let (directed, others): (Vec<String>, Vec<String>) =
        rules().into_iter().partition(|rule| directed::schedule(rule, &plan).is_some());
    let mut missed = Vec::new();
    for rule in directed {
        // A slow machine can hide the harm, but not every time.
        let is_caught = (seed..seed + TRIES).any(|seed| {
            let out = folder.join(&rule).join(seed.to_string());
            caught(options, &rule, seed, out).inspect_err(|error| println!("{error:#}")).is_ok()
        });
        if !is_caught {
            missed.push(rule);
        }
    }
    println!(
        "{} rules have no schedule here: their harm takes a message that is late by the right \
         amount or a crash at the right instant, which processes meet by luck only. `cargo xtask \
         check` finds each by exhaustive search:",
        others.len()
    );
    others.iter().for_each(|rule| println!("  {rule}"));
    ensure!(missed.is_empty(), "not found out: {}", missed.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Runs a mutant, in which two clients must hold one lease at once. Other violations do not count:
/// a slow machine may cause them.
fn caught(options: &Options, rule: &str, seed: u64, out: PathBuf) -> Result<()> {
    let (mutant, out) = (Some(rule.to_owned()), Some(out));
    let outcome = Outcome::of(&Options { mutant, out, ..options.clone() }, seed)?;
    let mut met = outcome.verdict.violations.iter().filter(|met| met.rule == Rule::OneHolder);
    let first = met.next().with_context(|| {
        format!("without {rule}: NOT FOUND OUT; see {}", outcome.folder.display())
    })?;
    println!("without {rule}, as it must be: {} and {} more", first.text, met.count());
    Ok(())
}

/// The version of a binary and a part of its hash. Fails if the binary ignores [`KNOBS`].
fn identity(binary: &Path) -> Result<String> {
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    ensure!(
        has_knobs(&bytes),
        "{} ignores the rates of clocks and the rules that are off; build it with `--features \
         paxoslease-cli/chaos`",
        binary.display()
    );
    let hash: String =
        Sha256::digest(&bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let output = Command::new(binary).arg("--version").output();
    let output = output.with_context(|| format!("cannot run {}", binary.display()))?;
    Ok(format!("{} ({hash})", String::from_utf8_lossy(&output.stdout).trim()))
}

fn has_knobs(binary: &[u8]) -> bool {
    KNOBS.iter().all(|knob| contains(binary, knob))
}

fn contains(binary: &[u8], knob: &str) -> bool {
    binary.windows(knob.len()).any(|text| text == knob.as_bytes())
}

/// Whether every binary writes traces: incomplete traces cannot be judged.
fn writes_traces(order: &RunOptions) -> Result<bool> {
    let mut binaries = [Some(&order.paxoslease), order.upgrade.as_ref()].into_iter().flatten();
    binaries.try_fold(true, |all, binary| Ok(all && contains(&fs::read(binary)?, traces::FOLDER)))
}

fn replay(options: &Options, seed: u64) -> String {
    let flag = |is_set: bool| is_set.then(String::new);
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let words = [
        ("seed", Some(seed.to_string())),
        ("minutes", Some(options.minutes.to_string())),
        ("nodes", Some(options.nodes.to_string())),
        ("spares", options.spares.map(|spares| spares.to_string())),
        ("max-lease-ms", Some(options.max_lease_ms.to_string())),
        ("diskless", flag(options.diskless)),
        ("clocks-outside", flag(options.clocks_outside)),
        ("loopback", flag(options.loopback)),
        ("mutant", options.mutant.clone()),
        ("directed", options.directed.clone()),
        ("upgrade", path(&options.upgrade)),
        ("binary", path(&options.binary)),
    ];
    let words = words.into_iter().filter_map(|(name, value)| Some(format!("--{name} {}", value?)));
    words.collect::<Vec<_>>().join(" ")
}

fn order(options: &Options, seed: u64) -> Result<RunOptions> {
    ensure!((0.0..=1440.0).contains(&options.minutes), "--minutes: from 0 to 1440");
    ensure!(
        options.nodes != 4,
        "--nodes: 3 or 5; an even number survives no more than the odd below"
    );
    let paxoslease = options.binary.clone().map_or_else(paxoslease_beside_this, Ok)?;
    let client = std::env::current_exe()?.with_file_name("chaos-client");
    ensure!(client.is_file(), "no {}; `cargo xtask chaos` builds it", client.display());
    let plan = plan(options, seed);
    let rule = options.mutant.as_ref().or(options.directed.as_ref());
    let directed = match rule {
        None => options.clocks_outside.then(|| directed::outside_the_drift(&plan)),
        Some(rule) => {
            ensure!(rules().contains(rule), "no rule {rule}; there are {}", rules().join(", "));
            directed::schedule(rule, &plan)
        }
    };
    let is_drawn = directed.is_none() && options.directed.is_some();
    ensure!(!is_drawn, "--directed: no schedule of its own; leave it out, the drawn one is used");
    let folder = options.out.clone().unwrap_or_else(|| format!("target/chaos/{seed}").into());
    Ok(RunOptions {
        plan,
        len: Duration::from_secs_f64(options.minutes * 60.0),
        directed,
        without_rule: options.mutant.clone(),
        paxoslease,
        upgrade: options.upgrade.clone(),
        client,
        is_diskless: options.diskless,
        on_loopback: options.loopback,
        has_traces: true,
        folder,
    })
}

fn plan(options: &Options, seed: u64) -> Plan {
    let plan = Plan::new(seed, options.nodes, Duration::from_millis(options.max_lease_ms));
    let rule = options.mutant.as_deref().or(options.directed.as_deref());
    let is_fixed = options.diskless || options.clocks_outside;
    let spares = match rule {
        Some(CHANGE) => 2,
        None if !is_fixed => options.spares.unwrap_or(2),
        _ => 0,
    };
    let plan = plan.with_spares(spares);
    Plan { has_upgrade: options.upgrade.is_some(), ..plan }
}

fn rules() -> Vec<String> {
    paxoslease_core::Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_told_also_if_the_harness_failed_later() {
        assert_eq!(code(true, true), VIOLATED);
        assert_eq!(code(true, false), VIOLATED);
        assert_eq!(code(false, true), FAILED);
        assert_eq!(code(false, false), 0);
    }

    #[test]
    fn a_binary_that_would_ignore_the_knobs_is_refused() {
        assert!(has_knobs(b"..PAXOSLEASE_CLOCK_PPM..PAXOSLEASE_WITHOUT_RULE.."));
        assert!(!has_knobs(b"..PAXOSLEASE_CLOCK_PPM.."));
        let error = identity(Path::new("/bin/sh")).expect_err("it is no node");
        assert!(error.to_string().contains("paxoslease-cli/chaos"), "{error}");
    }
}
