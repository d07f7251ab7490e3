//! Options of the commands that run nodes, `dev` and `serve`, and of their log.
//!
//! Options of `serve` have no defaults: a missing option comes from the file, else from the
//! library. `Config::check` checks whether they fit together.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use paxoslease_node::{Role, Spin, parse_duration};
use paxoslease_server::ClientTls;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The name of a cell without a name.
pub(crate) const CELL_DEFAULT: &str = "default";

const SERVE_USAGE: &str = "\
paxoslease serve --config <FILE> [OPTIONS]
       paxoslease serve --node <ID> --peer <ID=HOST:PORT>... [OPTIONS]";

/// The heading of the node's options for TLS.
const TLS: &str = "TLS";

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/dev.txt"))]
pub(crate) struct DevArgs {
    /// How many nodes, 1 to 9
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) nodes: u16,

    /// The longest lease that a client can acquire
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) max_lease: Duration,

    /// The port of node 1 for clients
    ///
    /// On 127.0.0.1. The next ports are for peers and for HTTP. Each further node has ports ten
    /// higher. With 0 the cell takes ports that are free and prints them.
    #[arg(long, value_name = "PORT", default_value_t = 7400)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=65453))]
    pub(crate) port: u16,

    /// Run each node in its own process, to kill it
    #[arg(long)]
    pub(crate) processes: bool,

    /// Permit Redis commands for test suites, such as FLUSHDB
    ///
    /// For the tests of a library that locks with Redis. Clients can then end the leases of others.
    #[arg(long)]
    pub(crate) redis_testing: bool,

    /// Describe the ready cell in one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(clap::Args, Debug)]
#[command(override_usage = SERVE_USAGE, after_help = include_str!("help/serve.txt"))]
#[command(after_long_help = include_str!("manual/serve.txt"))]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Id of this node, 1 to 1023
    ///
    /// Unique in the cell.
    #[arg(long, value_name = "ID", env = "PAXOSLEASE_NODE", required_unless_present = "config")]
    pub(crate) node: Option<u16>,

    /// A member and its address; repeat it for each
    ///
    /// This node included. Replaces the list in the file.
    #[arg(long = "peer", value_name = "ID=HOST:PORT", env = "PAXOSLEASE_PEERS")]
    #[arg(value_delimiter = ',', value_parser = parse_peer, required_unless_present = "config")]
    pub(crate) peers: Vec<(u16, String)>,

    /// Name of the cell [without a file: default]
    ///
    /// Nodes of another cell are refused.
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_CELL")]
    pub(crate) cell: Option<String>,

    /// member or proposer [default: member]
    ///
    /// A proposer acquires leases for its clients and does not vote.
    #[arg(long, value_name = "ROLE", env = "PAXOSLEASE_ROLE", value_parser = role_parser())]
    #[arg(hide_possible_values = true)]
    pub(crate) role: Option<Role>,

    /// Address for peers, or off [default: own --peer]
    ///
    /// off is for a cell of one member.
    #[arg(long, value_name = "ADDR", env = "PAXOSLEASE_LISTEN_PEERS")]
    pub(crate) listen_peers: Option<String>,

    /// Address for RESP, or off [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR", env = "PAXOSLEASE_LISTEN_CLIENTS")]
    pub(crate) listen_clients: Option<String>,

    /// Address for HTTP, or off [default: 127.0.0.1:7402]
    #[arg(long, value_name = "ADDR", env = "PAXOSLEASE_LISTEN_HTTP")]
    pub(crate) listen_http: Option<String>,

    /// Folder for what must survive a restart
    ///
    /// Without it the node waits for max_lease after every start before it votes, and safety
    /// across restarts depends on the wall clock.
    #[arg(long, value_name = "DIR", env = "PAXOSLEASE_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Longest ttl in the cell [default: 60s]
    ///
    /// The same in all nodes.
    #[arg(long, value_name = "TIME", env = "PAXOSLEASE_MAX_LEASE", value_parser = parse_duration)]
    pub(crate) max_lease: Option<Duration>,

    /// Clock rate error [default: 1000]
    ///
    /// The largest error of any clock's rate, in parts per million. The same in all nodes.
    #[arg(long, value_name = "PPM", env = "PAXOSLEASE_CLOCK_DRIFT_PPM")]
    pub(crate) clock_drift_ppm: Option<u32>,

    /// Threads [default: 1]
    ///
    /// They divide the names among them. 1 to 256, the same in all nodes. Measure before you use
    /// more than one: a request for a name of another thread passes through two.
    #[arg(long, value_name = "N", env = "PAXOSLEASE_SHARDS")]
    pub(crate) shards: Option<u16>,

    /// Look for work before sleeping: auto, off or a time [default: auto]
    ///
    /// Lowers the latency. A thread stops looking where nothing arrives soon, or where another
    /// program needs the core. auto looks for up to 50us.
    #[arg(long, value_name = "TIME", env = "PAXOSLEASE_SPIN")]
    pub(crate) spin: Option<Spin>,

    /// Certificate of this node (PEM); enables TLS
    ///
    /// Peers then use mutual TLS. For clients, see --tls-clients.
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_NODE_TLS_CERT", help_heading = TLS)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_NODE_TLS_KEY", help_heading = TLS)]
    pub(crate) tls_key: Option<PathBuf>,

    /// CA certificate of the cell (PEM)
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_NODE_TLS_CA", help_heading = TLS)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// off, server or mutual [default: off]
    ///
    /// TLS for clients, over RESP and HTTP. With mutual, clients need a certificate of the cell's
    /// authority.
    #[arg(long, value_name = "HOW", env = "PAXOSLEASE_NODE_TLS_CLIENTS", help_heading = TLS)]
    #[arg(value_parser = client_tls_parser(), hide_possible_values = true)]
    pub(crate) tls_clients: Option<ClientTls>,

    /// Allow plaintext to other machines
    ///
    /// For trusted networks. Without this option, a node that has a non-loopback address and no TLS
    /// for it does not start.
    #[arg(long, env = "PAXOSLEASE_NODE_INSECURE_PLAINTEXT", help_heading = TLS)]
    pub(crate) insecure_plaintext: bool,

    /// Confirm that only nodes reach the peer ports
    ///
    /// A peer needs no token. So without this option a node with tokens and without TLS does not
    /// start.
    #[arg(long, env = "PAXOSLEASE_PEERS_OUT_OF_REACH", help_heading = TLS)]
    pub(crate) peers_out_of_reach: bool,

    /// Bound of the table limits, such as leases=1000000
    ///
    /// Repeat it for each bound.
    #[arg(long = "limit", value_name = "KEY=N", env = "PAXOSLEASE_LIMITS")]
    #[arg(value_delimiter = ',')]
    pub(crate) limits: Vec<String>,

    /// Found a new cell; unsafe if it ever ran
    ///
    /// For the first start of every node of a brand-new cell, with empty data folders: the cell
    /// grants leases once all nodes of the list are up. Without this option, a node with an empty
    /// data folder waits until `paxoslease members` adds it. There is no environment variable for
    /// this option.
    #[arg(long)]
    pub(crate) new_cell: bool,

    /// Start although the stable record is lost
    ///
    /// For a record that is lost or corrupt. The node is then no longer the member that it was: it
    /// needs an id that was never used. For one start only, so there is no environment variable for
    /// this option.
    #[arg(long)]
    pub(crate) reset_stable_record: bool,

    /// Check configuration and certificates only
    ///
    /// Prints what would run.
    #[arg(long)]
    pub(crate) check: bool,

    /// Ask the running node whether it is live or ready
    ///
    /// For health checks. Asks the node that runs with this configuration, over HTTP, with its own
    /// certificate where TLS is on. live: the process serves. ready: the node votes and reaches a
    /// majority. Exit code 0 if so, otherwise 69.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    #[arg(conflicts_with_all = ["check", "new_cell", "reset_stable_record"])]
    pub(crate) probe: Option<Probe>,

    /// Permit Redis commands for test suites, as redis.testing in the file
    #[arg(long, hide = true)]
    pub(crate) redis_testing: bool,

    /// Stop when stdin is closed, so that no node outlives the process that started it
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,

    /// Print the status as lines of JSON
    ///
    /// At every change and every minute; with --check, what would run.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// What to ask a running node.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// The process serves
    Live,
    /// The node votes and reaches a majority
    Ready,
}

