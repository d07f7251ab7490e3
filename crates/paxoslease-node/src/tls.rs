//! TLS, mutual between peers and as a front-end chooses with clients: the certificates of nodes.
//!
//! The certificate of node 3 of the cell `north` is valid for the DNS name
//! `node-3.north.paxoslease`, or `proposer-3.north.paxoslease` if the node only proposes, for no
//! other node, and is signed by the cell's CA. The dialer demands the name of a member from the
//! node it calls. The acceptor learns the id and the role from the Hello and then asks
//! [`Stream::peer_is`], and so does the dialer. TLS 1.3 only, and a full handshake each time: a
//! resumed session would skip the check of the certificate.
//!
//! Files can be read again while the node runs. Open connections keep the certificates they were
//! made with; new connections get those of [`CurrentTls`].
//!
//! Deliberately absent: revocation lists (a cell replaces its CA instead), and any process-wide
//! state, since the service that embeds a node may use rustls itself.

mod judge;
mod key_file;
mod names;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use mio::net::TcpStream;
use paxoslease_core::NodeId;
use paxoslease_holder::Role;
use paxoslease_tls::{Pem, PemError, client_config, client_verifier, server_config};
use rustls::pki_types::UnixTime;
use rustls::server::NoClientAuth;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

pub use key_file::Exposure;
use names::NodeNames;
pub(crate) use names::dns_name;
use stream::OtherEnd;
pub(crate) use stream::Stream;

use crate::config::Tls;

/// Whether clients that connect by TLS need a certificate of the cell's authority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// They need no certificate.
    Unasked,
    /// A client without one is refused.
    Required,
}

/// Why the files of `[tls]` cannot be used. They were only read: nothing was changed or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is missing or may not be read.
    #[error(
        "cannot read {}: {source}; [tls] names three PEM files: cert, key and ca",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another user can read or change a private key.
    #[error("the private key in {} is not secret: {problem}; {remedy}", path.display())]
    KeyExposed {
        /// The file.
        path: PathBuf,
        /// Who has access to it.
        problem: String,
        /// What to run.
        remedy: String,
    },
    /// The content of a file cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// This node's own certificate is for another node, so every peer would refuse it.
    #[error(
        "the certificate in {} is not valid for {name}: give this node its own, or correct `node`, \
         `role` or `cell` (`paxoslease certs --cell` makes certificates for a cell)",
        cert.display()
    )]
    OtherNode {
        /// The certificate's file.
        cert: PathBuf,
        /// The DNS name that the certificate lacks.
        name: String,
    },
    /// Certificates cannot name the cell.
    #[error(
        "certificates cannot name the cell {0:?}: with [tls], `cell` has 1 to 63 lower-case \
         letters, digits and hyphens, and no hyphen first or last"
    )]
    CellName(String),
    /// This node's own certificate is not valid now, or not by the authorities of the cell.
    #[error("every peer would refuse the certificate in {}: {reason}", cert.display())]
    Refused {
        /// The certificate's file.
        cert: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
}

impl Tls {
    /// Checks whether the peers of `node` of `cell` would accept these files now, from a node in
    /// this role. Only reads them. Returns the end of their validity, in seconds since 1970.
    ///
    /// # Errors
    /// Says which file cannot be used, why, and what to do about it.
    pub fn check(&self, cell: &str, node: u16, role: Role) -> Result<u64, TlsError> {
        let name = dns_name(cell, node, role);
        let other = || TlsError::OtherNode { cert: self.cert.clone(), name };
        let names = NodeNames::new(cell)?;
        let context = TlsContext::load(self, names, (NodeId::new(node).ok_or_else(other)?, role))?;
        Ok(context.not_after.as_secs())
    }

    /// The DNS name that the certificate of `node` in this role must be valid for.
    ///
    /// # Errors
    /// When certificates cannot name this cell.
    pub fn node_name(cell: &str, node: u16, role: Role) -> Result<String, TlsError> {
        NodeNames::new(cell).map(|_| dns_name(cell, node, role))
    }
}

/// This node's identity and the CA that it trusts.
pub(crate) struct TlsContext {
    names: NodeNames,
    client: Arc<ClientConfig>,
    /// Demands a certificate of the CA from the other side.
    mutual: Arc<ServerConfig>,
    /// Demands no certificate.
    one_sided: Arc<ServerConfig>,
    /// When peers begin to refuse this node.
    not_after: UnixTime,
}

