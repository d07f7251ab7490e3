//! Options about trust: whom a client trusts and who it is, and those of the commands that make
//! certificates and tokens.
//!
//! Parsing only. No option takes a secret itself: whoever may list processes could read it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use paxoslease::{NamePattern, PatternError, UnknownVerb, Verb};

use super::CELL_DEFAULT;

const HEADING: &str = "TLS and access";

const CERTS_HELP: &str = "\
Examples:
  paxoslease certs                                    three nodes on this machine, in ./certs
  paxoslease certs --cell prod-eu --host 1=10.0.0.1 --host 2=10.0.0.2 --host 3=10.0.0.3
  paxoslease certs --nodes 3 --client alice           and a client, for tls.clients = \"mutual\"
  paxoslease certs --node 4 --host 4=10.0.0.4         one more, signed by the same authority
  paxoslease certs --node 2 --force                   a new one for node 2, before its own expires

For development and for small cells that are looked after by hand. The folder gets an authority
(ca.pem, ca-key.pem), and for each node and client a certificate and its key. What is there is kept:
only --force makes certificates anew, and nothing ever replaces the authority. Whoever has
ca-key.pem can be any node: keep it off the nodes. Nodes read changed files when they get SIGHUP.

With --json: {\"ca\", \"nodes\": [...], \"clients\": [...]}, each of those with \"cert\", \"key\" and
\"made\", which is false for what was there before.

Exit code: 0 when all of them are there, 2 for bad usage, 1 for anything else, such as a disk.";

const TOKEN_HELP: &str = "\
Examples:
  paxoslease token --out token --names 'jobs/*'       a new token in a file that only you can read
  paxoslease token --hash < token                     what to write for one that exists
  paxoslease status --token-file token

Prints an entry for the configuration of every node, which knows the token by its SHA-256 alone. A
new token is printed too, unless it goes into a file; nobody can tell it later.

With --json: {\"token_sha256\", \"names\", \"may\"}, and \"token\" if it was made and has no file.

Exit code: 0 when it was made, 2 for bad usage, 1 for anything else, such as a disk.";

/// Whom a client trusts, and who it is.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TrustArgs {
    /// Who signed the certificates of the nodes, as PEM; with it, TLS is spoken
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CA", help_heading = HEADING)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// A certificate of one's own, as PEM, where nodes ask for one
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CERT", help_heading = HEADING)]
    #[arg(requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_KEY", help_heading = HEADING)]
    #[arg(requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The name in the nodes' certificates, if it is not the host of the endpoint
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_TLS_SERVER_NAME", help_heading = HEADING)]
    #[arg(requires = "tls_ca")]
    pub(crate) tls_server_name: Option<String>,

    /// The file with the token, where nodes ask for one; PAXOSLEASE_TOKEN may have the token itself
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TOKEN_FILE", help_heading = HEADING)]
    pub(crate) token_file: Option<PathBuf>,

    /// Send the token without TLS to other machines too, for others on the network to read
    #[arg(long, env = "PAXOSLEASE_INSECURE_PLAINTEXT", help_heading = HEADING)]
    pub(crate) insecure_plaintext: bool,
}

/// Options of `certs`.
#[derive(clap::Args, Debug)]
#[command(after_help = CERTS_HELP)]
pub(crate) struct CertsArgs {
    /// What the cell is called: certificates of another are refused
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_CELL", default_value = CELL_DEFAULT)]
    pub(crate) cell: String,

    /// How many nodes, from node 1 on [default: 3, unless --node or --client is given]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=99))]
    pub(crate) nodes: Option<u16>,

    /// One node by its number, 1 to 1023; once for each
    #[arg(long = "node", value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub(crate) node: Vec<u16>,

    /// Where clients reach the nodes, or one of them: a name or an address; once for each, beside
    /// localhost, 127.0.0.1 and ::1
    #[arg(long = "host", value_name = "[ID=]HOST")]
    pub(crate) hosts: Vec<Host>,

    /// A client that shall have a certificate; once for each
    #[arg(long = "client", value_name = "NAME", value_parser = parse_client)]
    pub(crate) clients: Vec<String>,

    /// The folder
    #[arg(long, value_name = "DIR", default_value = "certs")]
    pub(crate) out: PathBuf,

    /// How long certificates of nodes and clients are valid; the authority is for ten years
    #[arg(long, value_name = "N", default_value_t = 365)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub(crate) days: u16,

    /// Make certificates anew that are there already
    #[arg(long)]
    pub(crate) force: bool,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

const OWN_NAMES: &str = "names that end in .paxoslease are those of nodes among themselves, and \
    each certificate has its own; write the host's whole name, or its address";

/// Where clients reach a node, or all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) node: Option<u16>,
    pub(crate) name: String,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (node, name) = match text.split_once('=') {
            None => (None, text),
            Some((id, name)) => {
                let node = id.parse().ok().filter(|id| (1..=1023).contains(id));
                (Some(node.ok_or("before `=` stands the number of a node")?), name)
            }
        };
        let is_label = |label: &str| {
            let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=63).contains(&label.len()) && label.bytes().all(is_sound)
        };
        let is_name = name.len() <= 253 && name.split('.').all(is_label);
        if !is_name && name.parse::<IpAddr>().is_err() {
            return Err("write a name or an address without a port, such as db1 or 10.0.0.1".into());
        }
        // By such a name nodes know each other: with it, one could speak for another.
        if name.to_ascii_lowercase().ends_with(".paxoslease") {
            return Err(OWN_NAMES.into());
        }
        Ok(Self { node, name: name.to_owned() })
    }
}

/// It becomes part of the names of two files, beside those of nodes.
fn parse_client(text: &str) -> Result<String, String> {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = (1..=64).contains(&text.len()) && text.chars().all(is_sound);
    if is_name && text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(text.to_owned());
    }
    Err("write up to 64 letters, digits, dots and hyphens, beginning with one of the former".into())
}

/// Options of `token`.
#[derive(clap::Args, Debug)]
#[command(after_help = TOKEN_HELP)]
pub(crate) struct TokenArgs {
    /// Which names it is good for: a name, or the beginning of names and a star; once for each
    #[arg(long, value_name = "PATTERN", default_value = "*", value_parser = parse_pattern)]
    pub(crate) names: Vec<String>,

    /// What it allows: acquire, to take and give back leases; read, to see who holds them; admin,
    /// to see how the cell is
    #[arg(long, value_name = "VERBS", value_delimiter = ',', default_value = "acquire,read")]
    #[arg(value_parser = parse_verb)]
    pub(crate) may: Vec<String>,

    /// Put the token into this file, which must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "hash")]
    pub(crate) out: Option<PathBuf>,

    /// Make none, but read one from stdin
    #[arg(long)]
    pub(crate) hash: bool,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// Only what nodes accept.
fn parse_pattern(text: &str) -> Result<String, PatternError> {
    text.parse::<NamePattern>().map(|_| text.to_owned())
}

fn parse_verb(text: &str) -> Result<String, UnknownVerb> {
    text.parse::<Verb>().map(|verb| verb.to_string())
}
