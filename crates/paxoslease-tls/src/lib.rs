//! What nodes and clients share about TLS: certificates and keys as PEM, configurations of rustls,
//! and its bytes on sockets that do not block.
//!
//! TLS 1.3 only, and a full handshake each time: a resumed session would skip the check of the
//! certificate. Deliberately absent: files, and any process-wide state, since the program that
//! embeds a node or a client may use rustls itself.

#[cfg(feature = "test-util")]
mod authority;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Connection, Error, InconsistentKeys};
use rustls::{RootCertStore, ServerConfig};

#[cfg(feature = "test-util")]
pub use authority::Authority;
#[cfg(feature = "test-util")]
pub use rcgen;

const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13];
const HAS_SUITES: &str = "ring has cipher suites for TLS 1.3";

/// When the certificate ended or begins, by this machine's clock, and what to do; `None` for a
/// certificate that is refused for another reason.
#[must_use]
pub fn explain_validity(why: &CertificateError) -> Option<String> {
    match why {
        CertificateError::ExpiredContext { time, not_after } => Some(format!(
            "by this machine's clock it ended {} ago; make a new one, or set the clock",
            days(*not_after, *time)
        )),
        CertificateError::NotValidYetContext { time, not_before } => Some(format!(
            "by this machine's clock it begins in {}; set the clock, or make a new one",
            days(*time, *not_before)
        )),
        _ => None,
    }
}

/// The span between two times, for people.
#[must_use]
pub fn days(from: UnixTime, to: UnixTime) -> String {
    const DAY: u64 = 24 * 3600;
    match to.as_secs().saturating_sub(from.as_secs()) {
        seconds if seconds < 2 * DAY => format!("{seconds} seconds"),
        seconds => format!("{} days", seconds / DAY),
    }
}

/// Why certificates or a key cannot be used. A place is a file, or what was given instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// This place has no certificate.
    #[error("no certificate in {0}: expected PEM with BEGIN CERTIFICATE")]
    NoCertificate(String),
    /// This place has no private key.
    #[error("no private key in {0}: expected PEM with BEGIN PRIVATE KEY, not encrypted")]
    NoKey(String),
    /// The content of this place cannot be used.
    #[error("{place} cannot be used: {reason}; create or copy it again")]
    Unusable {
        /// The place.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key belong to different pairs.
    #[error(
        "the key in {key} is not the key of the certificate in {cert}: use the pair made together"
    )]
    KeyMismatch {
        /// The place of the certificate.
        cert: String,
        /// The place of the key.
        key: String,
    },
}

/// A text as PEM, and where it comes from.
#[derive(Clone)]
pub struct Pem {
    bytes: Vec<u8>,
    place: String,
}

impl Pem {
    /// Errors name the place.
    pub fn new(bytes: Vec<u8>, place: impl ToString) -> Self {
        Self { bytes, place: place.to_string() }
    }

    /// The authorities to trust.
    ///
    /// # Errors
    /// When the text has no certificate, or one that cannot be used.
    pub fn roots(&self) -> Result<Arc<RootCertStore>, PemError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(error.to_string()))?;
        }
        Ok(Arc::new(roots))
    }

    /// The certificate chain in this text, with the key that belongs to it.
    ///
    /// # Errors
    /// When one of them cannot be used, or they are not a pair.
    pub fn with_key(&self, key: &Self) -> Result<CertifiedKey, PemError> {
        let chain = self.certificates()?;
        let secret = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => PemError::NoKey(key.place.clone()),
            other => key.damaged(&other),
        })?;
        CertifiedKey::from_der(chain, secret, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                PemError::KeyMismatch { cert: self.place.clone(), key: key.place.clone() }
            }
            Error::InvalidCertificate(why) => self.unusable(why.to_string()),
            _ => key.unusable("it is not an RSA, ECDSA or Ed25519 key that TLS can use".to_owned()),
        })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Vec<_> = CertificateDer::pem_slice_iter(&self.bytes)
            .collect::<Result<_, _>>()
            .map_err(|error| self.damaged(&error))?;
        if found.is_empty() {
            return Err(PemError::NoCertificate(self.place.clone()));
        }
        Ok(found)
    }

    /// The parser's own text would quote the file, and the file may be a private key.
    fn damaged(&self, error: &pem::Error) -> PemError {
        let reason = match error {
            pem::Error::MissingSectionEnd { .. } => "a PEM section has no END line",
            pem::Error::IllegalSectionStart { .. } => "a PEM section has a malformed BEGIN line",
            pem::Error::Base64Decode(_) => "a PEM section is not base64",
            _ => "it is not PEM",
        };
        self.unusable(reason.to_owned())
    }

    fn unusable(&self, reason: String) -> PemError {
        PemError::Unusable { place: self.place.clone(), reason }
    }
}

/// The cryptography that all configurations use.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The dialing side: trusts these authorities, and shows a certificate if it has one.
#[must_use]
pub fn client_config(
    roots: Arc<RootCertStore>,
    identity: Option<Arc<dyn ResolvesClientCert>>,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .expect(HAS_SUITES)
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(identity),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// The accepting side: shows this certificate, and demands what the verifier does.
#[must_use]
pub fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    identity: Arc<SingleCertAndKey>,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(VERSIONS)
        .expect(HAS_SUITES)
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(identity);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Demands a certificate that one of these authorities signed.
#[must_use]
pub fn client_verifier(roots: Arc<RootCertStore>) -> Arc<dyn ClientCertVerifier> {
    WebPkiClientVerifier::builder_with_provider(roots, provider())
        .build()
        .expect("there is a root, and no revocation list to be wrong")
}

/// Sends what rustls has for the socket. Returns whether the socket took all of it.
///
/// # Errors
/// Any error of the socket except `WouldBlock`.
pub fn flush(conn: &mut Connection, socket: &mut impl io::Write) -> io::Result<bool> {
    while conn.wants_write() {
        match conn.write_tls(socket) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads from the socket once, and decrypts. Returns zero at the end of the connection.
///
/// # Errors
/// Any error of the socket, `WouldBlock` included. An error of TLS is `InvalidData`; the other side
/// gets an alert.
pub fn receive(
    conn: &mut Connection,
    socket: &mut (impl io::Read + io::Write),
) -> io::Result<usize> {
    let count = conn.read_tls(socket)?;
    if let Err(error) = conn.process_new_packets() {
        // The caller needs the reason more than whether the alert was sent.
        let _sent = flush(conn, socket);
        return Err(io::Error::new(ErrorKind::InvalidData, error));
    }
    Ok(count)
}