impl Probe {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Live => "/healthz",
            Self::Ready => "/readyz",
        }
    }
}

/// The content and format of the log, on stderr.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Log, on stderr")]
pub(crate) struct LogArgs {
    /// off, error, warn, info, debug or trace
    ///
    /// Also by module, such as info,paxoslease=debug. The default is info, for `dev` error.
    #[arg(long = "log", value_name = "LEVEL", env = "PAXOSLEASE_LOG", value_parser = parse_filter)]
    pub(crate) filter: Option<Targets>,

    /// For people or for programs
    #[arg(long = "log-format", value_name = "FORMAT", env = "PAXOSLEASE_LOG_FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub(crate) format: LogFormat,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFormat {
    /// Text, coloured on a terminal
    Text,
    /// An object of JSON per line
    Json,
}

fn parse_peer(text: &str) -> Result<(u16, String), String> {
    let peer = text.split_once('=').and_then(|(id, address)| {
        let id = id.parse().ok()?;
        (!address.is_empty()).then(|| (id, address.to_owned()))
    });
    peer.ok_or_else(|| "write ID=HOST:PORT, such as 1=10.0.0.1:7401".to_owned())
}

fn role_parser() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(["member", "proposer"])
        .map(|role| role.parse().expect("clap accepts only these two"))
}

fn client_tls_parser() -> impl clap::builder::TypedValueParser<Value = ClientTls> {
    PossibleValuesParser::new(["off", "server", "mutual"])
        .map(|how| how.parse().expect("clap accepts only these three"))
}

/// `Targets` reads a misspelt level as a module and then logs nothing else. This parser refuses it.
fn parse_filter(text: &str) -> Result<Targets, String> {
    let is_level = |part: &str| part.parse::<LevelFilter>().is_ok();
    let is_fine = |part: &str| part.contains('=') || is_level(part);
    let filter = text.split(',').all(is_fine).then(|| text.parse().ok()).flatten();
    filter.ok_or_else(|| {
        "expected off, error, warn, info, debug or trace, or levels by module such as \
         info,paxoslease=debug"
            .to_owned()
    })
}
