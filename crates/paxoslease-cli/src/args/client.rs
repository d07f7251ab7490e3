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

const LOCK_HELP: &str = "\
Examples:
  paxoslease lock jobs/nightly -- ./backup.sh            one backup at a time among all machines
  paxoslease lock -n jobs/nightly -- ./backup.sh         or none, if one is running already
  paxoslease lock -w 30s -E 9 db/migrate -- ./migrate    give up after 30 s, with exit code 9

CMD runs in a process group of its own, with PAXOSLEASE_NAME and PAXOSLEASE_FENCE in its
environment, and without a token unless --pass-token is given. The lease is renewed while CMD runs
and released when CMD ends. Background processes that CMD leaves behind when it ends by itself are
not covered: they continue without the lease.
SIGINT, SIGTERM, SIGHUP, SIGQUIT and others are forwarded to the group. If one of them ends CMD, the
lease is held until every process that CMD started has ended, or was killed after --grace.

If the lease can no longer be held safely, the group gets SIGTERM, and SIGKILL after --grace, all
before the lease ends. A process that left the group gets the same once its parent has ended. A
watchdog process does this even if this process is stopped or killed, and this process does it if
the watchdog is. If both are killed at once, CMD is killed too, but not the processes that CMD
started, nor a CMD that changes its user.
A lock that is stopped by Ctrl-Z is not renewed, so CMD is ended before the ttl is over.

No lock can stop a write of CMD that is already under way. A store that remembers the highest
PAXOSLEASE_FENCE can refuse late writes.

Exit code: that of CMD, 128+n if signal n ended it, 126 or 127 if it cannot be run;
  1   another client holds the lease and the wait, if any, is over; -E sets another code
  2   bad usage, such as a ttl above the cell's max_lease
  69  no node could be reached, or no majority of the cell answered
  75  the lease was lost, and CMD was ended
  77  access denied: TLS or the token failed";

const ELECT_USAGE: &str = "\
paxoslease elect [OPTIONS] <NAME> [[--] <CMD> [ARGS]...]
       paxoslease elect --listen <NAME>";

const ELECT_HELP: &str = "\
Examples:
  paxoslease elect scheduler --holder 10.0.0.7:9000             lead until stopped
  paxoslease elect scheduler --holder 10.0.0.7:9000 -- ./lead   run ./lead while leading
  paxoslease elect -l scheduler                                 a line per leader

Prints a line with name and fence once elected. After SIGTERM or Ctrl-C it resigns, and the next
candidate leads at once. CMD is run and ended as by `paxoslease lock`. The leadership ends with CMD.

Exit code: 0 after resigning, or that of CMD, 128+n if signal n ended it, 126 or 127 if it cannot
be run;
  2   bad usage, such as a ttl above the cell's max_lease
  69  no node could be reached, or no majority of the cell answered
  75  the leadership was lost: run the command again to be a candidate again
  77  access denied: TLS or the token failed";

const ACQUIRE_HELP: &str = "\
Example:
  fence=$(paxoslease acquire jobs/nightly --ttl 1m)
  paxoslease renew jobs/nightly --fence \"$fence\" --ttl 1m
  paxoslease release jobs/nightly --fence \"$fence\"

