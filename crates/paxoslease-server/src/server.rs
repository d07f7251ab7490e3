//! One daemon: a node, the sockets for its clients, and the threads behind them.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::PathBuf;

use metrics::{counter, with_local_recorder};
use paxoslease_node::front::Service;
use paxoslease_node::{Node, TlsError};

use crate::audit::Audit;
use crate::http::{Bounds, Http};
use crate::metrics::Metrics;
use crate::{Config, ConfigError, Gate, resp};

/// Why a daemon did not start. Nothing runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node did not start.
    #[error(transparent)]
    Node(#[from] paxoslease_node::StartError),
    /// The audit log cannot be opened.
    #[error("cannot open the audit log {}: {source}", .path.display())]
    Audit {
        /// The path in the configuration.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A port cannot be listened on.
    #[error("cannot listen for {what} on {address}: {source}{}", hint(source))]
    Listen {
        /// Clients or HTTP.
        what: &'static str,
        /// The address in the configuration.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a daemon keeps its certificates and tokens. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration could not be read.
    #[error("{0:#}")]
    Read(Box<dyn Error + Send + Sync>),
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Certificate, key or authority cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Certificates and tokens can be replaced while the daemon runs. TLS and the need for a token
    /// cannot be turned on or off.
    #[error(transparent)]
    Restart(#[from] Lasting),
}

/// What only a restart can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lasting {
    /// Whether nodes and clients use TLS.
    #[error("`[tls]` or `tls.clients` was added, removed or changed, which requires a restart")]
    Tls,
    /// That clients need a token. A truncated file must not open the daemon to all clients.
    #[error(
        "no `[[access]]` is left, which would let every client do everything; keep at least one \
         entry, or restart the node to run it without tokens"
    )]
    Tokens,
}

/// What a reload changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reloaded {
    /// How many entries `[[access]]` has now.
    pub access: usize,
    /// Whether other settings differ too, which require a restart.
    pub needs_restart: bool,
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; is another node running there? Give it another port",
        io::ErrorKind::AddrNotAvailable => "; is it an address of this machine?",
        _ => "",
    }
}

/// A node that serves clients.
#[derive(Debug)]
pub struct Server {
    node: Node,
    clients: Option<SocketAddr>,
    http_at: Option<SocketAddr>,
    http: Option<Http>,
    /// The configuration at the start.
    config: Config,
    gate: Gate,
    metrics: Metrics,
}

