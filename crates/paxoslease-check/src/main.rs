//! Command line of the exhaustive checker; `cargo xtask check` runs it.

use std::time::Instant;

use clap::Parser;
use paxoslease_check::{Bounds, Look, profiles, search};

/// Searches every schedule of small cells on the core that ships.
#[derive(Parser)]
struct Args {
    /// Only bounds whose title contains this.
    #[arg(long)]
    only: Option<String>,
    #[arg(long)]
    mutants: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.mutants {
        for (rule, bounds) in profiles::mutants() {
            if args.only.as_ref().is_some_and(|only| !format!("{rule:?}").contains(only.as_str())) {
                continue;
            }
            print!("{rule:?}: ");
            run(&Bounds { states_max: 12_000_000, ..bounds }, Look::ForHarm, args.only.is_some());
        }
        return Ok(());
    }
    for bounds in profiles::quick() {
        if args.only.as_ref().is_some_and(|only| !bounds.title.contains(only.as_str())) {
            continue;
        }
        run(&bounds, Look::Strictly, true);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a report for people says how long it took")]
fn run(bounds: &Bounds, look: Look, full: bool) {
    let begun = Instant::now();
    let report = search(bounds, look);
    println!(
        "{:40} {:>10} states {:>11} steps {:>6} node states depth {:>3} {:>6.1} s {}",
        bounds.title,
        report.states,
        report.steps,
        report.node_states,
        report.depth,
        begun.elapsed().as_secs_f64(),
        if report.complete { "" } else { "INCOMPLETE" }
    );
    if let Some((harm, schedule)) = report.harm {
        println!("    {harm:?}");
        if full {
            println!("{}", schedule.join("\n"));
        }
    }
}
