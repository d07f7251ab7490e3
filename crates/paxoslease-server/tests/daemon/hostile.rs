//! Clients that do harm, beside one that does not: the daemon refuses and counts what they do,
//! bounds what it keeps for them, and goes on serving the other.
//!
//! How fast it serves the other is measured elsewhere (`cargo xtask bench hostile`).

mod clients;
mod requests;

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::Cell;

impl Cell {
    /// Acquires and releases a lease through every daemon.
    fn serves(&self) {
        for daemon in &self.0 {
            let lease = daemon.node().acquire("served", Duration::from_secs(10)).blocking();
            lease.expect("granted").release_blocking().expect("released");
        }
    }

    /// Where a daemon listens for peers.
    fn peers(&self, node: usize) -> SocketAddr {
        let status = self[(node + 1) % self.0.len()].status();
        let id = self[node].node().id();
        let found = status.peers.iter().find(|peer| peer.node == id).expect("a member");
        found.address.as_deref().expect("known").parse().expect("an IP address and a port")
    }
}
