//! Options of the commands that talk to a cell.
//!
//! This module parses, and checks what it can check without a cell. The library and the cell check
//! the bounds of names and ttls.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use paxoslease_node::parse_duration;

use super::trust::{CONNECTION, TrustArgs};

const LOCK_USAGE: &str = "\
paxoslease lock [OPTIONS] <NAME> [--] <CMD> [ARGS]...
       paxoslease lock [OPTIONS] <NAME> -c <LINE>";

const ELECT_USAGE: &str = "\
paxoslease elect [OPTIONS] <NAME> [[--] <CMD> [ARGS]...]
       paxoslease elect --listen <NAME>";

const MEMBERS_USAGE: &str = "\
paxoslease members [OPTIONS] <ACTION> [NODES]...";

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
    /// Release a lease that `acquire` acquired; or, with --force, one of another holder
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
    /// Show the members of the cell, or change them while it runs
    Members(MembersArgs),
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
    /// A node of the cell; repeat it for more
    ///
    /// Commas separate nodes too. The client tries them in order.
    #[arg(long = "endpoint", value_name = "HOST:PORT", env = "PAXOSLEASE_ENDPOINTS")]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:7400", help_heading = CONNECTION)]
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

/// The lease to acquire.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LeaseArgs {
    /// The name of the lease, such as jobs/nightly
    ///
    /// Up to 512 bytes of UTF-8.
    pub(crate) name: String,

    /// How long the lease lasts unless renewed
    ///
    /// From 50ms to the cell's max_lease. If the holder dies, other clients can acquire the lease
    /// only after this time.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    /// Text for others; user@host:pid unless given
    #[arg(long, value_name = "TEXT")]
    pub(crate) holder: Option<String>,
}

/// How many clients may hold the lease, and what to do while they do.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WaitArgs {
    /// Let N clients hold it at a time, 1 to 64
    ///
    /// A semaphore: each of them holds a lease NAME#1 to NAME#N, with a fence of its own. All
    /// clients must give the same N. `acquire` prints the name of the lease and its fence.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u64>,

    /// Wait at most this long [default: for ever]
    ///
    /// For another holder, or for a cell that cannot answer.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait
    #[arg(short, long)]
    pub(crate) no_wait: bool,

    /// Exit code if another client holds the lease
    ///
    /// If --wait is given, after the wait.
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    pub(crate) conflict_exit_code: u8,

    /// Do not print that another client holds it
    ///
    /// Also hides the message that this command waits. Check the exit code instead.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl WaitArgs {
    /// The default, as for `flock`.
    pub(crate) const FOR_EVER: Self =
        Self { permits: None, wait: None, no_wait: false, conflict_exit_code: 1, quiet: false };

    /// How long to wait at most.
    pub(crate) fn wait_max(&self) -> Duration {
        if self.no_wait { Duration::ZERO } else { self.wait.unwrap_or(Duration::MAX) }
    }
}

/// How CMD ends if the lease is lost.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LossArgs {
    /// What to do with CMD if the lease is lost
    ///
    /// That is, when it can no longer be held safely.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// From SIGTERM to SIGKILL [default: 5s]
    ///
    /// The default is at most a third of the ttl.
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

#[derive(clap::Args, Debug)]
#[command(override_usage = LOCK_USAGE, after_help = include_str!("help/lock.txt"))]
#[command(after_long_help = include_str!("manual/lock.txt"))]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    /// Keep the lease this long even if CMD ends
    ///
    /// At least this long after the lease was granted. If CMD ends earlier, the lease is not
    /// released, but expires. This is also the ttl. If it is longer than max_lease, the nodes keep
    /// the lease on disk.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "ttl")]
    pub(crate) keep: Option<Duration>,

    #[command(flatten)]
    pub(crate) loss: LossArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Keep the token in the environment of CMD
    ///
    /// That is PAXOSLEASE_TOKEN and PAXOSLEASE_TOKEN_FILE, for a CMD that connects to the cell.
    #[arg(long)]
    pub(crate) pass_token: bool,

    /// Run this line with `sh -c` instead of CMD
    #[arg(short = 'c', long, value_name = "LINE")]
    pub(crate) shell: Option<OsString>,

    /// The command to run
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    #[arg(required_unless_present = "shell", conflicts_with = "shell")]
    pub(crate) command: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
