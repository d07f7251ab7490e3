//! TLS to nodes: the CA to trust, the certificate of this client, and error texts that help.
//!
//! TLS 1.3 only, with the cell's own CA and none of the system's: a certificate that the web trusts
//! says nothing about a cell. Files are read once. Deliberately absent: process-wide state, because
//! the program may use rustls itself, and a way to skip the check of a certificate.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paxoslease_tls::{Pem, PemError, client_config, explain_validity};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription as Alert, CertificateError, Error};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// How a client uses TLS: the CA that signed the nodes' certificates and, where nodes ask for
/// one, a certificate of its own.
///
/// ```no_run
/// # mod paxoslease { pub use {paxoslease_client as client, paxoslease_client::Client}; }
/// use paxoslease::{Client, client::Tls};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::from_ca_file("ca.pem")?.with_identity_files("me.pem", "me-key.pem")?;
/// let client = Client::builder().endpoints("db1:7400,db2:7400,db3:7400").tls(tls).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tls {
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    has_identity: bool,
}

/// Why certificates or a key cannot be used. They were only read: nothing was changed or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is missing or not readable.
    #[error("cannot read {}: {source}; expected a PEM file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Certificates or a key cannot be used.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A name that cannot be in a certificate.
    #[error("{0:?} is not a server name: expected a name in the certificate, or an IP address")]
    ServerName(String),
}

impl Tls {
    /// Trusts nodes whose certificates this CA signed. The PEM may contain several CAs.
    ///
    /// # Errors
    /// When it is not PEM with a certificate.
    pub fn from_ca_pem(ca: &[u8]) -> Result<Self, TlsError> {
        Self::trusting(&Pem::new(ca.to_vec(), "the given CA"))
    }

    /// Like [`Self::from_ca_pem`], from a file.
    ///
    /// # Errors
    /// Also when the file cannot be read.
    pub fn from_ca_file(ca: impl AsRef<Path>) -> Result<Self, TlsError> {
        Self::trusting(&read(ca.as_ref())?)
    }

    /// Shows this certificate to nodes that require one.
    ///
    /// # Errors
    /// When the certificate or its private key is not valid PEM, or they are not a pair.
    pub fn with_identity_pem(self, cert: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let cert = Pem::new(cert.to_vec(), "the given certificate");
        self.identified_by(&cert, &Pem::new(key.to_vec(), "the given key"))
    }

    /// Like [`Self::with_identity_pem`], from files.
    ///
    /// # Errors
    /// Also when a file cannot be read.
    pub fn with_identity_files(
        self,
        cert: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        self.identified_by(&read(cert.as_ref())?, &read(key.as_ref())?)
    }

    /// Expects this name in the nodes' certificates instead of the host of the endpoint: for
    /// tunnels and forwarded ports.
    ///
    /// # Errors
    /// When such a name cannot be in a certificate.
    pub fn with_server_name(mut self, name: &str) -> Result<Self, TlsError> {
        let parsed = ServerName::try_from(name.to_owned());
        let parsed = parsed.map_err(|_| TlsError::ServerName(name.to_owned()))?;
        self.server_name = Some(parsed);
        Ok(self)
    }

    /// The explanation of a connection's error, if it is a TLS error.
    #[must_use]
    pub fn explain(error: &io::Error) -> Option<String> {
        error.get_ref().and_then(|cause| cause.downcast_ref()).map(explain)
    }

    fn trusting(ca: &Pem) -> Result<Self, TlsError> {
        let roots = ca.roots()?;
        let config = client_config(Arc::clone(&roots), None);
        Ok(Self { config, roots, server_name: None, has_identity: false })
    }

    fn identified_by(mut self, cert: &Pem, key: &Pem) -> Result<Self, TlsError> {
        let identity = Arc::new(SingleCertAndKey::from(cert.with_key(key)?));
        self.config = client_config(Arc::clone(&self.roots), Some(identity));
        self.has_identity = true;
        Ok(self)
    }