impl Server {
    /// Starts a daemon, blocking this thread until it listens. Does not wait for the cell.
    ///
    /// # Errors
    /// When the configuration is not valid, the data folder cannot be used, or an address is in
    /// use. Then nothing runs.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_on(config, None)
    }

    /// Like [`Self::start`], on a socket that already listens for peers, if there is one.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_on(mut config: Config, peers: Option<TcpListener>) -> Result<Self, StartError> {
        config.check()?;
        let clients = bind("clients", config.listen.for_clients())?;
        let http = bind("http", config.listen.for_http())?;
        let metrics = Metrics::new();
        let address_of = |socket: &TcpListener| socket.local_addr().ok();
        let clients_at = clients.as_ref().and_then(address_of);
        let http_at = http.as_ref().and_then(address_of);
        config.node.client_address = clients_at.and_then(|at| config.client_address(at));
        let bounds = Bounds::from(&config.limits);
        let mut gate = Gate::new(&config.access);
        if let Some(path) = &config.audit {
            let audit = Audit::start(path, &config.limits, config.node.node, &metrics);
            let failed = |source| StartError::Audit { path: path.clone(), source };
            gate.audit = audit.map_err(failed)?;
        }
        with_local_recorder(&*metrics.recorder(), count_from_zero);
        let service = Service {
            clients,
            client_tls: config.client_tls.certificates(),
            front: Box::new(resp::front_ends(&config, &gate)),
            recorder: Some(metrics.recorder()),
        };
        let node = Node::start_with(config.node.clone(), peers, service);
        let node = paxoslease_node::block_on(node)?;
        let start =
            |socket| Http::start(node.clone(), socket, metrics.clone(), gate.clone(), bounds);
        match http.map(start).transpose() {
            Ok(http) => {
                Ok(Self { node, clients: clients_at, http_at, http, config, gate, metrics })
            }
            Err(source) => {
                node.shutdown_blocking();
                let what = "a thread for HTTP";
                Err(paxoslease_node::StartError::System { what, source }.into())
            }
        }
    }

    /// The node.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Where clients connect, unless RESP is off.
    #[must_use]
    pub const fn clients(&self) -> Option<SocketAddr> {
        self.clients
    }

    /// Where HTTP is served, unless it is off.
    #[must_use]
    pub const fn http(&self) -> Option<SocketAddr> {
        self.http_at
    }

    /// The metrics of this daemon, which HTTP serves at `/metrics`.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Reads the configuration again, by `read`, replaces certificates and tokens, and opens the
    /// audit log anew. New
    /// connections get the new certificates; new tokens apply at once to all connections. No lease
    /// is lost, a connection whose token is still valid stays open, and a daemon that requires
    /// tokens goes on requiring them. Blocks this thread for a moment.
    ///
    /// # Errors
    /// When a part of the configuration cannot be used. Then nothing is changed.
    pub fn reload(
        &self,
        read: impl FnOnce() -> Result<Config, Box<dyn Error + Send + Sync>>,
    ) -> Result<Reloaded, ReloadError> {
        // Another program may have renamed the file, whatever becomes of the rest.
        self.gate.audit.reopen();
        let outcome = read().map_err(ReloadError::Read).and_then(|config| self.take_over(config));
        let result = if outcome.is_ok() { "done" } else { "failed" };
        let count = || counter!("paxoslease_reloads_total", "result" => result).increment(1);
        with_local_recorder(&*self.metrics.recorder(), count);
        outcome
    }

    fn take_over(&self, mut config: Config) -> Result<Reloaded, ReloadError> {
        config.check()?;
        let encryption = |config: &Config| (config.node.tls.is_some(), config.client_tls);
        if encryption(&config) != encryption(&self.config) {
            return Err(Lasting::Tls.into());
        }
        if config.access.is_empty() && !self.gate.is_open() {
            return Err(Lasting::Tokens.into());
        }
        if let Some(files) = &config.node.tls {
            self.node.reload_tls(files)?;
        }
        self.gate.change(&config.access);
        // A shard's thread takes over new rules before it answers, so when the status is here, all
        // of them have. A thread that has stopped serves no client.
        let _stopped = paxoslease_node::block_on(self.node.status());
        let access = config.access.len();
        config.node.tls.clone_from(&self.config.node.tls);
        config.node.client_address.clone_from(&self.config.node.client_address);
        config.access.clone_from(&self.config.access);
        Ok(Reloaded { access, needs_restart: config != self.config })
    }

    /// Stops cleanly, blocking this thread: accepts no more clients, refuses those that wait, and
    /// writes the snapshot that lets the next start vote at once.
    pub fn shutdown(self) {
        // HTTP ends first. Otherwise its requests would find a node that has stopped.
        if let Some(http) = self.http {
            http.shutdown();
        }
        self.node.shutdown_blocking();
        self.gate.audit.stop();
    }
}

/// Prometheus computes an increase from the first value that it sees, so an alert on a first event
/// needs a zero before it.
fn count_from_zero() {
    for result in ["done", "failed"] {
        counter!("paxoslease_reloads_total", "result" => result).increment(0);
    }
    counter!("paxoslease_refused_total", "reason" => "tls").increment(0);
}

fn bind(what: &'static str, address: Option<&str>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let found = address.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let bound = found.and_then(|found| TcpListener::bind(found.as_slice()));
    let refused = |source| StartError::Listen { what, address: address.to_owned(), source };
    bound.map(Some).map_err(refused)
}