The lease is not renewed: it ends after the ttl, counted from before the request was sent. With
--json: {\"name\", \"fence\", \"ttl_ms\", \"waited_ms\", \"holder\"}, the fence as a string. To hold
a lease while a command runs, use `paxoslease lock`.

Exit code: 0 when it was granted;
  1   another client holds it and the wait, if any, is over; -E sets another code
  2   bad usage, such as a ttl above the cell's max_lease
  69  no node could be reached, or no majority of the cell answered
  77  access denied: TLS or the token failed";

const RENEW_HELP: &str = "\
Only for a tenure that was granted to you, not for a fence that `get` or `list` shows. The new ttl
counts from now. A renewal never shortens a lease. Nothing is printed unless --json is given:
{\"name\", \"fence\", \"ttl_ms\"}.

Exit code: 0 when it was renewed;
  1   that tenure is over: acquire again, for a new fence
  2   bad usage, such as a ttl above the cell's max_lease
  69  no node could be reached, or no majority of the cell answered; the lease ends when it did before
  77  access denied: TLS or the token failed";

const RELEASE_HELP: &str = "\
Only for a tenure that was granted to you, after its work has stopped. Nothing is printed unless
--json is given: {\"name\", \"fence\", \"released\": true}.

Exit code: 0 when it was released;
  1   that tenure was over before, so there was nothing to release
  2   bad usage
  69  no node confirmed: the lease ends after its ttl
  77  access denied: TLS or the token failed";

const GET_HELP: &str = "\
A hint: what a majority of the cell reported a moment ago. Only the holder knows that it holds it.
With --json: {\"name\", \"holder\", \"fence\", \"ttl_ms\"}, the fence as a string.

Exit code: 0 when a client holds it;
  1   nobody holds it
  2   bad usage
  69  no node could be reached, or no majority of the cell answered
  77  access denied: TLS or the token failed";

const LIST_HELP: &str = "\
Hints, as one node sees them, in no order. Leases that begin or end meanwhile may be missing. A table
on a terminal; elsewhere name, holder, fence and time left, separated by tabs. With --json, a line
for each: {\"name\", \"holder\", \"fence\", \"ttl_ms\"}, the fence as a string.

Exit code: 0, also when there are none; 2 for bad usage, 69 when no node could be reached, 77 when
access was denied or TLS failed.";

const WATCH_HELP: &str = "\
Hints, as one node sees them, until Ctrl-C. With --json, a line for each change:
  {\"event\": \"held\", \"name\", \"holder\", \"fence\", \"ttl_ms\"}   a lease began
  {\"event\": \"freed\", \"name\"}                               it was released
  {\"event\": \"expired\", \"name\", \"fence\"}                    it expired
  {\"event\": \"missed\", \"count\"}                             changes came too fast to be printed
  {\"event\": \"connected\", \"endpoint\"}                       the watch begins, or begins again
  {\"event\": \"disconnected\", \"problem\"}                     it tries to reconnect

Exit code: 0 after Ctrl-C or SIGTERM; 2 for bad usage, 69 when no node could be reached to begin
with, 77 when access was denied or TLS failed.";

const STATUS_HELP: &str = "\
Asks every endpoint which nodes vote, which are down or quarantined and for how long, how many
requests they serve, and who holds the leases that clients wait for. With a NAME, also who holds it.

With --json: {\"ready\", \"nodes\": [...]}, each node with \"endpoint\" and either its status or
\"error\"; with a NAME, also \"name\" and \"lease\", which is null if nobody holds it.

Exit code: 0 when some node reaches a majority;
  2   bad usage
  69  no node does, or no node could be reached: nothing can be acquired now
  77  access denied: TLS or the token failed";

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
    List(ListArgs),
    /// Print a line whenever a lease is acquired, released or expires
    Watch(WatchArgs),
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
#[command(override_usage = LOCK_USAGE, after_help = LOCK_HELP)]
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
#[command(override_usage = ELECT_USAGE, after_help = ELECT_HELP)]
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
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `renew`.
#[derive(clap::Args, Debug)]
#[command(after_help = RENEW_HELP)]
pub(crate) struct RenewArgs {
    /// The name of the lease
    pub(crate) name: String,

    /// The fence that `acquire` printed
    #[arg(long, value_name = "N")]
    pub(crate) fence: u64,

    /// How long the lease lasts from now unless it is renewed again, from 50ms to the cell's
    /// max_lease
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print an object of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `release`.
#[derive(clap::Args, Debug)]
#[command(after_help = RELEASE_HELP)]
pub(crate) struct ReleaseArgs {
    /// The name of the lease
    pub(crate) name: String,

    /// The fence that `acquire` printed
    #[arg(long, value_name = "N")]
    pub(crate) fence: u64,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print an object of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `get`.
#[derive(clap::Args, Debug)]
#[command(after_help = GET_HELP)]
pub(crate) struct GetArgs {
    /// The name of the lease
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `list` and `watch`.
#[derive(clap::Args, Debug)]
pub(crate) struct PrefixArgs {
    /// The prefix of the names [default: all names]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print an object of JSON per line instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `list`.
#[derive(clap::Args, Debug)]
#[command(after_help = LIST_HELP)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) what: PrefixArgs,
}

/// Options of `watch`.
#[derive(clap::Args, Debug)]
#[command(after_help = WATCH_HELP)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) what: PrefixArgs,
}

/// Options of `status`.
#[derive(clap::Args, Debug)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// A name to explain
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
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
