//! One daemon: a node, the sockets its clients come to, and the threads behind them.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

use paxoslease_node::front::Service;
use paxoslease_node::{ClientTls, Config, ConfigError, Node, TlsError};

use crate::Gate;
use crate::http::{Bounds, Http};
use crate::metrics::Metrics;
use crate::resp;

/// Why a daemon did not start. Nothing runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The node itself did not.
    #[error(transparent)]
    Node(#[from] paxoslease_node::StartError),
    /// Somebody cannot be listened for.
    #[error("cannot listen for {what} on {address}: {source}{}", hint(source))]
    Listen {
        /// Whom.
        what: &'static str,
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The system refused a thread.
    #[error("the system refused {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Why a daemon goes on with the certificates and tokens it has. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration could not be read.
    #[error("{0:#}")]
    Read(Box<dyn Error + Send + Sync>),
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Certificate, key or authority cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// What can be given other certificates or tokens while it runs, but cannot be turned on, off
    /// or over.
    #[error(transparent)]
    Restart(#[from] Lasting),
}

/// What stays as it is until a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lasting {
    /// How nodes and clients are spoken to.
    #[error("`[tls]` or `tls.clients` came, went or changed; that takes a restart")]
    Tls,
    /// That clients need a token: a file that was cut short must not let everybody in.
    #[error(
        "no `[[access]]` is left, which would let everybody do everything; keep at least one entry, \
         or restart the node to run it without tokens"
    )]
    Tokens,
}

/// What a daemon took over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reloaded {
    /// How many entries `[[access]]` has now.
    pub access: usize,
    /// Whether something else differs too, which only a restart would take over.
    pub needs_restart: bool,
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; is another node running there? Give it another port",
        io::ErrorKind::AddrNotAvailable => "; is it an address of this machine?",
        _ => "",
    }
}

/// A node that serves clients, until it is shut down.
#[derive(Debug)]
pub struct Server {
    node: Node,
    clients: Option<SocketAddr>,
    http_at: Option<SocketAddr>,
    http: Option<Http>,
    /// As it was at the start.
    config: Config,
    gate: Gate,
    metrics: Metrics,
}

impl Server {
    /// Starts a daemon, blocking this thread until it listens. Does not wait for the cell.
    ///
    /// # Errors
    /// When the configuration makes no sense, the data folder cannot be used, or an address is
    /// taken. Then nothing runs.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_on(config, None)
    }

    /// As [`Self::start`], on a socket that listens for peers already, if there is one.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_on(config: Config, peers: Option<TcpListener>) -> Result<Self, StartError> {
        config.check().map_err(paxoslease_node::StartError::from)?;
        let clients = bind("clients", config.listen.for_clients())?;
        let http = bind("http", config.listen.for_http())?;
        let metrics = Metrics::new();
        let address_of = |socket: &TcpListener| socket.local_addr().ok();
        let clients_at = clients.as_ref().and_then(address_of);
        let http_at = http.as_ref().and_then(address_of);
        let bounds = Bounds::from(&config.limits);
        let gate = Gate::new(&config.access);
        let service = Service {
            clients,
            front: Box::new(resp::front_ends(&config, &gate)),
            recorder: Some(metrics.recorder()),
        };
        let node = paxoslease_node::block_on(Node::start_with(config.clone(), peers, service))?;
        let http = http
            .map(|socket| Http::start(node.clone(), socket, metrics.clone(), gate.clone(), bounds));
        let http = http
            .transpose()
            .map_err(|source| StartError::System { what: "a thread for HTTP", source });
        match http {
            Ok(http) => {
                Ok(Self { node, clients: clients_at, http_at, http, config, gate, metrics })
            }
            Err(error) => {
                node.shutdown_blocking();
                Err(error)
            }
        }
    }

    /// The node.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// Where clients connect, if they can.
    #[must_use]
    pub const fn clients(&self) -> Option<SocketAddr> {
        self.clients
    }

    /// Where HTTP is served, if it is.
    #[must_use]
    pub const fn http(&self) -> Option<SocketAddr> {
        self.http_at
    }

    /// Reads the configuration again, by `read`, and takes over its certificates and tokens: the
    /// former for connections to come, the latter at once and everywhere. No lease is lost by it,
    /// no connection is dropped whose token is still good, and a node that asks for tokens is never
    /// opened to everybody. Blocks this thread for a moment.
    ///
    /// # Errors
    /// When something of it cannot be used. Then nothing is changed.
    pub fn reload(
        &self,
        read: impl FnOnce() -> Result<Config, Box<dyn Error + Send + Sync>>,
    ) -> Result<Reloaded, ReloadError> {
        let outcome = read().map_err(ReloadError::Read).and_then(|config| self.take_over(config));
        let result = if outcome.is_ok() { "done" } else { "failed" };
        let count = || {
            ::metrics::counter!("paxoslease_reloads_total", "result" => result).increment(1);
        };
        ::metrics::with_local_recorder(&*self.metrics.recorder(), count);
        outcome
    }

    fn take_over(&self, mut config: Config) -> Result<Reloaded, ReloadError> {
        config.check()?;
        let way = |config: &Config| -> Option<ClientTls> { Some(config.tls.as_ref()?.clients) };
        if way(&config) != way(&self.config) {
            return Err(Lasting::Tls.into());
        }
        if config.access.is_empty() && !self.gate.is_open() {
            return Err(Lasting::Tokens.into());
        }
        if let Some(files) = &config.tls {
            self.node.reload_tls(files)?;
        }
        self.gate.change(&config.access);
        // Every thread that serves clients has turned once when this is answered, and has the new
        // rules when it turns. One that is gone serves nobody.
        let _stopped = paxoslease_node::block_on(self.node.status());
        let access = config.access.len();
        config.tls.clone_from(&self.config.tls);
        config.access.clone_from(&self.config.access);
        Ok(Reloaded { access, needs_restart: config != self.config })
    }

    /// Stops cleanly, blocking this thread: accepts nobody any more, turns away whoever waits,
    /// and leaves the snapshot that lets the next start vote at once.
    pub fn shutdown(self) {
        // HTTP ends first, or a request there would find the node gone.
        if let Some(http) = self.http {
            http.shutdown();
        }
        self.node.shutdown_blocking();
    }
}

fn bind(what: &'static str, address: Option<&str>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let found = address.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
    let bound = found.and_then(|found| TcpListener::bind(found.as_slice()));
    let refused = |source| StartError::Listen { what, address: address.to_owned(), source };
    bound.map(Some).map_err(refused)
}
