//! The settings of a node: from code, from a TOML file, or from both.
//!
//! A [`Config`] is plain data that may contradict itself; [`Config::check`] says how. The node
//! works with the checked settings of `settings.rs`. This module resolves no names, opens no file
//! except the configuration, and reads nothing from the environment.
//!
//! A program with more settings than its node can keep all of them in one file: it parses a
//! [`Document`], takes out its own keys, and hands the rest to [`Config::from_document`].

mod address;
mod document;
mod duration;
mod error;
mod file;
mod memory;
mod settings;
mod spin;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use address::PeerAddress;
pub use address::{AddressError, KeyedAddress, check_listen, check_loopback};
pub use document::{Document, TomlError, TomlText};
pub use duration::{DurationError, parse_duration};
pub use error::{ConfigError, LoadError};
pub use paxoslease_core::Durability;
pub(crate) use paxoslease_holder::Role;
pub(crate) use settings::Settings;
pub use spin::{Spin, SpinError};

/// The settings of a node.
///
/// ```
/// # mod paxoslease { pub use {paxoslease_node as node, paxoslease_node::Config}; }
/// use std::time::Duration;
/// use paxoslease::{Config, node::Tls};
///
/// let config = Config::new("prod-eu", 1)
///     .peer(1, "10.0.0.1:7401")
///     .peer(2, "10.0.0.2:7401")
///     .peer(3, "10.0.0.3:7401")
///     .listen("0.0.0.0:7401")
///     .tls(Tls::new("node-1.pem", "node-1.key", "ca.pem"))
///     .max_lease(Duration::from_secs(30))
///     .data_dir("/var/lib/paxoslease")
///     .shards(2);
/// config.check()?;
///
/// let same = Config::from_toml(
///     r#"
///     cell = "prod-eu"
///     node = 1
///     max_lease = "30s"
///     data_dir = "/var/lib/paxoslease"
///     shards = 2
///     [peers]
///     1 = "10.0.0.1:7401"
///     2 = "10.0.0.2:7401"
///     3 = "10.0.0.3:7401"
///     [listen]
///     peers = "0.0.0.0:7401"
///     [tls]
///     cert = "node-1.pem"
///     key = "node-1.key"
///     ca = "ca.pem"
///     "#,
/// )?;
/// assert_eq!(config, same);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The name of the cell, 1 to 64 bytes. Nodes of another cell are refused.
    pub cell: String,
    /// The id of this node, 1 to 1023, another for every node; zero until it is known.
    pub node: u16,
    /// What this node does in the cell.
    pub role: Role,
    /// Members of the cell and the addresses that their peers connect to, as `host:port`. With a
    /// `data_dir` they found the cell ([`Self::new_cell`](field@Self::new_cell)), and later are
    /// the first contact; without one they are the members.
    pub peers: BTreeMap<u16, String>,
    /// Where this node listens.
    pub listen: Listen,
    /// The longest lease of the cell. All nodes must agree.
    pub max_lease: Duration,
    /// How far a clock's rate may be off, in parts per million. All nodes must agree.
    pub clock_drift_ppm: u32,
    /// How old a clock's reading may be. All nodes must agree.
    pub clock_granularity: Duration,
    /// Where members keep durable leases, which last longer than `max_lease`, or without an end. By
    /// default on disk; then no number of crashes loses one. All nodes must agree. A member without
    /// a `data_dir` keeps none on disk.
    pub durable_leases: Durability,
    /// The folder of the stable record. Without it, exclusion across a restart depends on the wall
    /// clock, every start waits for `max_lease` before it votes, and the members cannot change.
    pub data_dir: Option<PathBuf>,
    /// Certificates for TLS. Without them, nodes connect in clear.
    pub tls: Option<Tls>,
    /// How many threads share the names, 1 to 256; by default one. All nodes must agree.
    pub shards: u16,
    /// How long a shard looks for work before it sleeps.
    pub spin: Spin,
    /// First start of a brand-new cell: the nodes of the list found it once all of them are up.
    /// Without this, a node with an empty `data_dir` waits until it is made a member. Unsafe if
    /// this cell ever ran: there may be two holders.
    pub new_cell: bool,
    /// A cell for tests and demonstrations: nothing on disk, no quarantine. Each node of it must be
    /// started only once, or there may be two holders.
    pub ephemeral: bool,
    /// Starts although the stable record is lost, corrupt or another node's: the folder gets a new
    /// birth, so this node is no member until it is added. No effect on a record that is readable.
    pub reset_stable_record: bool,
    /// Where clients reach this node, as it tells other nodes and clients; none if no client does.
    /// Programs that serve clients set it.
    pub client_address: Option<String>,
    /// Timeouts and intervals.
    pub timing: Timing,
    /// Bounds on memory.
    pub limits: Limits,
}

