//! Command line of the exhaustive checker; `cargo xtask check` runs it.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use paxoslease_check::{Bounds, Harm, Look, Report, profiles, search};

/// Searches every schedule of small cells on the core that ships.
#[derive(Parser)]
struct Args {
    /// Larger bounds: minutes and gigabytes each.
    #[arg(long)]
    deep: bool,
    /// Cores with one rule switched off, which must do harm.
    #[arg(long, conflicts_with = "deep")]
    mutants: bool,
    /// Only bounds whose title, or rules whose name, contains this.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let good = if args.mutants { mutants(&args.only) } else { rules(&args) };
    if good { ExitCode::SUCCESS } else { ExitCode::from(3) }
}

/// Everything holds within the bounds.
fn rules(args: &Args) -> bool {
    let all = if args.deep { profiles::deep() } else { profiles::quick() };
    let all: Vec<_> = all.iter().filter(|bounds| bounds.title.contains(&args.only)).collect();
    let (mut states, mut steps, mut cut_short, mut good) = (0, 0, 0, true);
    for bounds in &all {
        let report = timed(bounds.title, bounds, Look::Strictly);
        states += report.states;
        steps += report.steps;
        cut_short += usize::from(report.open > 0);
        if let Some((harm, schedule)) = report.harm {
            good = false;
            tell(&harm, &schedule);
        }
    }
    println!("{states} states, {steps} steps: {}", if good { "no harm" } else { "HARM" });
    if cut_short > 0 {
        println!("{cut_short} of {} not searched to the end", all.len());
    }
    good && found_any(all.len(), &args.only)
}

/// Every rule is needed.
fn mutants(only: &str) -> bool {
    let (mut count, mut good) = (0, true);
    for mutant in profiles::mutants() {
        let rule = format!("{:?}", mutant.rule);
        if !rule.contains(only) {
            continue;
        }
        count += 1;
        let report = timed(&rule, &mutant.bounds, mutant.look);
        match report.harm {
            Some((harm, schedule)) if !only.is_empty() => tell(&harm, &schedule),
            Some((harm, _)) => println!("    {harm}"),
            None => {
                good = false;
                println!("    NOT CAUGHT");
            }
        }
    }
    good && found_any(count, only)
}

/// A search of nothing finds nothing.
fn found_any(count: usize, only: &str) -> bool {
    if count == 0 {
        eprintln!("nothing here is called {only:?}");
    }
    count > 0
}

#[expect(clippy::disallowed_methods, reason = "a report for people says how long it took")]
fn timed(title: &str, bounds: &Bounds, look: Look) -> Report {
    print!("{title:46} ");
    // Without this the title of a long search would appear only when it is over.
    let _ = std::io::stdout().flush();
    let begun = Instant::now();
    let report = search(bounds, look);
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

fn tell(harm: &Harm, schedule: &[String]) {
    println!("    {harm}, by this schedule:");
    for line in schedule {
        println!("    {line}");
    }
}
