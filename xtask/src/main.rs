//! The repository's own automation, run as `cargo xtask <task>`. Nothing here is shipped.
//!
//! Every task is a list of commands, printed before they run, so that each can be repeated by hand.

mod chaos;
mod fuzz;
mod install;
mod invocation;
mod package;
mod python;
mod redis;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::invocation::{Invocation, Optimised, cargo};

/// The tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// What every change must pass, in ten minutes; installs the tools that are missing
    Test {
        /// Everything, as continuous builds run it: also other programs, packages, Python, chaos,
        /// mutants; installs system packages
        #[arg(long)]
        all: bool,
    },
    /// Layering, purity, and documents against code
    Tidy,
    /// Licences, bans, sources and known vulnerabilities of the dependencies, by cargo-deny; before
    /// a release and every week, because the list of vulnerabilities changes without a commit here
    Audit,
    /// The exhaustive checker on the shipping core
    Check {
        /// Larger bounds: hours and gigabytes instead of two minutes
        #[arg(long, conflicts_with = "mutants")]
        deep: bool,
        /// Cores with one rule switched off, which must do harm
        #[arg(long)]
        mutants: bool,
    },
    /// Every fuzz target in turn, on the nightly toolchain
    Fuzz {
        /// How long to run each target
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Runs this target only
        #[arg(long)]
        only: Option<String>,
        /// Keeps inputs with new coverage in fuzz/corpus
        #[arg(long)]
        keep: bool,
    },
    /// Breaks cells of real processes by a seed and proves that no two clients held one lease
    #[command(disable_help_flag = true)]
    Chaos {
        /// Options of the harness, such as `--minutes 5`, `--seed 7` or `--help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs unmodified Redis lock libraries and their own tests against a real cell
    #[command(disable_help_flag = true)]
    Redis {
        /// Options of the program, such as `--only walrus`, `--redis` or `--help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Builds what users install, with hashes, in target/package
    Package {
        /// Installs and runs what was built; options of the program, such as `--only image`
        #[arg(long = "try", value_name = "OPTIONS", num_args = 0.., allow_hyphen_values = true)]
        try_out: Option<Vec<String>>,
    },
    /// Builds the Python package and runs its tests against real cells
    Python {
        /// Options of pytest, such as `-k fork`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measures the paper's claims in the simulator and writes docs/paper.md with its plots
    Paper,
    /// Counts the instructions of the hot paths and compares them with bench/instructions.toml
    Instructions {
        /// Records the counts instead
        #[arg(long)]
        record: bool,
        /// Shows where the instructions of one path go, by function, and compares nothing
        #[arg(long, value_name = "PATH", conflicts_with = "record")]
        show: Option<String>,
    },
    /// A cell under a steady load, for an hour or more: nothing may grow
    Soak {
        /// Options of the program, such as `--minutes`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Benchmarks; never part of the tests
    Bench {
        /// Which one
        suite: Suite,
        /// Options of the benchmark, such as `--quick`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// Each is a binary of that name in `bench/`, except Python.
#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// What hostile clients and peers cost the others, and an idle connection the node
    Hostile,
    /// The Python package beside redis-py; writes the figures in docs/python.md
    Python,
    /// Beside Redis, Redlock, ZooKeeper and etcd; installs them, and writes docs/benchmarks.md
    Peers,
}

/// Runs a binary of `bench/`, built as it would ship.
fn bench(binary: &str) -> Invocation {
    cargo(["run", "--release", "-p", "paxoslease-bench", "--bin", binary, "--"])
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let build_node = || cargo(["build", "--release", "-p", "paxoslease-cli"]).run();
    match task {
        Task::Test { all } => test::run(all),
        Task::Tidy => tidy::run(),
        Task::Audit => {
            install::ensure("deny")?;
            cargo(["deny", "check", "licenses", "bans", "sources"]).run()?;
            cargo(["deny", "check", "advisories"]).run()
        }
        Task::Check { deep, mutants } => {
            let flag = deep.then_some("--deep").or(mutants.then_some("--mutants"));
            cargo(["run", "--release", "-p", "paxoslease-check", "--"]).args(flag).run()
        }
        Task::Fuzz { seconds, only, keep } => fuzz::run(seconds, only.as_deref(), keep),
        Task::Chaos { args } => chaos::run(args),
        Task::Redis { args } => redis::run(args),
        Task::Package { try_out } => match try_out {
            Some(args) => package::try_out(args),
            None => package::build(Optimised::Fully),
        },
        Task::Python { args } => python::run(args),
        Task::Paper => bench("paper").args(["docs"]).run(),
        Task::Instructions { record, show } => {
            install::ensure("valgrind")?;
            let show = show.into_iter().flat_map(|path| ["--show".to_owned(), path]);
            bench("instructions").args(record.then_some("--record")).args(show).run()
        }
        Task::Soak { args } => {
            build_node()?;
            // The exit code is 3 if something grew.
            bench("soak").args(args).run_or_exit()
        }
        Task::Bench { suite, args } => {
            if matches!(suite, Suite::Peers) {
                install::ensure("redis etcd zookeeper pip redis-py npm ioredis")?;
            }
            build_node()?;
            match suite {
                Suite::Python => return python::bench(args),
                Suite::Hostile | Suite::Peers => {}
            }
            let binary = suite.to_possible_value().expect("none is hidden");
            bench(binary.get_name()).args(args).run()
        }
    }
}
