//! The settings of the daemon: those of its node, and those that only concern clients.
//!
//! A user writes all of them into one TOML file. A [`Config`] is plain data that may contradict
//! itself; [`Config::check`] says how.

mod access;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use paxoslease_node::config::{self, Document, KeyedAddress, TomlText};
use paxoslease_node::front::ClientCertificates;
use paxoslease_node::{Listen, LoadError, TomlError};
use thiserror::Error;

pub use access::{Access, NamePattern, PatternError, TokenHash, TokenHashError, UnknownVerb, Verb};

/// The settings of a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The settings of its node.
    pub node: paxoslease_node::Config,
    /// Where it listens for clients.
    pub listen: ServerListen,
    /// How it encrypts connections of clients: `clients` in the table `[tls]`.
    pub client_tls: ClientTls,
    /// What the tokens of clients permit. Without an entry, every client that can connect may do
    /// everything.
    pub access: Vec<Access>,
    /// The file of the audit log; none by default.
    pub audit: Option<PathBuf>,
    /// Bounds on what clients may do.
    pub limits: ServerLimits,
    /// The commands of Redis, beside our own.
    pub redis: Redis,
}

/// The Redis dialect: the table `[redis]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Redis {
    /// Whether clients may use leases as keys of Redis. On by default.
    pub enabled: bool,
    /// Whether commands for test suites are permitted, which can end the leases of others. Off by
    /// default.
    pub testing: bool,
}

impl Default for Redis {
    fn default() -> Self {
        Self { enabled: true, testing: false }
    }
}

/// Where a daemon listens for clients, each as `host:port` or [`Listen::OFF`]. Port 0 is any free
/// port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerListen {
    /// For RESP; by default [`Self::CLIENTS_DEFAULT`].
    pub clients: Option<String>,
    /// For HTTP; by default [`Self::HTTP_DEFAULT`].
    pub http: Option<String>,
    /// Where clients reach this node by RESP, as it tells them and other nodes. By default the
    /// address that it listens on; if that is every address of the machine, the host of its own
    /// address in the list of peers.
    pub advertise: Option<String>,
    /// The caller vouches that only nodes of the cell can reach the peer ports. A peer needs no
    /// token, so without this a daemon with [`Config::access`] and without certificates does not
    /// start.
    pub peers_out_of_reach: bool,
}

impl ServerListen {
    /// The default of [`Self::clients`].
    pub const CLIENTS_DEFAULT: &str = "127.0.0.1:7400";
    /// The default of [`Self::http`].
    pub const HTTP_DEFAULT: &str = "127.0.0.1:7402";

    /// Where to listen for RESP, unless that is off.
    #[must_use]
    pub fn for_clients(&self) -> Option<&str> {
        Listen::unless_off(self.clients.as_deref().unwrap_or(Self::CLIENTS_DEFAULT))
    }

    /// Where to listen for HTTP, unless that is off.
    #[must_use]
    pub fn for_http(&self) -> Option<&str> {
        Listen::unless_off(self.http.as_deref().unwrap_or(Self::HTTP_DEFAULT))
    }
}

/// How a daemon encrypts connections of clients, for RESP and for HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ClientTls {
    /// In clear.
    #[default]
    Off,
    /// By TLS: clients can verify the node.
    Server,
    /// By TLS, and clients need a certificate of the cell's authority too.
    Mutual,
}

impl ClientTls {
    pub(crate) const fn certificates(self) -> Option<ClientCertificates> {
        match self {
            Self::Off => None,
            Self::Server => Some(ClientCertificates::Unasked),
            Self::Mutual => Some(ClientCertificates::Required),
        }
    }
}

impl fmt::Display for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Server => "server",
            Self::Mutual => "mutual",
        })
    }
}

/// A text that is not a value of `tls.clients`.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0:?} is not a kind of TLS for clients; expected off, server or mutual")]
pub struct UnknownClientTls(String);

impl FromStr for ClientTls {
    type Err = UnknownClientTls;

