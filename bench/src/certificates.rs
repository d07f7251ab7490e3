//! Certificates for nodes that are measured with TLS, made as a user would: `paxoslease certs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Those of a cell on loopback, in a folder.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes them for nodes 1 to `nodes` of a cell.
    ///
    /// # Errors
    /// When `binary` refuses to.
    pub fn make(binary: &Path, cell: &str, nodes: usize, folder: PathBuf) -> Result<Self> {
        let mut command = Command::new(binary);
        command
            .args(["certs", "--cell", cell, "--nodes", &nodes.to_string(), "--out"])
            .arg(&folder);
        let made = command.output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { folder })
    }

    /// Has this node show its own; clients are met in clear unless `clients` says otherwise.
    pub fn show(&self, command: &mut Command, node: usize, clients: &str) {
        let own = [format!("node-{node}.pem"), format!("node-{node}-key.pem"), "ca.pem".into()];
        for (option, file) in ["--tls-cert", "--tls-key", "--tls-ca"].iter().zip(own) {
            command.arg(option).arg(self.folder.join(file));
        }
        command.args(["--tls-clients", clients]);
    }

    /// A client that trusts these nodes and shows nothing of its own.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn trust(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        let ca = self.folder.join("ca.pem");
        roots.add(CertificateDer::from_pem_file(ca).context("no CA was made")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}
