//! Options of the commands that run nodes, `dev` and `serve`, and of their log.
//!
//! Options of `serve` have no defaults: a missing option comes from the file, else from the
//! library. `Config::check` checks whether they fit together.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use paxoslease_node::{Role, parse_duration};
use paxoslease_server::ClientTls;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The name of a cell without a name.
pub(crate) const CELL_DEFAULT: &str = "default";

const SERVE_USAGE: &str = "\
paxoslease serve --config <FILE> [OPTIONS]
       paxoslease serve --node <ID> --peer <ID=HOST:PORT>... [OPTIONS]";

/// Options of `dev`.
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

    /// The port of node 1 on 127.0.0.1 for clients; the next ports are for peers and for HTTP. Each
    /// further node has ports ten higher
    #[arg(long, value_name = "PORT", default_value_t = 7400)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=65453))]
    pub(crate) port: u16,

    /// Run each node in a process of its own, so that it can be killed
    #[arg(long)]
    pub(crate) processes: bool,

    /// Once the cell is ready, describe it in one line of JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Options of `serve`.
#[derive(clap::Args, Debug)]
#[command(override_usage = SERVE_USAGE, after_help = include_str!("help/serve.txt"))]
pub(crate) struct ServeArgs {
    /// Read the configuration from this TOML file
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// The id of this node, 1 to 1023, unique in the cell
    #[arg(long, value_name = "ID", env = "PAXOSLEASE_NODE", required_unless_present = "config")]
    pub(crate) node: Option<u16>,

    /// A member of the cell, this node included, and its address for peers; repeat it for each.
    /// Replaces the list in the file
    #[arg(long = "peer", value_name = "ID=HOST:PORT", env = "PAXOSLEASE_PEERS")]
    #[arg(value_delimiter = ',', value_parser = parse_peer, required_unless_present = "config")]
    pub(crate) peers: Vec<(u16, String)>,

    /// The name of the cell: nodes of another cell are refused [without a file: default]
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_CELL")]
    pub(crate) cell: Option<String>,

    /// Vote on leases, or only propose [default: member]
    #[arg(long, value_name = "ROLE", env = "PAXOSLEASE_ROLE", value_parser = role_parser())]
    pub(crate) role: Option<Role>,

    /// The address to listen on for peers, or off in a cell of one member [default: this node's own
    /// address among the peers]
    #[arg(long, value_name = "HOST:PORT", env = "PAXOSLEASE_LISTEN_PEERS")]
    pub(crate) listen_peers: Option<String>,

    /// The address to listen on for clients, or off [default: 127.0.0.1:7400]
    #[arg(long, value_name = "HOST:PORT", env = "PAXOSLEASE_LISTEN_CLIENTS")]
    pub(crate) listen_clients: Option<String>,

    /// The address to listen on for HTTP, or off [default: 127.0.0.1:7402]
    #[arg(long, value_name = "HOST:PORT", env = "PAXOSLEASE_LISTEN_HTTP")]
    pub(crate) listen_http: Option<String>,

    /// The folder for what must survive a restart. Without it every start waits for max_lease
    /// before the node votes, and safety across restarts depends on the wall clock
    #[arg(long, value_name = "DIR", env = "PAXOSLEASE_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// The longest lease that a client can acquire; the same in all nodes [default: 60s]
    #[arg(long, value_name = "TIME", env = "PAXOSLEASE_MAX_LEASE", value_parser = parse_duration)]
    pub(crate) max_lease: Option<Duration>,

    /// The largest error of a clock's rate, in parts per million; the same in all nodes [default:
    /// 1000]
    #[arg(long, value_name = "PPM", env = "PAXOSLEASE_CLOCK_DRIFT_PPM")]
    pub(crate) clock_drift_ppm: Option<u32>,

    /// How many threads divide the names among them, 1 to 256; the same in all nodes [default: one
    /// per core]
    #[arg(long, value_name = "N", env = "PAXOSLEASE_SHARDS")]
    pub(crate) shards: Option<u16>,

    /// How long a thread polls for work before it sleeps, such as 50us: trades CPU time for latency
    /// [default: 0s]
    #[arg(long, value_name = "TIME", env = "PAXOSLEASE_SPIN", value_parser = parse_duration)]
    pub(crate) spin: Option<Duration>,

    /// This node's certificate, as PEM. With it, peers use mutual TLS, and clients use what
    /// --tls-clients says
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The certificate of the authority that signed the cell's certificates, as PEM
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// TLS for clients, over RESP and HTTP: off, server, or mutual with client certificates
    /// [default: off]
    #[arg(long, value_name = "HOW", env = "PAXOSLEASE_TLS_CLIENTS")]
    #[arg(value_parser = client_tls_parser())]
    pub(crate) tls_clients: Option<ClientTls>,

    /// Allow unencrypted connections to other machines, for trusted networks. Without this option,
    /// a node that has a non-loopback address and no TLS for it does not start
    #[arg(long, env = "PAXOSLEASE_INSECURE_PLAINTEXT")]
    pub(crate) insecure_plaintext: bool,

    /// Confirm that only nodes of the cell can reach the peer ports. A peer needs no token, so
    /// without this option a node with tokens and without TLS does not start
    #[arg(long, env = "PAXOSLEASE_PEERS_OUT_OF_REACH")]
    pub(crate) peers_out_of_reach: bool,

    /// A bound of the table `[limits]`, such as leases=1000000; repeat it for each
    #[arg(long = "limit", value_name = "KEY=N", env = "PAXOSLEASE_LIMITS")]
    #[arg(value_delimiter = ',')]
    pub(crate) limits: Vec<String>,

    /// Confirm that no client can hold a lease of this cell yet: the first start with an empty data
    /// folder votes at once. For new cells only, so there is no environment variable for it
    #[arg(long)]
    pub(crate) new_cell: bool,

    /// Start although the stable record is lost or corrupt, after waiting for max_lease. For one
    /// start only, so there is no environment variable for it
    #[arg(long)]
    pub(crate) reset_stable_record: bool,

    /// Check the configuration, certificates and keys, print what would run, and start nothing
    #[arg(long)]
    pub(crate) check: bool,

    /// Stop when stdin is closed, so that no node outlives the process that started it
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,

    /// Print the status as a line of JSON on stdout, at every change and every minute; with
    /// `--check`, what would run
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// The content and format of the log, on stderr.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Log, on stderr")]
pub(crate) struct LogArgs {
    /// The level: off, error, warn, info, debug or trace; also by module, such as
    /// info,paxoslease=debug [default: info; for `dev`: error]
    #[arg(long = "log", value_name = "LEVEL", env = "PAXOSLEASE_LOG", value_parser = parse_filter)]
    pub(crate) filter: Option<Targets>,

    /// The format, for people or for programs
    #[arg(long = "log-format", value_name = "FORMAT", env = "PAXOSLEASE_LOG_FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub(crate) format: LogFormat,
}

/// The format of a log line.
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
