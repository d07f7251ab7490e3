//! Certificates made on the spot, so that no test depends on one that can expire.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::CertificateParams as Params;
use rcgen::{BasicConstraints, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::server::NoClientAuth;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};

use crate::{Pem, client_config, client_verifier, server_config};

/// An authority for tests, with a folder for its files. Panics on every failure.
pub struct Authority {
    /// Has `ca.pem`, and is removed with this.
    pub folder: PathBuf,
    /// Signs certificates.
    pub issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Each has the same name and a key of its own.
    #[expect(clippy::new_without_default, reason = "no two of them are equal")]
    pub fn new() -> Self {
        Self::named("authority")
    }

    /// With this name in its certificate.
    pub fn named(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("paxoslease-authority-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = Params::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        let authority = Self { folder, issuer };
        authority.file("ca.pem", &authority.issuer.pem());
        authority
    }

    /// Writes a file that only this user can read.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
        path
    }

    /// A certificate for these names, as `change` wants it, and its key; both as PEM.
    pub fn sign(&self, names: &[&str], change: impl FnOnce(&mut Params)) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = Params::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    /// Like [`Self::sign`], as files: the certificate, its key and the authority.
    pub fn files(&self, names: &[&str], change: impl FnOnce(&mut Params)) -> [PathBuf; 3] {
        let (cert, key) = self.sign(names, change);
        let file = |kind: &str, text: &str| self.file(&format!("{}.{kind}", names[0]), text);
        [file("pem", &cert), file("key", &key), self.folder.join("ca.pem")]
    }

    fn roots(&self) -> Arc<rustls::RootCertStore> {
        Pem::new(self.issuer.pem().into_bytes(), "a test").roots().expect("a root")
    }

    /// A client that trusts this authority and shows a certificate if it has one.
    pub fn client(&self, identity: Option<(String, String)>) -> Arc<ClientConfig> {
        client_config(self.roots(), identity.map(|signed| pair(signed) as _))
    }

    /// A server for these names. If `mutual`, it demands a certificate of this authority.
    pub fn server(&self, names: &[&str], mutual: bool) -> Arc<ServerConfig> {
        let verifier =
            if mutual { client_verifier(self.roots()) } else { Arc::new(NoClientAuth) as _ };
        server_config(verifier, pair(self.sign(names, |_| {})))
    }
}

fn pair((cert, key): (String, String)) -> Arc<SingleCertAndKey> {
    let [cert, key] = [cert, key].map(|text| Pem::new(text.into_bytes(), "a test"));
    Arc::new(SingleCertAndKey::from(cert.with_key(&key).expect("a pair")))
}

impl Drop for Authority {
    fn drop(&mut self) {
        // A folder that is left among the temporary files does no harm.
        let _left = fs::remove_dir_all(&self.folder);
    }
}
