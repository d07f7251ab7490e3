//! Options of the commands that talk to a cell as its clients.
//!
//! Parsing only, and what can be said about an option without a cell. Whether a name or a ttl is
//! within bounds is the library's and the cell's to say.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use paxoslease::parse_duration;

use super::trust::TrustArgs;

const LOCK_USAGE: &str = "paxoslease lock [OPTIONS] <NAME> [--] <CMD> [ARGS]...";

const LOCK_HELP: &str = "\
Examples:
  paxoslease lock jobs/nightly -- ./backup.sh            one backup at a time, on all machines
  paxoslease lock -n jobs/nightly -- ./backup.sh         or none, if one is running
  paxoslease lock -w 30s -E 9 db/migrate -- ./migrate    give up after 30 s, with exit code 9

CMD runs in a process group of its own, with PAXOSLEASE_NAME and PAXOSLEASE_FENCE in its
environment, and without a token unless --pass-token says so. The lease is renewed while CMD runs and given back when CMD ends. What CMD leaves
behind in the background when it ends by itself is not covered: it runs on without the lease.
SIGINT, SIGTERM, SIGHUP, SIGQUIT and their like are passed on to the group; if CMD ends after one
that asks for it, the lease is held until all it started has ended, or was killed after --grace.

If the lease can no longer be held safely, the group gets SIGTERM with --grace to go, then SIGKILL,
all before the lease runs out; whoever left the group gets the same when its parent has ended. A
second process sees to that even if this one is stopped or killed, and this one if the other is. If
both are killed at once, CMD is too, but not what CMD has started, nor a CMD that changes its user.
A lock that is stopped by Ctrl-Z is not renewed, so CMD is ended before the ttl is over.

What no lock can see is a write of CMD that is already on its way. Stores that remember the highest
PAXOSLEASE_FENCE can refuse late ones.

Exit code: that of CMD, 128+n if signal n ended it, 126 or 127 if it cannot be run;
  1   somebody else holds the lease and there was no waiting, or in vain; -E sets another
  2   bad usage, such as a ttl above the cell's longest
  69  no node could be reached, or no majority of the cell answered
  75  the lease was lost, and CMD was ended
  77  access denied, or no trust: TLS or the token failed";

const ELECT_USAGE: &str = "\
paxoslease elect [OPTIONS] <NAME> [[--] <CMD> [ARGS]...]
       paxoslease elect --listen <NAME>";

const ELECT_HELP: &str = "\
Examples:
  paxoslease elect scheduler --holder 10.0.0.7:9000             lead until told to stop
  paxoslease elect scheduler --holder 10.0.0.7:9000 -- ./lead   run ./lead while leading
  paxoslease elect -l scheduler                                 a line per leader

Prints a line with name and fence once elected. SIGTERM or Ctrl-C resigns, and the next candidate
leads at once. CMD is run and ended as by `paxoslease lock`; when it ends, so does the leadership.

Exit code: 0 after resigning, or that of CMD, 128+n if signal n ended it, 126 or 127 if it cannot
be run;
  2   bad usage, such as a ttl above the cell's longest
  69  no node could be reached, or no majority of the cell answered
  75  the leadership was lost: start again to be a candidate again
  77  access denied, or no trust: TLS or the token failed";

const ACQUIRE_HELP: &str = "\
Example:
  fence=$(paxoslease acquire jobs/nightly --ttl 1m)
  paxoslease renew jobs/nightly --fence \"$fence\" --ttl 1m
  paxoslease release jobs/nightly --fence \"$fence\"

