//! `paxoslease sim`: runs seeds or a schedule, summarizes them, explains a violation and draws it.
//!
//! The output on stdout depends only on the options, not on threads or time.

mod runs;
mod summary;

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use paxoslease_sim::baseline::{Naive, Paper};
use paxoslease_sim::diagram;
use paxoslease_sim::scenario::Scenario;
use paxoslease_sim::trace::{Entry, TraceEvent, TrueTime};
use paxoslease_sim::{Keep, Options, PaxosLease, Report, run_with};

use self::runs::Totals;
use self::summary::Summary;
use crate::Verdict;
use crate::args::{Algorithm, Args, ScenarioArg, SimArgs};
use crate::output;

pub(crate) fn run(args: SimArgs) -> anyhow::Result<Verdict> {
    let scenario = match args.scenario {
        Some(ScenarioArg::List) => return list(&args),
        Some(ScenarioArg::Play(scenario)) => Some(scenario),
        None => None,
    };
    if let Some(path) = &args.diagram {
        check_writable(path)?;
    }
    let (totals, shown) = match scenario {
        Some(scenario) => {
            let report = play(args.algorithm, scenario);
            (Totals::of(&report), Some(report))
        }
        None => {
            let options = options(&args, Keep::Nothing);
            let totals = runs::run_all(&args, &options);
            let seed = totals.first_broken.or(args.diagram.as_ref().map(|_| args.seed));
            let kept = Options { keep: Keep::All, ..options };
            (totals, seed.map(|seed| run_one(&args, seed, &kept)))
        }
    };
    let summary = Summary::new(&args, scenario, &totals, shown.as_ref());
    if let (Some(path), Some(report)) = (&args.diagram, &shown) {
        draw(path, &args, scenario, report)?;
    }
    let broken = shown.as_ref().filter(|report| !report.violations.is_empty());
    let explanation = broken.map(|report| summary.explanation(report)).unwrap_or_default();
    if args.json {
        output::to_stderr(&explanation);
        output::to_stdout(&summary.json()?)?;
    } else {
        output::to_stdout(&format!("{}{explanation}", summary.table()))?;
    }
    Ok(if totals.violations == 0 { Verdict::Well } else { Verdict::InvariantBroke })
}

/// Lists the names and descriptions of all schedules.
fn list(args: &SimArgs) -> anyhow::Result<Verdict> {
    if args.diagram.is_some() {
        let kind = clap::error::ErrorKind::ArgumentConflict;
        let message = "--scenario list draws nothing; name a scenario to draw it";
        Args::command().error(kind, message).exit();
    }
    let mut text = String::new();
    for scenario in Scenario::ALL {
        text += &format!("{scenario:<28} {}\n", scenario.description());
    }
    if args.json {
        let all = Scenario::ALL.map(|scenario| {
            serde_json::json!({"name": scenario.name(), "description": scenario.description()})
        });
        text = serde_json::to_string(&all)? + "\n";
    }
    output::to_stdout(&text)?;
    Ok(Verdict::Well)
}

fn options(args: &SimArgs, keep: Keep) -> Options {
    let SimArgs { nodes, clients, faults, .. } = *args;
    Options { faults, nodes, clients, keep, ..Options::default() }
}

/// Runs one seed again, and keeps its whole trace.
fn run_one(args: &SimArgs, seed: u64, options: &Options) -> Report {
    match args.algorithm {
        Algorithm::Paxoslease if args.stack => paxoslease_world::run(seed, options),
        Algorithm::Paxoslease => run_with(PaxosLease::default(), seed, options),
        Algorithm::Paper => run_with(Paper, seed, options),
        Algorithm::Naive => run_with(Naive, seed, options),
    }
}

fn play(algorithm: Algorithm, scenario: Scenario) -> Report {
    match algorithm {
        Algorithm::Paxoslease => scenario.play(PaxosLease::default()),
        Algorithm::Paper => scenario.play(Paper),
        Algorithm::Naive => scenario.play(Naive),
    }
}

/// Fails before a long run, not after it.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .with_context(|| format!("cannot write the diagram to {}", path.display()))?;
    Ok(())
}

/// How many entries of a trace a diagram shows before and after the violation.
const DRAWN: (usize, usize) = (64, 12);

fn draw(
    path: &Path,
    args: &SimArgs,
    scenario: Option<Scenario>,
    report: &Report,
) -> anyhow::Result<()> {
    let algorithm = match args.algorithm {
        Algorithm::Paxoslease if args.stack => "PaxosLease, the whole stack",
        Algorithm::Paxoslease => "PaxosLease",
        Algorithm::Paper => "the paper's algorithm, taken literally",
        Algorithm::Naive => "the naive majority vote",
    };
    let options = match scenario {
        Some(scenario) => diagram::RenderOptions {
            title: format!("{scenario}: {algorithm}"),
            caption: scenario.description().to_owned(),
            ..diagram::RenderOptions::default()
        },
        None => diagram::RenderOptions {
            title: format!("seed {}: {algorithm}", report.seed),
            caption: format!(
                "{} acceptors, {} proposer-only nodes, {} clients, {} faults",
                report.nodes, report.proposers, report.clients, args.faults
            ),
            window: Some(window(&report.trace)),
            ..diagram::RenderOptions::default()
        },
    };
    let svg = diagram::render(&report.trace, &options);
    std::fs::write(path, svg)
        .with_context(|| format!("cannot write the diagram to {}", path.display()))
}

/// The time around the first violation, or the beginning of the trace.
fn window(trace: &[Entry]) -> (TrueTime, TrueTime) {
    let broken = trace.iter().position(|entry| matches!(entry.event, TraceEvent::Violation { .. }));
    let (before, after) = DRAWN;
    let from = broken.map_or(0, |broken| broken.saturating_sub(before));
    let to = broken.map_or(before + after, |broken| broken + after);
    let at = |index: usize| trace.get(index).or(trace.last()).map_or(0, |entry| entry.at.0);
    // Beliefs extend beyond the last event.
    let beyond = if broken.is_some() { (at(to) - at(from)) / 4 } else { 0 };
    (TrueTime(at(from)), TrueTime(at(to) + beyond))
}