    /// The client side of a TLS connection to this endpoint, `host:port`, for programs with sockets
    /// of their own. Sends nothing yet.
    ///
    /// # Errors
    /// When no certificate can be for that host.
    pub fn connection(&self, endpoint: &str) -> Result<ClientConnection, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => {
                let host = host(endpoint);
                let name = ServerName::try_from(host.to_owned());
                name.map_err(|_| {
                    format!("{host:?} is not a valid TLS server name; pass --tls-server-name")
                })?
            }
        };
        ClientConnection::new(Arc::clone(&self.config), name).map_err(|error| explain(&error))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { roots, config: _, server_name, has_identity } = self;
        f.debug_struct("Tls")
            .field("roots", &roots.len())
            .field("has_identity", has_identity)
            .field("server_name", server_name)
            .finish()
    }
}

/// Without the port, and without the brackets of an IPv6 address.
fn host(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn read(path: &Path) -> Result<Pem, TlsError> {
    let bytes =
        fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })?;
    Ok(Pem::new(bytes, path.display()))
}

/// Says what is wrong, for the operator who has to correct it.
fn explain(error: &Error) -> String {
    use CertificateError as Cert;
    match error {
        // A CA of the same name with another key leads to a bad signature.
        Error::InvalidCertificate(Cert::UnknownIssuer | Cert::BadSignature) => {
            "the node's certificate is not signed by the CA that this client trusts".to_owned()
        }
        Error::InvalidCertificate(why) => {
            let reason = explain_validity(why).unwrap_or_else(|| why.to_string());
            format!("the node's certificate is refused: {reason}")
        }
        Error::AlertReceived(alert) => {
            let why = match alert {
                Alert::CertificateRequired => "it requires a client certificate",
                Alert::UnknownCA | Alert::DecryptError => {
                    "its CA has not signed this client's certificate"
                }
                Alert::CertificateExpired => {
                    "by its clock this client's certificate has expired or is not valid yet"
                }
                Alert::UnsupportedCertificate => {
                    "this client's certificate must allow client authentication"
                }
                _ => "its log says why",
            };
            format!("the node refused the connection: {why} (TLS alert {alert:?})")
        }
        Error::InvalidMessage(_) => "it does not use TLS on this port".to_owned(),
        other => format!("TLS failed: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_certificate_is_for_the_host_without_its_port() {
        for (endpoint, expected) in
            [("db1.example:7400", "db1.example"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:7400", "::1")]
        {
            assert_eq!(host(endpoint), expected);
            assert!(ServerName::try_from(host(endpoint)).is_ok());
        }
    }

    #[test]
    fn a_certificate_that_is_over_is_explained_in_days() {
        let at = |days: u64| UnixTime::since_unix_epoch(Duration::from_secs(days * 24 * 3600));
        let why = CertificateError::ExpiredContext { time: at(1000), not_after: at(634) };
        assert_eq!(
            explain(&Error::InvalidCertificate(why)),
            "the node's certificate is refused: by this machine's clock it ended 366 days ago; make \
             a new one, or set the clock"
        );
        let why = CertificateError::NotValidYetContext { time: at(1000), not_before: at(1003) };
        let text = explain(&Error::InvalidCertificate(why));
        assert!(text.contains("by this machine's clock it begins in 3 days"), "{text}");
    }

    #[test]
    fn invalid_pem_is_named_and_never_quoted() {
        let text = |error: TlsError| format!("{error} {error:?}");
        let error = text(Tls::from_ca_pem(b"hush").expect_err("no PEM"));
        assert!(error.contains("no certificate in the given CA") && !error.contains("hush"));
        let broken = b"-----BEGIN CERTIFICATE-----\nhu!sh\n-----END CERTIFICATE-----\n";
        let error = text(Tls::from_ca_pem(broken).expect_err("no base64"));
        assert!(error.contains("not base64") && !error.contains("hu!sh"), "{error}");
        let error = text(Tls::from_ca_file("/nonexistent/ca.pem").expect_err("no file"));
        assert!(error.contains("/nonexistent/ca.pem"), "{error}");
    }
}