#[command(override_usage = ELECT_USAGE, after_help = include_str!("help/elect.txt"))]
#[command(after_long_help = include_str!("manual/elect.txt"))]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Only print each new leader, until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["ttl", "holder", "on_lost", "grace", "command"])]
    pub(crate) listen: bool,

    #[command(flatten)]
    pub(crate) loss: LossArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print JSON, one object per line
    ///
    /// {"name", "fence", "holder"}
    #[arg(long)]
    pub(crate) json: bool,

    /// Keep the token in the environment of CMD
    ///
    /// That is PAXOSLEASE_TOKEN and PAXOSLEASE_TOKEN_FILE, for a CMD that connects to the cell.
    #[arg(long, requires = "command")]
    pub(crate) pass_token: bool,

    /// The command to run while leading
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/acquire.txt"))]
#[command(after_long_help = include_str!("manual/acquire.txt"))]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Keep the lease on disk, this long or until it is released
    ///
    /// At least 50ms, maybe longer than max_lease; it outlives every crash. There is no ttl.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "ttl")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = FOR_EVER)]
    pub(crate) durable: Option<Duration>,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// As a durable lease without a time has it.
const FOR_EVER: &str = "0s";

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/renew.txt"))]
pub(crate) struct RenewArgs {
    /// The name of the lease
    pub(crate) name: String,

    /// The fence that `acquire` printed
    #[arg(long, value_name = "N")]
    pub(crate) fence: u64,

    /// How long the lease lasts from now
    ///
    /// Unless it is renewed again. From 50ms to the cell's max_lease.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    /// Keep the lease on disk, this long from now or until it is released
    ///
    /// This may also shorten it: first stop relying on the lease beyond that.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "ttl")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = FOR_EVER)]
    pub(crate) durable: Option<Duration>,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/release.txt"))]
pub(crate) struct ReleaseArgs {
    /// The name of the lease
    pub(crate) name: String,

    /// The fence that `acquire` printed; with --force, the current fence unless given
    #[arg(long, value_name = "N", required_unless_present = "force")]
    pub(crate) fence: Option<u64>,

    /// Release the lease of another holder, which may go on working: requires `admin`
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not ask before a release by force
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,

    /// Also end what is left of a durable acquire or renewal that failed
    #[arg(long, conflicts_with = "force")]
    pub(crate) durable: bool,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

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
    /// The prefix of the names, such as jobs/ or jobs/* [default: all names]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/status.txt"))]
pub(crate) struct StatusArgs {
    /// Also show who holds this name
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(clap::Args, Debug)]
#[command(override_usage = MEMBERS_USAGE, after_help = include_str!("help/members.txt"))]
#[command(after_long_help = include_str!("manual/members.txt"))]
pub(crate) struct MembersArgs {
    /// What to do
    #[arg(value_enum, hide_possible_values = true)]
    pub(crate) action: MembersAction,

    /// Members by their ids, new members as ID=HOST:PORT
    ///
    /// HOST:PORT is the node's address for peers.
    pub(crate) nodes: Vec<String>,

    /// Only say what the change leads to, and whether it can begin
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Go on in spite of doubts, such as surviving fewer losses
    #[arg(long)]
    pub(crate) yes: bool,

    /// Return once the change has begun
    #[arg(long)]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// What to do with the members.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MembersAction {
    /// Show them, and a change that is under way
    Status,
    /// Add nodes
    Add,
    /// Remove members
    Remove,
    /// Remove members and add nodes, in one change
    Replace,
    /// Name all members
    Set,
    /// End a change that is under way: the members stay those before it
    Abort,
    /// Change the addresses at which other nodes reach members
    Address,
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
