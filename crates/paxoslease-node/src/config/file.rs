//! The keys of a node's configuration.

use std::path::PathBuf;

use super::document::{Document, TomlError};
use super::{Config, Limits, Tls};

impl Config {
    /// Reads the node's settings from a document. A program with settings of its own takes those
    /// out first, because the document must have no other keys left.
    ///
    /// # Errors
    /// When a key is unknown, or its value does not suit it.
    pub fn from_document(mut document: Document<'_>) -> Result<Self, TomlError> {
        let mut config = Self::new("", 0);
        document.read("cell", &mut config.cell)?;
        document.read("node", &mut config.node)?;
        document.read("role", &mut config.role)?;
        document.read("max_lease", &mut config.max_lease)?;
        document.read("clock_drift_ppm", &mut config.clock_drift_ppm)?;
        document.read("clock_granularity", &mut config.clock_granularity)?;
        document.read("durable_leases", &mut config.durable_leases)?;
        document.read("data_dir", &mut config.data_dir)?;
        document.read("shards", &mut config.shards)?;
        document.read("spin", &mut config.spin)?;
        document.read_peers(&mut config.peers)?;
        document.read("listen.peers", &mut config.listen.peers)?;
        document.read("listen.allow_plaintext", &mut config.listen.allow_plaintext)?;
        let tls_at = document.first_of("tls.").unwrap_or(0);
        let (mut cert, mut key, mut ca) = (None::<PathBuf>, None::<PathBuf>, None::<PathBuf>);
        document.read("tls.cert", &mut cert)?;
        document.read("tls.key", &mut key)?;
        document.read("tls.ca", &mut ca)?;
        document.read("timing.request_timeout", &mut config.timing.request_timeout)?;
        document.read("timing.attempt_timeout", &mut config.timing.attempt_timeout)?;
        document.read("timing.heartbeat", &mut config.timing.heartbeat)?;
        document.read("timing.peer_timeout", &mut config.timing.peer_timeout)?;
        config.limits.read(&mut document)?;
        document.finish()?;
        // After the unknown keys: a misspelt key is the more helpful error.
        let missing = |key| {
            let problem = format!("`tls.{key}` is missing; give `cert`, `key` and `ca`, or none");
            Err(document.error_at(tls_at, problem))
        };
        config.tls = match (cert, key, ca) {
            (Some(cert), Some(key), Some(ca)) => Some(Tls { cert, key, ca }),
            (None, None, None) => None,
            (None, _, _) => return missing("cert"),
            (_, None, _) => return missing("key"),
            (_, _, None) => return missing("ca"),
        };
        Ok(config)
    }
}

impl Limits {
    /// Reads the node's keys of the table `[limits]`.
    ///
    /// # Errors
    /// When a value does not suit its key.
    pub fn read(&mut self, document: &mut Document<'_>) -> Result<(), TomlError> {
        document.read("limits.leases", &mut self.leases)?;
        document.read("limits.names_bytes", &mut self.names_bytes)?;
        document.read("limits.durable", &mut self.durable)?;
        document.read("limits.waiters", &mut self.waiters)?;
        document.read("limits.inflight", &mut self.inflight)?;
        document.read("limits.peer_queue_bytes", &mut self.peer_queue_bytes)
    }
}