/// Where a node listens for peers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Listen {
    /// As `host:port`; port 0 is any free port. By default, a member listens on its own address in
    /// [`Config::peers`]. The only member of a cell may set [`Self::OFF`]; then no proposer can
    /// join.
    pub peers: Option<String>,
    /// The caller trusts the network: bytes in clear may leave this machine. Without this, a node
    /// that would send in clear to an address that is not loopback does not start.
    pub allow_plaintext: bool,
}

/// PEM files for TLS 1.3. It is mutual between peers, and peers without TLS are refused.
///
/// A node's certificate must be valid for its own DNS name: `node-3.north.paxoslease`, or
/// `proposer-3.north.paxoslease` if it only proposes, for node 3 of the cell `north`. If it
/// restricts its use, it must allow both server and client authentication, since nodes dial each
/// other.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tls {
    /// This node's certificate, and the intermediate certificates up to `ca`.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs the certificates of the cell's nodes.
    pub ca: PathBuf,
}

impl Tls {
    /// All three are needed.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>, ca: impl Into<PathBuf>) -> Self {
        Self { cert: cert.into(), key: key.into(), ca: ca.into() }
    }
}

/// Timeouts and intervals. None may be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// After this time without a majority, a request ends with "no quorum".
    pub request_timeout: Duration,
    /// After this time without a majority, a round ends and the next one begins.
    pub attempt_timeout: Duration,
    /// The interval of heartbeats to each peer. Only the node that dialled pings, as long as its
    /// pings arrive.
    pub heartbeat: Duration,
    /// The connection of a peer that is silent for this long is closed; at least two heartbeats.
    pub peer_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(2),
            attempt_timeout: Duration::from_millis(100),
            heartbeat: Duration::from_millis(200),
            peer_timeout: Duration::from_secs(1),
        }
    }
}

/// Bounds on the memory of a node; none may be zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Leases that a member votes on. Shards share this equally, as the next four. Nodes need not
    /// agree. By default a quarter of the memory that this process may use, at
    /// [`Self::LEASE_BYTES`] each.
    pub leases: u32,
    /// Bytes of names and holders that are longer than 38 bytes together; shorter ones are a part
    /// of [`Self::LEASE_BYTES`]. By default a quarter of the memory that this process may use.
    pub names_bytes: u64,
    /// Names with a durable lease, and names whose durable lease is over but not yet forgotten.
    pub durable: u32,
    /// Requests that wait for a lease.
    pub waiters: u32,
    /// Requests under way.
    pub inflight: u32,
    /// Bytes that one shard queues for one peer, at least 512 KiB. Messages over this are dropped.
    pub peer_queue_bytes: usize,
}

impl Limits {
    /// The most memory that a lease takes, besides [`Self::names_bytes`].
    pub const LEASE_BYTES: u64 = 88;
    /// The highest default of [`Self::leases`], however much memory there is.
    const LEASES_DEFAULT_MAX: u32 = 100_000_000;

    /// Leases and their names take at most half of this memory.
    fn for_memory(bytes: u64) -> Self {
        let leases = u32::try_from(bytes / 4 / Self::LEASE_BYTES).unwrap_or(u32::MAX);
        Self {
            leases: leases.clamp(1, Self::LEASES_DEFAULT_MAX),
            names_bytes: (bytes / 4).max(1),
            durable: 1_000_000,
            waiters: 1_000_000,
            inflight: 1_000_000,
            peer_queue_bytes: 4 << 20,
        }
    }
}

impl Default for Limits {
    /// Leases and their names take at most half of the memory that the machine has and the control
    /// groups allow.
    fn default() -> Self {
        Self::for_memory(memory::available())
    }
}

impl Listen {
    /// In place of an address: the node does not listen.
    pub const OFF: &str = "off";

