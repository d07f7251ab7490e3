//! The repository's own automation, run as `cargo xtask <task>`.
//!
//! Every task is a list of ordinary commands, printed before they run, so that any one of them can
//! be repeated by hand. What the tasks build lives elsewhere; nothing here is shipped.

mod chaos;
mod fuzz;
mod install;
mod instructions;
mod invocation;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::install::Tool;
use crate::invocation::{Invocation, cargo};

/// The tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything a change must pass; installs the tools that are missing
    Test,
    /// Facts about this repository that would drift if nobody looked
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
        /// Keeps the inputs that lead somewhere new in fuzz/corpus
        #[arg(long)]
        keep: bool,
    },
    /// Breaks cells of real processes by a seed and proves that no two clients held one lease
    #[command(disable_help_flag = true)]
    Chaos {
        /// What the harness itself understands, such as `--minutes 5`, `--seed 7` or `--help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Measures the paper's claims in the simulator and writes docs/paper.md with its plots
    Paper {
        /// Writes nothing; fails if docs/ differs from what would be written
        #[arg(long)]
        check: bool,
    },
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
        /// What the program itself understands, such as `--minutes`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Benchmarks; never part of the tests
    Bench {
        /// Which one
        suite: Suite,
        /// What the benchmark itself understands, such as `--quick`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

/// Each is a binary of that name in `bench/`.
#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// What hostile clients and peers cost the others, and an idle connection the node
    Hostile,
    /// Beside Redis, Redlock, ZooKeeper and etcd; installs them, and writes docs/benchmarks.md
    Peers,
}

impl Suite {
    /// What runs it.
    fn command(self) -> Invocation {
        let binary = match self {
            Self::Hostile => "hostile",
            Self::Peers => "peers",
        };
        cargo(["run", "--release", "-p", "paxoslease-bench", "--bin", binary, "--"])
    }
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
    match task {
        Task::Test => test::run(),
        Task::Tidy => tidy::run(),
        Task::Audit => {
            Tool::Deny.ensure()?;
            cargo(["deny", "check", "licenses", "bans", "sources"]).run()?;
            cargo(["deny", "check", "advisories"]).run()
        }
        Task::Check { deep, mutants } => {
            let command = cargo(["run", "--release", "-p", "paxoslease-check", "--"]);
            let flag = deep.then_some("--deep").or(mutants.then_some("--mutants"));
            flag.into_iter().fold(command, Invocation::arg).run()
        }
        Task::Fuzz { seconds, only, keep } => fuzz::run(seconds, only.as_deref(), keep),
        Task::Chaos { args } => chaos::run(args),
        Task::Paper { check } => {
            let command = cargo(["run", "--release", "-p", "paxoslease-bench", "--bin", "paper"]);
            let command = command.arg("--").arg("docs");
            if check { command.arg("--check").run() } else { command.run() }
        }
        Task::Instructions { record, show } => instructions::run(record, show),
        Task::Soak { args } => {
            cargo(["build", "--release", "-p", "paxoslease-cli"]).run()?;
            let soak = cargo(["run", "--release", "-p", "paxoslease-bench", "--bin", "soak", "--"]);
            // Its exit code is ours, as 3 means that something was not flat.
            match args.into_iter().fold(soak, Invocation::arg).code()? {
                0 => Ok(()),
                code => std::process::exit(code),
            }
        }
        Task::Bench { suite, args } => {
            let peers: &[Tool] = match suite {
                Suite::Hostile => &[],
                Suite::Peers => &[Tool::Redis, Tool::Etcd, Tool::ZooKeeper],
            };
            peers.iter().try_for_each(|tool| tool.ensure())?;
            if matches!(suite, Suite::Hostile | Suite::Peers) {
                cargo(["build", "--release", "-p", "paxoslease-cli"]).run()?;
            }
            args.into_iter().fold(suite.command(), Invocation::arg).run()
        }
    }
}
