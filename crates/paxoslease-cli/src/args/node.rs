//! Options of the commands that run nodes, `dev` and `serve`, and of their log.
//!
//! Options of `serve` have no defaults: what was not said is left to the file, and then to the
//! library. Whether it all fits together is for `Config::check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use paxoslease::{ClientTls, Role, parse_duration};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The name of a cell that nobody named.
pub(crate) const CELL_DEFAULT: &str = "default";

const DEV_HELP: &str = "\
The cell is a new one at every start and keeps nothing on disk. Ctrl-C or SIGTERM stops it.
Exit code: 0 when it was stopped, 2 for bad usage, 1 for anything else, such as a taken port.";

const SERVE_USAGE: &str = "\
paxoslease serve --config <FILE> [OPTIONS]
       paxoslease serve --node <ID> --peer <ID=HOST:PORT>... [OPTIONS]";

const SERVE_HELP: &str = "\
A node of three, without a file:
  paxoslease serve --node 1 --data-dir /var/lib/paxoslease \\
      --peer 1=10.0.0.1:7401 --peer 2=10.0.0.2:7401 --peer 3=10.0.0.3:7401 \\
      --tls-cert node-1.pem --tls-key node-1.key --tls-ca ca.pem --tls-clients server \\
      --listen-clients 0.0.0.0:7400 --listen-http 0.0.0.0:7402

The same as a file, for `--config`:
  node     = 1
  cell     = \"default\"
  data_dir = \"/var/lib/paxoslease\"
  [peers]
  1 = \"10.0.0.1:7401\"
  2 = \"10.0.0.2:7401\"
  3 = \"10.0.0.3:7401\"
  [listen]
  clients = \"0.0.0.0:7400\"
  http    = \"0.0.0.0:7402\"
  [tls]
  cert    = \"node-1.pem\"
  key     = \"node-1.key\"
  ca      = \"ca.pem\"
  clients = \"server\"

An option counts before its environment variable, and that before the file.
SIGHUP has it read its certificates and the tokens of its file again; nobody is disconnected.
SIGTERM or Ctrl-C stops the node cleanly: with a data folder it then votes at once when it starts
again. A second one ends the process at once.
Exit code: 0 when it was stopped, 2 for bad usage or configuration, 1 for anything else.";

/// Options of `dev`.
#[derive(clap::Args, Debug)]
#[command(after_help = DEV_HELP)]
pub(crate) struct DevArgs {
    /// How many nodes, 1 to 9
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(crate) nodes: u16,

    /// The longest lease that can be asked for
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) max_lease: Duration,

    /// The port of node 1 on 127.0.0.1 for clients; the next is for peers, then HTTP. Node 2 is
    /// ten further, and so on
    #[arg(long, value_name = "PORT", default_value_t = 7400)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=65453))]
    pub(crate) port: u16,

    /// Run each node as a process of its own, so that it can be killed
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
#[command(override_usage = SERVE_USAGE, after_help = SERVE_HELP)]
pub(crate) struct ServeArgs {
    /// Read the configuration from this TOML file
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Who this node is, 1 to 1023, another for every node
    #[arg(long, value_name = "ID", env = "PAXOSLEASE_NODE", required_unless_present = "config")]
    pub(crate) node: Option<u16>,

    /// A member of the cell, this one too, and where its peers reach it; once for each. Replaces
    /// the file's list
    #[arg(long = "peer", value_name = "ID=HOST:PORT", env = "PAXOSLEASE_PEERS")]
    #[arg(value_delimiter = ',', value_parser = parse_peer, required_unless_present = "config")]
    pub(crate) peers: Vec<(u16, String)>,

    /// What the cell is called: nodes of another are refused [without a file: default]
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_CELL")]
    pub(crate) cell: Option<String>,

    /// Vote on leases, or only take them [default: member]
    #[arg(long, value_name = "ROLE", env = "PAXOSLEASE_ROLE", value_parser = role_parser())]
    pub(crate) role: Option<Role>,

    /// Where to listen for peers, or off in a cell of one member [default: this node's own address
    /// among the peers]
    #[arg(long, value_name = "HOST:PORT", env = "PAXOSLEASE_LISTEN_PEERS")]
    pub(crate) listen_peers: Option<String>,

    /// Where to listen for clients, or off [default: 127.0.0.1:7400]
    #[arg(long, value_name = "HOST:PORT", env = "PAXOSLEASE_LISTEN_CLIENTS")]
    pub(crate) listen_clients: Option<String>,