    fn from_str(text: &str) -> Result<Self, UnknownClientTls> {
        let known = [Self::Off, Self::Server, Self::Mutual];
        let found = known.into_iter().find(|way| way.to_string() == text);
        found.ok_or_else(|| UnknownClientTls(text.to_owned()))
    }
}

impl TomlText for ClientTls {
    const EXPECTED: &'static str = "\"off\", \"server\" or \"mutual\"";
}

/// Bounds on what clients may do; none may be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Connections of clients, for RESP and for HTTP each. A client over this is disconnected.
    pub connections: u32,
    /// Commands of one connection under way, those that wait for a lease included. A command over
    /// this is refused.
    pub inflight_per_connection: u32,
    /// Acquires of one connection, on average. Up to a second's worth may come at once; an acquire
    /// over this is refused. Unbounded by default.
    pub acquires_per_second: Option<u32>,
    /// Bytes of a file of the audit log. A full file is kept as `<path>.1`.
    pub audit_bytes: u64,
    /// How many full files of the audit log are kept; the oldest is deleted.
    pub audit_files: u8,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            inflight_per_connection: 10_000,
            acquires_per_second: None,
            audit_bytes: 64 << 20,
            audit_files: 4,
        }
    }
}

impl ServerLimits {
    fn read(&mut self, document: &mut Document<'_>) -> Result<(), TomlError> {
        document.read("limits.connections", &mut self.connections)?;
        document.read("limits.inflight_per_connection", &mut self.inflight_per_connection)?;
        document.read("limits.acquires_per_second", &mut self.acquires_per_second)?;
        document.read("limits.audit_bytes", &mut self.audit_bytes)?;
        document.read("limits.audit_files", &mut self.audit_files)
    }
}

/// Why a daemon cannot start with a configuration. Nothing was started or changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting of the node, an address or a limit is wrong.
    #[error(transparent)]
    Node(#[from] paxoslease_node::ConfigError),
    /// Clients cannot be answered by TLS.
    #[error(
        "`tls.clients` is \"{0}\", but there is no certificate; give `cert`, `key` and `ca` in \
         `[tls]` (--tls-cert, --tls-key and --tls-ca), or turn TLS for clients off"
    )]
    NoCertificate(ClientTls),
    /// Tokens would protect nothing.
    #[error(
        "`[[access]]` is set, but peers do not use TLS: any program that reaches a peer port of \
         the cell can read, release and acquire leases without a token; give all nodes certificates \
         by `[tls]` cert, key and ca, or set listen.peers = \"off\" if the cell has one member, or \
         set `listen.peers_out_of_reach` (--peers-out-of-reach) if only nodes of the cell can \
         reach the peer ports"
    )]
    AccessInClear,
}

impl Config {
    /// The defaults for clients.
    #[must_use]
    pub fn new(node: paxoslease_node::Config) -> Self {
        let (listen, limits) = (ServerListen::default(), ServerLimits::default());
        let (access, audit, redis) = (Vec::new(), None, Redis::default());
        Self { node, listen, client_tls: ClientTls::default(), access, audit, limits, redis }
    }

    /// Where clients reach a daemon that listens at this address, if others can know that. An
    /// address of loopback means another machine on another machine.
    pub(crate) fn client_address(&self, at: SocketAddr) -> Option<String> {
        if let Some(address) = &self.listen.advertise {
            return Some(address.clone());
        }
        // A node that joins a running cell may know its own address from `listen.peers` alone.
        let is_specific =
            |at: &&String| at.parse::<SocketAddr>().is_ok_and(|at| !at.ip().is_unspecified());
        let listens = || self.node.listen.peers.as_ref().filter(is_specific);
        let own = self.node.peers.get(&self.node.node).or_else(listens);
        let host = own.and_then(|own| own.rsplit_once(':')).map(|(host, _)| host);
        if at.ip().is_unspecified() {
            return host.map(|host| format!("{host}:{}", at.port()));
        }
        let is_local = host.is_none_or(|host| {
            let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
        });
        (is_local || !at.ip().is_loopback()).then(|| at.to_string())
    }

