//! The command line. This module only parses: nothing runs here.

mod bench;
mod client;
mod node;
mod trust;

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use paxoslease_sim::Faults;
use paxoslease_sim::scenario::{Scenario, UnknownScenario};

pub(crate) use bench::{BenchArgs, WorkloadKind};
pub(crate) use client::{
    AcquireArgs, AskArgs, CellArgs, ClientCommand, ElectArgs, GetArgs, LaunchArgs, LeaseArgs,
    LockArgs, LossArgs, OnLost, PrefixArgs, ReleaseArgs, RenewArgs, StatusArgs, TenureArgs,
    WaitArgs, WatchdogArgs,
};
pub(crate) use node::{CELL_DEFAULT, DevArgs, LogArgs, LogFormat, ServeArgs};
pub(crate) use trust::{CertsArgs, Host, TokenArgs, TrustArgs};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold());

/// Leases that a small group of nodes agrees on, without disks or synchronised clocks.
#[derive(Parser, Debug)]
#[command(name = "paxoslease", version, about, styles = STYLES, after_help = include_str!("args/help/paxoslease.txt"))]
#[command(max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The command; without one, this help is printed.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands of the binary.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a whole cell in this process, on loopback, to try things out
    Dev(DevArgs),
    /// Run a node of a cell, from options or a file
    Serve(Box<ServeArgs>),
    /// The commands that talk to a cell.
    #[command(flatten)]
    Client(Box<ClientCommand>),
    /// Simulate cells: a seed generates a whole world, and every event is checked
    Sim(SimArgs),
    /// Put a cell under load and report throughput and latency
    Bench(Box<BenchArgs>),
    /// Make certificates for a small cell and its clients
    Certs(CertsArgs),
    /// Make a token for a client, and its entry for the nodes' configuration
    Token(TokenArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

/// Options of `sim`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit code: 0 when every invariant held, 3 when one broke, 2 for bad usage, \
1 for anything else.\nThe same options give the same output and the same trace hash on every machine."
)]
pub(crate) struct SimArgs {
    /// The first seed; each seed generates a whole world
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many seeds to run
    #[arg(long, value_name = "K", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) runs: u64,

    /// How many acceptors, 1 to 9 [default: the seed decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) nodes: Option<u16>,

    /// How many clients, 1 to 1000 [default: the seed decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) clients: Option<u32>,

    /// The algorithm of the nodes
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Algorithm::Paxoslease)]
    pub(crate) algorithm: Algorithm,

    /// The faults: none, lossy, partitions, crashes, pauses, hostile, or swarm: the seed chooses
    #[arg(long, value_name = "PROFILE", default_value_t = Faults::Swarm)]
    pub(crate) faults: Faults,

    /// Simulate whole processes, with clients, sessions, nodes and disks, not the protocol alone
    #[arg(long, conflicts_with_all = ["algorithm", "faults"])]
    pub(crate) stack: bool,

    /// Run a scripted schedule instead, or `list` the schedules
    #[arg(long, value_name = "NAME|list")]
    #[arg(conflicts_with_all = ["seed", "runs", "nodes", "clients", "faults", "stack"])]
    pub(crate) scenario: Option<ScenarioArg>,

    /// Print one line of JSON on stdout, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw a run as SVG: the first with a violation, else the first
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) diagram: Option<PathBuf>,
}

/// The algorithms that a cell can run.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    /// The protocol of this repository
    Paxoslease,
    /// The published algorithm, taken literally
    Paper,
    /// The majority vote of the paper's introduction
    Naive,
}

impl Algorithm {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Paxoslease => "paxoslease",
            Self::Paper => "paper",
            Self::Naive => "naive",
        }
    }
}

/// The value of `--scenario`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScenarioArg {
    List,
    Play(Scenario),
}

impl FromStr for ScenarioArg {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, UnknownScenario> {
        if text == "list" { Ok(Self::List) } else { text.parse().map(Self::Play) }
    }
}

/// Options of `completions`.
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}