    /// Where to listen for HTTP, or off [default: 127.0.0.1:7402]
    #[arg(long, value_name = "HOST:PORT", env = "PAXOSLEASE_LISTEN_HTTP")]
    pub(crate) listen_http: Option<String>,

    /// Where to keep what must survive a restart; without it every start waits for the longest
    /// lease before it votes, and safety across restarts rests on the wall clock
    #[arg(long, value_name = "DIR", env = "PAXOSLEASE_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// The longest lease that can be asked for; the same in all nodes [default: 60s]
    #[arg(long, value_name = "TIME", env = "PAXOSLEASE_MAX_LEASE", value_parser = parse_duration)]
    pub(crate) max_lease: Option<Duration>,

    /// How far a clock's rate may be off, in parts per million; the same in all nodes
    /// [default: 1000]
    #[arg(long, value_name = "PPM", env = "PAXOSLEASE_CLOCK_DRIFT_PPM")]
    pub(crate) clock_drift_ppm: Option<u32>,

    /// How many threads share the names, 1 to 256; the same in all nodes [default: one per core]
    #[arg(long, value_name = "N", env = "PAXOSLEASE_SHARDS")]
    pub(crate) shards: Option<u16>,

    /// How long a thread looks for work before it sleeps, such as 50us: latency for CPU time
    /// [default: 0s]
    #[arg(long, value_name = "TIME", env = "PAXOSLEASE_SPIN", value_parser = parse_duration)]
    pub(crate) spin: Option<Duration>,

    /// This node's certificate, as PEM; with it, peers speak mutual TLS, and clients as
    /// --tls-clients says
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Who signs the certificates of the cell, as PEM
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// How to speak to clients, by RESP and HTTP: in clear; in TLS; or in TLS with certificates of
    /// their own [default: off]
    #[arg(long, value_name = "HOW", env = "PAXOSLEASE_TLS_CLIENTS")]
    #[arg(value_parser = client_tls_parser())]
    pub(crate) tls_clients: Option<ClientTls>,

    /// Let bytes in clear leave this machine: for networks that are trusted. Without this, a node
    /// whose addresses are not all loopback, and who has no TLS for them, does not start
    #[arg(long, env = "PAXOSLEASE_INSECURE_PLAINTEXT")]
    pub(crate) insecure_plaintext: bool,

    /// Vouch that only nodes of the cell can reach the peer ports. A peer needs no token, so
    /// without this a node with tokens and without TLS does not start
    #[arg(long, env = "PAXOSLEASE_PEERS_OUT_OF_REACH")]
    pub(crate) peers_out_of_reach: bool,

    /// A bound of the table `[limits]`, such as leases=1000000; once for each
    #[arg(long = "limit", value_name = "KEY=N", env = "PAXOSLEASE_LIMITS")]
    #[arg(value_delimiter = ',')]
    pub(crate) limits: Vec<String>,

    /// Vouch that nobody can hold a lease of this cell yet: the first start with an empty data
    /// folder votes at once. For the birth of a cell, so there is no variable for it
    #[arg(long)]
    pub(crate) new_cell: bool,

    /// Start although the stable record is lost or corrupt, after waiting for the longest lease;
    /// for one start only, so there is no variable for it
    #[arg(long)]
    pub(crate) reset_stable_record: bool,

    /// Say what would run, certificates and keys judged, and start nothing
    #[arg(long)]
    pub(crate) check: bool,

    /// Stop when stdin is closed, so that no node outlives who started it
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,

    /// Print the status as a line of JSON on stdout, at every change and every minute; with
    /// `--check`, what would run
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// What is logged, and how. It goes to stderr.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Log, on stderr")]
pub(crate) struct LogArgs {
    /// How much: off, error, warn, info, debug or trace; also by module, such as
    /// info,paxoslease=debug [default: info; of `dev`: error]
    #[arg(long = "log", value_name = "LEVEL", env = "PAXOSLEASE_LOG", value_parser = parse_filter)]
    pub(crate) filter: Option<Targets>,

    /// For people, or for programs
    #[arg(long = "log-format", value_name = "FORMAT", env = "PAXOSLEASE_LOG_FORMAT")]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub(crate) format: LogFormat,
}

/// How a line of the log looks.
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
        .map(|role| role.parse().expect("only these two get here"))
}

fn client_tls_parser() -> impl clap::builder::TypedValueParser<Value = ClientTls> {
    PossibleValuesParser::new(["off", "server", "mutual"])
        .map(|how| how.parse().expect("only these three get here"))
}

/// `Targets` takes a misspelt level for a module and then logs nothing else: refused here.
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