    /// Sets [`ServerListen::clients`] and [`ServerListen::http`].
    #[must_use]
    pub fn listen(mut self, clients: impl Into<String>, http: impl Into<String>) -> Self {
        (self.listen.clients, self.listen.http) = (Some(clients.into()), Some(http.into()));
        self
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, or has a key that is unknown or of another kind.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        config::load(path.as_ref(), Self::from_toml)
    }

    /// Reads a TOML text. A setting that is not there keeps its default, and may still be set.
    ///
    /// # Errors
    /// When it is not TOML, or has a key that is unknown or of another kind.
    pub fn from_toml(text: &str) -> Result<Self, TomlError> {
        let mut document = Document::parse(text)?;
        let mut listen = ServerListen::default();
        document.read("listen.clients", &mut listen.clients)?;
        document.read("listen.http", &mut listen.http)?;
        document.read("listen.advertise", &mut listen.advertise)?;
        document.read("listen.peers_out_of_reach", &mut listen.peers_out_of_reach)?;
        let mut client_tls = ClientTls::default();
        document.read("tls.clients", &mut client_tls)?;
        let mut audit = None;
        document.read("audit", &mut audit)?;
        let mut limits = ServerLimits::default();
        limits.read(&mut document)?;
        let mut redis = Redis::default();
        document.read("redis.enabled", &mut redis.enabled)?;
        document.read("redis.testing", &mut redis.testing)?;
        let access = document.tables("access")?.into_iter().map(Access::from_document);
        let access = access.collect::<Result<_, _>>()?;
        let node = paxoslease_node::Config::from_document(document)?;
        Ok(Self { node, listen, client_tls, access, audit, limits, redis })
    }

    /// Sets a limit of the node or of clients, as `key = number` in the table `[limits]` would.
    ///
    /// # Errors
    /// When there is no such key or the number does not suit it; then nothing was changed.
    pub fn set_limit(&mut self, assignment: &str) -> Result<(), TomlError> {
        let text = format!("limits.{}", assignment.trim_start());
        let mut document = Document::parse(&text)?;
        self.node.limits.read(&mut document)?;
        self.limits.read(&mut document)?;
        document.finish()
    }

    /// Whether a daemon could start with this, as far as can be told without the machine.
    ///
    /// # Errors
    /// Names the first contradiction, what was expected, and what to do.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { node, listen, client_tls, access, audit: _, limits, redis: _ } = self;
        node.check()?;
        let keyed = |clients, http| {
            let addresses = [("listen.clients", clients), ("listen.http", http)].into_iter();
            addresses.filter_map(|(key, address)| Some(KeyedAddress::new(key, address?)))
        };
        let clients = keyed(listen.clients.as_deref(), listen.http.as_deref());
        config::check_listen(node.listen_address().into_iter().chain(clients))?;
        if *client_tls != ClientTls::Off && node.tls.is_none() {
            return Err(ConfigError::NoCertificate(*client_tls));
        }
        if *client_tls == ClientTls::Off && !node.listen.allow_plaintext {
            let remedy = "set `[tls]` with clients = \"server\" or \"mutual\"";
            config::check_loopback(keyed(listen.for_clients(), listen.for_http()), remedy)?;
        }
        // A peer may read, release and take every lease without a token. Without certificates every
        // program that reaches the peer port is a peer, also one of another user of this machine.
        let peers_off = node.listen.peers.as_deref() == Some(Listen::OFF);
        let are_peers_known = node.tls.is_some() || peers_off || listen.peers_out_of_reach;
        if !access.is_empty() && !are_peers_known {
            return Err(ConfigError::AccessInClear);
        }
        let counts = [
            ("connections", Some(limits.connections)),
            ("inflight_per_connection", Some(limits.inflight_per_connection)),
            ("acquires_per_second", limits.acquires_per_second),
            ("audit_bytes", Some(u32::try_from(limits.audit_bytes).unwrap_or(u32::MAX))),
            ("audit_files", Some(limits.audit_files.into())),
        ];
        match counts.into_iter().find(|(_, count)| *count == Some(0)) {
            None => Ok(()),
            Some((key, _)) => Err(paxoslease_node::ConfigError::ZeroLimit(key).into()),
        }
    }
}
