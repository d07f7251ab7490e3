//! Command line of the exhaustive checker; `cargo xtask check` runs it.

use std::time::Instant;

use clap::Parser;
use paxoslease_check::{Look, profiles, search};

/// Searches every schedule of small cells on the core that ships.
#[derive(Parser)]
struct Args {
    /// Only bounds whose title contains this.
    #[arg(long)]
    only: Option<String>,
}

#[expect(clippy::disallowed_methods, reason = "a report for people says how long it took")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    for bounds in profiles::quick() {
        if args.only.as_ref().is_some_and(|only| !bounds.title.contains(only.as_str())) {
            continue;
        }
        let begun = Instant::now();
        let report = search(&bounds, Look::Strictly);
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
            println!("{harm:?}\n{}", schedule.join("\n"));
        }
    }
    Ok(())
}