    /// The address, unless it is [`Self::OFF`].
    #[must_use]
    pub fn unless_off(address: &str) -> Option<&str> {
        Some(address).filter(|address| *address != Self::OFF)
    }
}

impl Config {
    /// The defaults, without members: [`Self::peer`] adds them.
    pub fn new(cell: impl Into<String>, node: u16) -> Self {
        Self {
            cell: cell.into(),
            node,
            role: Role::default(),
            peers: BTreeMap::new(),
            listen: Listen::default(),
            max_lease: Duration::from_secs(60),
            clock_drift_ppm: 1000,
            clock_granularity: Duration::from_millis(1),
            durable_leases: Durability::Disk,
            data_dir: None,
            tls: None,
            shards: 1,
            spin: Spin::Auto,
            new_cell: false,
            ephemeral: false,
            reset_stable_record: false,
            client_address: None,
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// When it cannot be read, is not TOML, or has a key that is unknown or of another kind.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        load(path.as_ref(), Self::from_toml)
    }

    /// Reads a TOML text. A setting that is not there keeps its default, and may still be set.
    ///
    /// # Errors
    /// When it is not TOML, or has a key that is unknown or of another kind.
    pub fn from_toml(text: &str) -> Result<Self, TomlError> {
        Self::from_document(Document::parse(text)?)
    }

    /// Sets the address of a member. This node is one of them if it is a member.
    #[must_use]
    pub fn peer(mut self, node: u16, address: impl Into<String>) -> Self {
        self.peers.insert(node, address.into());
        self
    }

    /// Sets [`Self::role`](field@Self::role).
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Sets where to listen for peers, [`Listen::peers`].
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.peers = Some(address.into());
        self
    }

    /// Sets [`Self::max_lease`](field@Self::max_lease).
    #[must_use]
    pub const fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    /// Sets [`Self::durable_leases`](field@Self::durable_leases).
    #[must_use]
    pub const fn durable_leases(mut self, durable_leases: Durability) -> Self {
        self.durable_leases = durable_leases;
        self
    }

    /// Sets [`Self::data_dir`](field@Self::data_dir).
    #[must_use]
    pub fn data_dir(mut self, data_dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(data_dir.into());
        self
    }

    /// Sets [`Self::tls`](field@Self::tls).
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets [`Listen::allow_plaintext`]: bytes in clear may leave this machine.
    #[must_use]
    pub const fn allow_plaintext(mut self) -> Self {
        self.listen.allow_plaintext = true;
        self
    }

    /// Sets [`Self::shards`](field@Self::shards).
    #[must_use]
    pub const fn shards(mut self, shards: u16) -> Self {
        self.shards = shards;
        self
    }

    /// Sets [`Self::spin`](field@Self::spin).
    #[must_use]
    pub const fn spin(mut self, spin: Spin) -> Self {
        self.spin = spin;
        self
    }

    /// Sets [`Self::new_cell`](field@Self::new_cell). Two holders are possible if it is not true.
    #[must_use]
    pub const fn new_cell(mut self, new_cell: bool) -> Self {
        self.new_cell = new_cell;
        self
    }

    /// Sets [`Self::ephemeral`](field@Self::ephemeral).
    #[must_use]
    pub const fn ephemeral(mut self) -> Self {
        self.ephemeral = true;
        self
    }

    /// Sets [`Self::reset_stable_record`](field@Self::reset_stable_record).
    #[must_use]
    pub const fn reset_stable_record(mut self, reset: bool) -> Self {
        self.reset_stable_record = reset;
        self
    }

    /// The address on which this node listens for peers, if it does.
    #[must_use]
    pub fn listen_for_peers(&self) -> Option<&str> {
        let own = self.peers.get(&self.node).filter(|_| self.role == Role::Member);
        Listen::unless_off(self.listen.peers.as_ref().or(own)?)
    }

    /// Checks everything that does not depend on the machine.
    ///
    /// # Errors
    /// Names the first contradiction, what was expected, and what to do.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.settings().map(drop)
    }
}

/// Reads a file and parses its text.
///
/// # Errors
/// When the file cannot be read or its text cannot be parsed.
pub fn load<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, TomlError>,
) -> Result<T, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| LoadError::Read { path: path.to_owned(), error })?;
    parse(&text).map_err(|error| LoadError::Toml { path: path.to_owned(), error })
}
