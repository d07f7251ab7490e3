//! Checks whether peers will accept this node's own certificate.
//!
//! Peers verify certificates by rustls, as dialers and as acceptors, so this module does the same.
//! Deliberately absent: a parser of certificates. The dates are those that rustls reports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paxoslease_core::NodeId;
use paxoslease_holder::Role;
use paxoslease_tls::{client_verifier, explain_validity, provider};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use super::TlsError;
use super::names::NodeNames;
use crate::config::Tls;

/// Until when peers that trust `roots` accept this certificate from `node` in its role.
pub(super) fn judge(
    chain: &[CertificateDer<'_>],
    names: &NodeNames,
    (node, role): (NodeId, Role),
    files: &Tls,
    roots: &Arc<RootCertStore>,
) -> Result<UnixTime, TlsError> {
    let by_acceptors = client_verifier(Arc::clone(roots));
    let by_dialers = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider())
        .build()
        .expect("there is a root, and no revocation list to be wrong");
    let (own, between) = chain.split_first().expect("a file without certificates is refused");
    let name = names.of(node, role);
    let verify = |at: UnixTime| {
        by_dialers.verify_server_cert(own, between, &name, &[], at)?;
        by_acceptors.verify_client_cert(own, between, at).map(drop)
    };
    let explained = |error| explain(&error, || names.text(node, role), files);
    verify(UnixTime::now()).map_err(explained)?;
    if !names.is_of(own, node, role) {
        let reason =
            "it is valid for every node of the cell, by a wildcard; give each node its own";
        return Err(refused(&files.cert, reason.to_owned()));
    }
    // For a time that is too late, rustls reports the end of a certificate: first of the node's own
    // one, then of an intermediate one that ends earlier.
    let mut until = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    while let Err(Error::InvalidCertificate(CertificateError::ExpiredContext {
        not_after, ..
    })) = verify(until)
    {
        until = not_after;
    }
    Ok(until)
}

fn explain(error: &Error, name: impl FnOnce() -> String, Tls { cert, ca, .. }: &Tls) -> TlsError {
    use CertificateError as Cert;
    let Error::InvalidCertificate(why) = error else {
        return refused(cert, format!("{error}; make a new one"));
    };
    let reason = match why {
        Cert::NotValidForName | Cert::NotValidForNameContext { .. } => {
            return TlsError::OtherNode { cert: cert.clone(), name: name() };
        }
        // An authority of the same name with another key leads to a bad signature.
        Cert::UnknownIssuer | Cert::BadSignature => format!(
            "no authority in {} has signed it; use those made together, and while an authority is \
             replaced, keep both in that file",
            ca.display()
        ),
        Cert::InvalidPurpose | Cert::InvalidPurposeContext { .. } => {
            "it must allow both server and client authentication; make a new one".to_owned()
        }
        other => explain_validity(other).unwrap_or_else(|| format!("{other}; make a new one")),
    };
    refused(cert, reason)
}

fn refused(cert: &Path, reason: String) -> TlsError {
    TlsError::Refused { cert: cert.to_owned(), reason }
}
