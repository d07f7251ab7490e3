//! Options of the commands that talk to a cell.
//!
//! This module parses, and checks what it can check without a cell. The library and the cell check
//! the bounds of names and ttls.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use paxoslease_node::parse_duration;

use super::trust::TrustArgs;

const LOCK_USAGE: &str = "paxoslease lock [OPTIONS] <NAME> [--] <CMD> [ARGS]...";

const ELECT_USAGE: &str = "\
paxoslease elect [OPTIONS] <NAME> [[--] <CMD> [ARGS]...]
       paxoslease elect --listen <NAME>";

/// The commands that talk to a cell.
#[derive(Subcommand, Debug)]
pub(crate) enum ClientCommand {
    /// Run a command while holding a lease, one at a time among all machines
    Lock(LockArgs),
    /// Become a candidate and lead until stopped; or show who leads
    Elect(ElectArgs),
    /// Acquire a lease and print its fence; it is not renewed
    Acquire(AcquireArgs),
    /// Renew a lease that `acquire` acquired
    Renew(RenewArgs),
    /// Release a lease that `acquire` acquired
    Release(ReleaseArgs),
    /// Show who holds a lease
    Get(GetArgs),
    /// List leases that are held
    #[command(after_help = include_str!("help/list.txt"))]
    List(PrefixArgs),
    /// Print a line whenever a lease is acquired, released or expires
    #[command(after_help = include_str!("help/watch.txt"))]
    Watch(PrefixArgs),
    /// Show the nodes of the cell, and why a lease cannot be acquired
    Status(StatusArgs),
    /// Watch the command of a lock
    #[command(hide = true)]
    Watchdog(WatchdogArgs),
    /// Become the command of a lock
    #[command(hide = true)]
    Launch(LaunchArgs),
}

/// The cell, and the identity of this client.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CellArgs {
    /// A node of the cell; repeat it or use commas for more nodes, which are tried in order
    #[arg(long = "endpoint", value_name = "HOST:PORT", env = "PAXOSLEASE_ENDPOINTS")]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:7400")]
    pub(crate) endpoints: Vec<String>,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// The cell, and the form of the output.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A lease that was acquired before.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TenureArgs {
    /// The name of the lease
    pub(crate) name: String,

    /// The fence that `acquire` printed
    #[arg(long, value_name = "N")]
    pub(crate) fence: u64,
}

/// The lease to acquire.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LeaseArgs {
    /// The name of the lease, such as jobs/nightly: up to 512 bytes
    pub(crate) name: String,

    /// How long the lease lasts unless it is renewed, from 50ms to the cell's max_lease. If the
    /// holder dies, other clients can acquire the lease only after this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    /// The holder text that other clients see; user@host:pid unless given
    #[arg(long, value_name = "TEXT")]
    pub(crate) holder: Option<String>,
}

/// What to do while another client holds the lease.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WaitArgs {
    /// How long to wait while another client holds the lease [default: for ever]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait
    #[arg(short, long)]
    pub(crate) no_wait: bool,

    /// The exit code when another client holds the lease and the wait, if any, is over
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    pub(crate) conflict_exit_code: u8,
}

impl WaitArgs {
    /// The default, as for `flock`.
    pub(crate) const FOR_EVER: Self = Self { wait: None, no_wait: false, conflict_exit_code: 1 };

    /// How long to wait at most.
    pub(crate) fn wait_max(&self) -> Duration {
        if self.no_wait { Duration::ZERO } else { self.wait.unwrap_or(Duration::MAX) }
    }
}

/// How CMD ends if the lease is lost.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LossArgs {
    /// What happens to CMD if the lease can no longer be held safely
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// The time for CMD between SIGTERM and SIGKILL [default: 5s, but at most a third of the ttl]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) grace: Option<Duration>,
}

/// What happens to a command whose lease is lost.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLost {
    /// SIGTERM, and SIGKILL after the grace
    Term,
    /// SIGKILL
    Kill,
    /// Only a warning: CMD continues, and its exit code counts
    Ignore,
}

/// Options of `lock`.
#[derive(clap::Args, Debug)]
#[command(override_usage = LOCK_USAGE, after_help = include_str!("help/lock.txt"))]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) loss: LossArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Keep PAXOSLEASE_TOKEN and PAXOSLEASE_TOKEN_FILE in the environment of CMD, if it talks to
    /// the cell too
    #[arg(long)]
    pub(crate) pass_token: bool,

    /// The command to run
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `elect`.
#[derive(clap::Args, Debug)]
#[command(override_usage = ELECT_USAGE, after_help = include_str!("help/elect.txt"))]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Only print the leader, one line for each new leader, until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["ttl", "holder", "on_lost", "grace", "command"])]
    pub(crate) listen: bool,

    #[command(flatten)]
    pub(crate) loss: LossArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print a line of JSON instead: {"name", "fence", "holder"}
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep PAXOSLEASE_TOKEN and PAXOSLEASE_TOKEN_FILE in the environment of CMD, if it talks to
    /// the cell too
    #[arg(long, requires = "command")]
    pub(crate) pass_token: bool,

    /// The command to run while leading
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `acquire`.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/acquire.txt"))]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of `renew`.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/renew.txt"))]
pub(crate) struct RenewArgs {
    #[command(flatten)]
    pub(crate) tenure: TenureArgs,

    /// How long the lease lasts from now unless it is renewed again, from 50ms to the cell's
    /// max_lease
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of `release`.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/release.txt"))]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) tenure: TenureArgs,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of `get`.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/get.txt"))]
pub(crate) struct GetArgs {
    /// The name of the lease
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of `list` and `watch`.
#[derive(clap::Args, Debug)]
pub(crate) struct PrefixArgs {
    /// The prefix of the names [default: all names]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of `status`.
#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/status.txt"))]
pub(crate) struct StatusArgs {
    /// A name to explain
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Options of the process that becomes a command; only the watchdog starts it.
#[derive(clap::Args, Debug)]
pub(crate) struct LaunchArgs {
    /// The process to end with
    #[arg(long)]
    pub(crate) with: Option<i32>,

    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of the watchdog process; only `lock` and `elect` start it.
#[derive(clap::Args, Debug)]
pub(crate) struct WatchdogArgs {
    #[arg(long, value_enum)]
    pub(crate) on_lost: OnLost,

    #[arg(long, value_parser = parse_duration)]
    pub(crate) grace: Duration,

    #[arg(long, value_parser = parse_duration)]
    pub(crate) margin: Duration,

    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}
