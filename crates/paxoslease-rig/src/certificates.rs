//! Certificates for nodes with TLS, made by `paxoslease certs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

/// The certificates of a cell on loopback, in a folder.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes certificates for the nodes 1 to `nodes` of a cell.
    pub fn make(binary: &Path, cell: &str, nodes: usize, folder: PathBuf) -> Result<Self> {
        let mut command = Command::new(binary);
        command
            .args(["certs", "--cell", cell, "--nodes", &nodes.to_string(), "--out"])
            .arg(&folder);
        let made = command.output()?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(Self { folder })
    }

    /// Adds the options of `paxoslease serve` for this node; `clients` is the value of
    /// `--tls-clients`.
    pub fn add_options(&self, command: &mut Command, node: usize, clients: &str) {
        let own = [format!("node-{node}.pem"), format!("node-{node}-key.pem"), "ca.pem".into()];
        for (option, file) in ["--tls-cert", "--tls-key", "--tls-ca"].iter().zip(own) {
            command.arg(option).arg(self.folder.join(file));
        }
        command.args(["--tls-clients", clients]);
    }

    /// The certificate of the authority that signed all others.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }
}