impl TlsContext {
    /// Reads this node's certificate chain, its key and the CA of the cell, all PEM. Refuses a
    /// certificate that every peer would refuse.
    fn load(files: &Tls, names: NodeNames, own: (NodeId, Role)) -> Result<Self, TlsError> {
        let cert = Pem::new(read(&files.cert)?, files.cert.display());
        let key = Pem::new(key_file::read(&files.key)?, files.key.display());
        let identity = cert.with_key(&key)?;
        let roots = Pem::new(read(&files.ca)?, files.ca.display()).roots()?;
        let not_after = judge::judge(&identity.cert, &names, own, files, &roots)?;
        let identity = Arc::new(SingleCertAndKey::from(identity));
        Ok(Self {
            mutual: server_config(client_verifier(Arc::clone(&roots)), Arc::clone(&identity)),
            client: client_config(roots, Some(Arc::clone(&identity) as _)),
            one_sided: server_config(Arc::new(NoClientAuth), identity),
            names,
            not_after,
        })
    }
}

/// How new connections are made: in clear, or with the latest certificates.
#[derive(Clone, Default)]
pub(crate) struct CurrentTls {
    context: Option<Arc<RwLock<Arc<TlsContext>>>>,
    /// `None` if clients connect in clear.
    clients: Option<ClientCertificates>,
}

impl CurrentTls {
    /// Reads the files, if there are any. Clients connect in clear.
    pub(crate) fn load(
        files: Option<&Tls>,
        cell: &str,
        own: (NodeId, Role),
    ) -> Result<Self, TlsError> {
        let Some(files) = files else { return Ok(Self::default()) };
        let context = TlsContext::load(files, NodeNames::new(cell)?, own)?;
        Ok(Self { context: Some(Arc::new(RwLock::new(Arc::new(context)))), clients: None })
    }

    /// Lets clients connect by TLS, unless `clients` is `None`.
    pub(crate) fn with_clients(mut self, clients: Option<ClientCertificates>) -> Self {
        let has_certificate = self.context.is_some();
        assert!(has_certificate || clients.is_none(), "TLS for clients needs a certificate");
        self.clients = clients;
        self
    }

    /// Reads the files again, for new connections. If one cannot be used, nothing changes.
    pub(crate) fn reload(&self, files: &Tls, own: (NodeId, Role)) -> Result<(), TlsError> {
        let (Some(shared), Some(current)) = (&self.context, self.current()) else { return Ok(()) };
        let context = TlsContext::load(files, current.names.clone(), own)?;
        *shared.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(context);
        Ok(())
    }

    fn current(&self) -> Option<Arc<TlsContext>> {
        let current = self.context.as_ref()?.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }

    /// The calling side of a connection to `node`, which must be a member. Nothing is sent before
    /// the first `flush`.
    pub(crate) fn dial(&self, tcp: TcpStream, node: NodeId) -> io::Result<Stream> {
        let Some(tls) = self.current() else { return Ok(Stream::Plain(tcp)) };
        let name = tls.names.of(node, Role::Member);
        let conn = ClientConnection::new(Arc::clone(&tls.client), name);
        Stream::tls(conn, tcp, OtherEnd::Peer(tls.names.clone()))
    }

    /// The called side of a connection. The caller's Hello names its node, which is checked then.
    pub(crate) fn accept(&self, tcp: TcpStream) -> io::Result<Stream> {
        let Some(tls) = self.current() else { return Ok(Stream::Plain(tcp)) };
        let conn = ServerConnection::new(Arc::clone(&tls.mutual));
        Stream::tls(conn, tcp, OtherEnd::Peer(tls.names.clone()))
    }

    /// The called side of a client's connection. A client that does not use TLS although it must
    /// gets the bytes `not_tls`.
    pub(crate) fn accept_client(
        &self,
        tcp: TcpStream,
        not_tls: &'static [u8],
    ) -> io::Result<Stream> {
        let Some(server) = self.for_clients() else { return Ok(Stream::Plain(tcp)) };
        let client = OtherEnd::Client { not_tls, is_new: true };
        Stream::tls(ServerConnection::new(server), tcp, client)
    }

    /// When peers begin to refuse this node, if they use TLS.
    pub(crate) fn not_after(&self) -> Option<UnixTime> {
        Some(self.current()?.not_after)
    }

    /// How to accept clients, unless they connect in clear.
    pub(crate) fn for_clients(&self) -> Option<Arc<ServerConfig>> {
        let (certificates, context) = (self.clients?, self.current()?);
        Some(Arc::clone(match certificates {
            ClientCertificates::Unasked => &context.one_sided,
            ClientCertificates::Required => &context.mutual,
        }))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}
