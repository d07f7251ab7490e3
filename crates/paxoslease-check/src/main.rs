//! Command line of the exhaustive checker, which `cargo xtask check` runs.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use paxoslease_check::{Bounds, Checks, Harm, Report, profiles, search};

/// Searches every schedule of small cells on the core that ships.
#[derive(Parser)]
struct Args {
    /// Search larger bounds: each takes minutes and gigabytes
    #[arg(long)]
    deep: bool,
    /// Search cores with one rule switched off, which must do harm
    #[arg(long, conflicts_with = "deep")]
    mutants: bool,
    /// Search only bounds or rules whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let good = if args.mutants { mutants(&args.only) } else { rules(&args) };
    if good { ExitCode::SUCCESS } else { ExitCode::from(3) }
}

/// Searches with all rules in force: there must be no harm.
fn rules(args: &Args) -> bool {
    let all = if args.deep { profiles::deep() } else { profiles::quick() };
    let all: Vec<_> = all.iter().filter(|bounds| bounds.title.contains(&args.only)).collect();
    let (mut states, mut steps, mut cut_short, mut good) = (0, 0, 0, true);
    for bounds in &all {
        let report = timed(&bounds.title, bounds, Checks::All);
        states += report.states;
        steps += report.steps;
        cut_short += usize::from(report.open > 0);
        if let Some((harm, schedule)) = report.harm {
            good = false;
            print_schedule(&harm, &schedule);
        }
    }
    println!("{states} states, {steps} steps: {}", if good { "no harm" } else { "HARM" });
    if cut_short > 0 {
        println!("{cut_short} of {} searches stopped at states_max", all.len());
    }
    good && found_any(all.len(), &args.only)
}

/// Searches with one rule off at a time: there must be harm.
fn mutants(only: &str) -> bool {
    let (mut count, mut good) = (0, true);
    for mutant in profiles::mutants() {
        let rule = format!("{:?}", mutant.rule);
        if !rule.contains(only) {
            continue;
        }
        count += 1;
        let report = timed(&rule, &mutant.bounds, mutant.checks);
        match report.harm {
            Some((harm, schedule)) if !only.is_empty() => print_schedule(&harm, &schedule),
            Some((harm, _)) => println!("    {harm}"),
            None => {
                good = false;
                println!("    NOT CAUGHT");
            }
        }
    }
    good && found_any(count, only)
}

/// Fails if the filter matched nothing.
fn found_any(count: usize, only: &str) -> bool {
    if count == 0 {
        eprintln!("no bounds or rule with {only:?} in its name");
    }
    count > 0
}

#[expect(clippy::disallowed_methods, reason = "a report for people says how long it took")]
fn timed(title: &str, bounds: &Bounds, checks: Checks) -> Report {
    print!("{title:46} ");
    // Otherwise the title of a long search would appear only at its end.
    let _ = std::io::stdout().flush();
    let begun = Instant::now();
    let report = search(bounds, checks);
    println!(
        "{:>10} states {:>11} steps {:>6} node states {:>8} replacing  depth {:>2} {:>6.1} s{}",
        report.states,
        report.steps,
        report.node_states,
        report.replacing,
        report.depth,
        begun.elapsed().as_secs_f64(),
        if report.open == 0 { String::new() } else { format!("  ({} not searched)", report.open) }
    );
    report
}

fn print_schedule(harm: &Harm, schedule: &[String]) {
    println!("    {harm}, by this schedule:");
    for line in schedule {
        println!("    {line}");
    }
}
