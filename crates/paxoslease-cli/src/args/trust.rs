//! Options about trust: the identity of a client and its trusted authority, and the commands that
//! make certificates and tokens.
//!
//! This module only parses. No option takes a secret itself, because other users can list the
//! arguments of processes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use paxoslease_server::{NamePattern, PatternError, UnknownVerb, Verb};

use super::CELL_DEFAULT;

/// The heading of the options of every command that connects to a cell, below its own options.
pub(super) const CONNECTION: &str = "Connection";

/// The authority that a client trusts, and the client's identity.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TrustArgs {
    /// CA certificate of the nodes (PEM); enables TLS
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CA", help_heading = CONNECTION)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Client certificate (PEM), if nodes require it
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_CERT", help_heading = CONNECTION)]
    #[arg(requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TLS_KEY", help_heading = CONNECTION)]
    #[arg(requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Name in the nodes' certificates
    ///
    /// If it differs from the host of the endpoint. Nodes that other nodes name need it, too.
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_TLS_SERVER_NAME", help_heading = CONNECTION)]
    #[arg(requires = "tls_ca")]
    pub(crate) tls_server_name: Option<String>,

    /// File with the token, if nodes require one
    ///
    /// Only you may have access to it, as with chmod 600. PAXOSLEASE_TOKEN may contain the token
    /// itself.
    #[arg(long, value_name = "FILE", env = "PAXOSLEASE_TOKEN_FILE", help_heading = CONNECTION)]
    pub(crate) token_file: Option<PathBuf>,

    /// Send the token without TLS
    ///
    /// Other users of the network can then read it. A program that answers at an endpoint in the
    /// place of a node gets it too, and so do the addresses that it names as members.
    #[arg(long, env = "PAXOSLEASE_INSECURE_PLAINTEXT", help_heading = CONNECTION)]
    pub(crate) insecure_plaintext: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/certs.txt"))]
#[command(after_long_help = include_str!("manual/certs.txt"))]
pub(crate) struct CertsArgs {
    /// The name of the cell: nodes refuse certificates of another cell
    #[arg(long, value_name = "NAME", env = "PAXOSLEASE_CELL", default_value = CELL_DEFAULT)]
    pub(crate) cell: String,

    /// How many nodes, from node 1 on
    ///
    /// 3, unless --node, --proposer or --client is given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=99))]
    pub(crate) nodes: Option<u16>,

    /// One node by its id, 1 to 1023; repeat it for each
    #[arg(long = "node", value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub(crate) node: Vec<u16>,

    /// One node with role = "proposer" by its id; repeat it for each
    ///
    /// Its certificate is refused from a member.
    #[arg(long = "proposer", value_name = "ID")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub(crate) proposers: Vec<u16>,

    /// Name or address of a node for clients; repeat it
    ///
    /// Of one node, or of all. localhost, 127.0.0.1 and ::1 are always included.
    #[arg(long = "host", value_name = "[ID=]HOST")]
    pub(crate) hosts: Vec<Host>,

    /// A client that needs a certificate; repeat it for each
    #[arg(long = "client", value_name = "NAME", value_parser = parse_client)]
    pub(crate) clients: Vec<String>,

    /// The folder for the files
    #[arg(long, value_name = "DIR", default_value = "certs")]
    pub(crate) out: PathBuf,

    /// How long certificates are valid
    ///
    /// The certificate of the authority is valid for ten years.
    #[arg(long, value_name = "N", default_value_t = 365)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub(crate) days: u16,

    /// Replace existing certificates
    #[arg(long)]
    pub(crate) force: bool,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

const OWN_NAMES: &str = "nodes identify each other by names that end in .paxoslease; write the \
    host's full name, or its address";

/// A host at which clients reach one node, or all of them.
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
                (Some(node.ok_or("write the id of a node before `=`, 1 to 1023")?), name)
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
        // Nodes identify each other by such names: a certificate with one could impersonate a node.
        if name.to_ascii_lowercase().ends_with(".paxoslease") {
            return Err(OWN_NAMES.into());
        }
        Ok(Self { node, name: name.to_owned() })
    }
}

/// The name becomes part of two file names, beside those of nodes.
fn parse_client(text: &str) -> Result<String, String> {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = (1..=64).contains(&text.len()) && text.chars().all(is_sound);
    if is_name && text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Ok(text.to_owned());
    }
    Err("write up to 64 letters, digits, dots, hyphens and underscores; begin with a letter or digit".into())
}

#[derive(clap::Args, Debug)]
#[command(after_help = include_str!("help/token.txt"))]
pub(crate) struct TokenArgs {
    /// Name, or prefix and star; repeat it for each
    ///
    /// The names that the token permits.
    #[arg(long, value_name = "PATTERN", default_value = "*", value_parser = parse_pattern)]
    pub(crate) names: Vec<String>,

    /// What the token permits: acquire, read, admin
    ///
    /// acquire: acquire, renew and release leases. read: see the holders, and whether the cell is
    /// ready. admin: see the full status, and release leases by force.
    #[arg(long, value_name = "VERBS", value_delimiter = ',', default_value = "acquire,read")]
    #[arg(value_parser = parse_verb)]
    pub(crate) may: Vec<String>,

    /// The name of the token in the audit log
    ///
    /// By default the name of the file of --out.
    #[arg(long, value_name = "NAME", value_parser = parse_token_name)]
    pub(crate) name: Option<String>,

    /// Write the token into this file, which must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "hash")]
    pub(crate) out: Option<PathBuf>,

    /// Read an existing token from stdin instead of making one
    #[arg(long)]
    pub(crate) hash: bool,

    /// Print an object of JSON instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// The name stands in log lines and in errors.
fn parse_token_name(text: &str) -> Result<String, &'static str> {
    let is_sound = !text.is_empty() && text.len() <= 64 && !text.contains(char::is_control);
    if is_sound { Ok(text.to_owned()) } else { Err("write 1 to 64 printable characters") }
}

/// Accepts only patterns that nodes accept.
fn parse_pattern(text: &str) -> Result<String, PatternError> {
    text.parse::<NamePattern>().map(|_| text.to_owned())
}

fn parse_verb(text: &str) -> Result<String, UnknownVerb> {
    text.parse::<Verb>().map(|verb| verb.to_string())
}