Nobody renews it: it is free when the ttl is over, counted from before it was asked for. With
--json: {\"name\", \"fence\", \"ttl_ms\", \"waited_ms\", \"holder\"}, the fence as a string. To hold
a lease while a command runs, use `paxoslease lock`.

Exit code: 0 when it was granted;
  1   somebody else holds it and there was no waiting, or in vain; -E sets another
  2   bad usage, such as a ttl above the cell's longest
  69  no node could be reached, or no majority of the cell answered
  77  access denied, or no trust: TLS or the token failed";

const RENEW_HELP: &str = "\
Only for a tenure that was granted to you: a fence seen in `get` or `list` is for looking. The new
ttl counts from now; a renewal never shortens a lease. Nothing is printed unless --json is given:
{\"name\", \"fence\", \"ttl_ms\"}.

Exit code: 0 when it was renewed;
  1   that tenure is over: acquire anew, for a new fence
  2   bad usage, such as a ttl above the cell's longest
  69  no node could be reached, or no majority of the cell answered; it lasts as long as before
  77  access denied, or no trust: TLS or the token failed";

const RELEASE_HELP: &str = "\
Only for a tenure that was granted to you, after its work has stopped. Nothing is printed unless
--json is given: {\"name\", \"fence\", \"released\": true}.

Exit code: 0 when it was given back;
  1   that tenure was over before, so there was nothing to give back
  2   bad usage
  69  nobody confirmed: it is free when its ttl is over
  77  access denied, or no trust: TLS or the token failed";

const GET_HELP: &str = "\
A hint: what a majority of the cell said a moment ago. Only the holder knows that it holds.
With --json: {\"name\", \"holder\", \"fence\", \"ttl_ms\"}, the fence as a string.

Exit code: 0 when somebody holds it;
  1   nobody holds it
  2   bad usage
  69  no node could be reached, or no majority of the cell answered
  77  access denied, or no trust: TLS or the token failed";

const LIST_HELP: &str = "\
Hints, as one node sees them, in no order; what comes or goes meanwhile may be missing. A table on
a terminal; elsewhere name, holder, fence and time left, separated by tabs. With --json, a line for
each: {\"name\", \"holder\", \"fence\", \"ttl_ms\"}, the fence as a string.

Exit code: 0, also when there are none; 2 for bad usage, 69 when no node could be reached, 77 when
access was denied or TLS failed.";

const WATCH_HELP: &str = "\
Hints, as one node sees them, until Ctrl-C. With --json, a line for each change:
  {\"event\": \"held\", \"name\", \"holder\", \"fence\", \"ttl_ms\"}   a lease began
  {\"event\": \"freed\", \"name\"}                               it was given back
  {\"event\": \"expired\", \"name\", \"fence\"}                    it ran out
  {\"event\": \"missed\", \"count\"}                             changes came faster than they were read
  {\"event\": \"connected\", \"endpoint\"}                       it begins, or begins anew
  {\"event\": \"disconnected\", \"problem\"}                     it goes on trying

Exit code: 0 after Ctrl-C or SIGTERM; 2 for bad usage, 69 when no node could be reached to begin
with, 77 when access was denied or TLS failed.";

const STATUS_HELP: &str = "\
Asks every endpoint: which nodes vote, which are down or quarantined and for how long, how much
they do, and who holds what is waited for. With a NAME, also who holds that.

With --json: {\"ready\", \"nodes\": [...]}, each node with \"endpoint\" and either all it said or
\"error\"; with a NAME, also \"name\" and \"lease\", which is null if nobody holds it.

Exit code: 0 when some node reaches a majority;
  2   bad usage
  69  none does, or no node could be reached: nothing can be acquired now
  77  access denied, or no trust: TLS or the token failed";

/// What talks to a cell.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command while holding a lease, one at a time among all machines
    Lock(LockArgs),
    /// Campaign, and lead while alive; or see who leads
    Elect(ElectArgs),
    /// Take a lease and print its fence; nobody renews it
    Acquire(AcquireArgs),
    /// Renew a lease that `acquire` took
    Renew(RenewArgs),
    /// Give back a lease that `acquire` took
    Release(ReleaseArgs),
    /// Show who holds a lease
    Get(GetArgs),
    /// List leases that are held
    List(ListArgs),
    /// Print a line whenever a lease comes or goes
    Watch(WatchArgs),
    /// Show the cell, and why a lease cannot be had
    Status(StatusArgs),
    /// Watch over the command of a lock
    #[command(hide = true)]
    Watchdog(WatchdogArgs),
    /// Become the command of a lock
    #[command(hide = true)]
    Launch(LaunchArgs),
}

/// Where to connect, and as whom.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CellArgs {
    /// A node of the cell; several times or with commas for more, tried in order
    #[arg(long = "endpoint", value_name = "HOST:PORT", env = "PAXOSLEASE_ENDPOINTS")]
    #[arg(value_delimiter = ',', default_value = "127.0.0.1:7400")]
    pub(crate) endpoints: Vec<String>,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// What to acquire, and for how long.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WishArgs {
    /// What to lease, such as jobs/nightly: up to 512 bytes
    pub(crate) name: String,

    /// How long it lasts unless it is renewed, from 50ms to the cell's longest: also how long it
    /// takes until somebody else can have it when its holder dies
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,

    /// Who is shown as the holder, if not user@host:pid
    #[arg(long, value_name = "TEXT")]
    pub(crate) holder: Option<String>,
}

/// What to do while somebody else holds it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WaitArgs {
    /// How long to wait while somebody else holds it [default: for ever]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Do not wait
    #[arg(short, long)]
    pub(crate) no_wait: bool,

    /// The exit code when somebody else holds it and there was no waiting, or in vain
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 1)]
    pub(crate) conflict_exit_code: u8,
}

/// How CMD ends if the lease is lost.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LossArgs {
    /// What happens to CMD if the lease can no longer be held safely
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// How long CMD has after SIGTERM [default: 5s, but at most a third of the ttl]
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
    /// Nothing but a warning: CMD runs on, and its exit code counts
    Ignore,
}

/// Options of `lock`.
#[derive(clap::Args, Debug)]
#[command(override_usage = LOCK_USAGE, after_help = LOCK_HELP)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) wish: WishArgs,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) loss: LossArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Leave PAXOSLEASE_TOKEN and PAXOSLEASE_TOKEN_FILE to CMD, if it talks to the cell too
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
    pub(crate) wish: WishArgs,

    /// Only print who leads, a line whenever it changes, until Ctrl-C
    #[arg(short, long, conflicts_with_all = ["ttl", "holder", "on_lost", "grace", "command"])]
    pub(crate) listen: bool,

    #[command(flatten)]
    pub(crate) loss: LossArgs,

    #[command(flatten)]
    pub(crate) cell: CellArgs,

    /// Print a line of JSON instead: {"name", "fence", "holder"}
    #[arg(long)]
    pub(crate) json: bool,

    /// Leave PAXOSLEASE_TOKEN and PAXOSLEASE_TOKEN_FILE to CMD, if it talks to the cell too
    #[arg(long, requires = "command")]
    pub(crate) pass_token: bool,

    /// What to run while leading
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `acquire`.
#[derive(clap::Args, Debug)]
#[command(after_help = ACQUIRE_HELP)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) wish: WishArgs,

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
    /// What was leased
    pub(crate) name: String,

    /// The number that `acquire` printed
    #[arg(long, value_name = "N")]
    pub(crate) fence: u64,

    /// How long it lasts from now unless it is renewed again, from 50ms to the cell's longest
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
    /// What was leased
    pub(crate) name: String,

    /// The number that `acquire` printed
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
    /// What to look at
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
    /// How the names begin [default: all of them]
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

/// Options of the process that becomes a command. Nobody types these either.
#[derive(clap::Args, Debug)]
pub(crate) struct LaunchArgs {
    /// The process to end with
    #[arg(long)]
    pub(crate) with: Option<i32>,

    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of the process that watches over a command. Nobody types these.
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
