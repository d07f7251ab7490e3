//! The command line. This module only parses: nothing runs here.

mod bench;
mod client;
mod node;
mod trust;

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Command as Definition, CommandFactory as _, FromArgMatches as _};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use paxoslease_sim::Faults;
use paxoslease_sim::scenario::{Scenario, UnknownScenario};

use trust::CONNECTION;

pub(crate) use bench::{BenchArgs, WorkloadKind};
pub(crate) use client::{
    AcquireArgs, AskArgs, CellArgs, ClientCommand, ElectArgs, GetArgs, LaunchArgs, LeaseArgs,
    LockArgs, LossArgs, MembersAction, MembersArgs, OnLost, PrefixArgs, ReleaseArgs, RenewArgs,
    StatusArgs, WaitArgs, WatchdogArgs,
};
pub(crate) use node::{CELL_DEFAULT, DevArgs, LogArgs, LogFormat, Probe, ServeArgs};
pub(crate) use trust::{CertsArgs, Host, TokenArgs, TrustArgs};

/// The help has no room for a variable beside each option.
const CONNECTION_WITH_VARIABLES: &str =
    "Connection (or variables: PAXOSLEASE_ENDPOINTS, PAXOSLEASE_TLS_CA, ..)";

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold());

/// Leases that a small group of nodes agrees on, without disks or synchronised clocks.
#[derive(Parser, Debug)]
#[command(name = "paxoslease", version, about, styles = STYLES)]
#[command(after_help = include_str!("args/help/paxoslease.txt"))]
#[command(after_long_help = include_str!("args/manual/paxoslease.txt"))]
#[command(max_term_width = 100, subcommand_value_name = "COMMAND")]
#[command(disable_help_subcommand = true, disable_help_flag = true)]
pub(crate) struct Args {
    /// Print this help
    #[arg(short, long, global = true, action = ArgAction::HelpShort, display_order = 99)]
    help: Option<bool>,

    /// The command; without one, this help is printed.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Args {
    /// What the help says. Only the manual has the long texts and the environment variables: the
    /// help of a command fits on a screen.
    pub(crate) fn definition() -> Definition {
        let short = |command: Definition| {
            command.mut_args(|arg| match arg.get_help_heading() {
                Some(CONNECTION) => arg.hide_env(true).help_heading(CONNECTION_WITH_VARIABLES),
                _ => arg.hide_env(true),
            })
        };
        short(Self::command()).mut_subcommands(short)
    }

    /// The arguments of this process. Exits if they are wrong, or ask for the help.
    pub(crate) fn of_process() -> Self {
        let matches = Self::definition().try_get_matches();
        let args = matches.and_then(|matches| Self::from_arg_matches(&matches));
        args.unwrap_or_else(|error| suggest_release(error).exit())
    }
}

/// clap suggests the most similar word, which for `unlock` is `lock`.
fn suggest_release(mut error: clap::Error) -> clap::Error {
    let is_unlock = |value: &ContextValue| *value == ContextValue::String("unlock".to_owned());
    if error.get(ContextKind::InvalidSubcommand).is_some_and(is_unlock) {
        let release = ContextValue::Strings(vec!["release".to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, release);
    }
    error
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
    /// Print a page of the manual, or write all of them
    Man(ManArgs),
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("args/help/sim.txt"))]
pub(crate) struct SimArgs {
    /// The first seed; each seed generates a whole world
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// How many seeds to run
    #[arg(long, value_name = "K", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) runs: u64,

    /// Acceptors, 1 to 9 [default: the seed decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) nodes: Option<u16>,

    /// Clients, 1 to 1000 [default: the seed decides]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) clients: Option<u32>,

    /// The algorithm of the nodes
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Algorithm::Paxoslease)]
    pub(crate) algorithm: Algorithm,

    /// The faults; with swarm, the seed chooses
    ///
    /// none, lossy, partitions, crashes, pauses, hostile, or swarm.
    #[arg(long, value_name = "PROFILE", default_value_t = Faults::Swarm)]
    pub(crate) faults: Faults,

    /// Simulate whole processes, not only the protocol
    ///
    /// With clients, sessions, nodes and disks.
    #[arg(long, conflicts_with_all = ["algorithm", "faults"])]
    pub(crate) stack: bool,

    /// Run a scripted schedule, or list them
    #[arg(long, value_name = "NAME|list")]
    #[arg(conflicts_with_all = ["seed", "runs", "nodes", "clients", "faults", "stack"])]
    pub(crate) scenario: Option<ScenarioArg>,

    /// Print only one line of JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw a run as SVG
    ///
    /// The first run with a violation, else the first.
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) diagram: Option<PathBuf>,
}

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
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("none is hidden").get_name().to_owned()
    }
}

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

#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("args/help/man.txt"))]
pub(crate) struct ManArgs {
    /// The page of this command [default: the main page]
    pub(crate) command: Option<String>,

    /// Write every page into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_command_fits_on_a_screen() {
        let mut whole = Args::definition().term_width(80);
        whole.build();
        let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
        let commands: Vec<Definition> = shown.cloned().collect();
        for command in std::iter::once(whole).chain(commands) {
            let mut command = command.term_width(80);
            let help = command.render_help().to_string();
            let name = command.get_name();
            let count = help.lines().count();
            assert!(count <= 50, "the help of {name} has {count} lines:\n{help}");
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "the help of {name} has a wide line");
        }
    }
}
