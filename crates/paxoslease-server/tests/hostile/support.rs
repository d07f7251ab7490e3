//! A cell, somebody who behaves, and somebody who speaks in bytes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

#[path = "../cell/mod.rs"]
mod cell;

pub(crate) use cell::Cell;

/// How long a test waits for what must come. Never what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Cell {
    pub(crate) fn http(&self, node: usize) -> SocketAddr {
        self.servers[node].http().expect("listens")
    }

    pub(crate) fn peers(&self, node: usize) -> SocketAddr {
        let other = &self.servers[(node + 1) % self.servers.len()];
        let status = paxoslease_node::block_on(other.node().status()).expect("runs");
        let id = self.servers[node].node().id();
        let found = status.peers.iter().find(|peer| peer.node == id).expect("a member");
        found.address.as_deref().expect("of a member").parse().expect("bound to a number")
    }

    /// Whether somebody who does no harm gets a lease and gives it back, at every node.
    pub(crate) fn serves(&self) {
        for node in 0..self.servers.len() {
            let node = self.servers[node].node();
            let lease = node.acquire("served", Duration::from_secs(10)).blocking();
            lease.expect("granted").release_blocking().expect("released");
        }
    }

    /// Waits until a node has refused so much by this limit.
    pub(crate) fn wait_for_limit(&self, node: usize, limit: &str, least: u32) {
        let series = format!("paxoslease_limited_total{{limit=\"{limit}\"}}");
        self.wait_for_metric(node, &series, f64::from(least));
    }
}

/// A connection that says whatever it is told to.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("connects");
        socket.set_nodelay(true).expect("an option of every socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket.set_write_timeout(Some(PATIENCE)).expect("not zero");
        Self(socket)
    }

    /// Says so; whether all of it was taken. Who is hung up on cannot finish.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Says it so often; whether all of it was taken, before nothing was for a while.
    pub(crate) fn stuff(&mut self, bytes: &[u8], times: usize) -> bool {
        self.0.set_write_timeout(Some(Duration::from_secs(1))).expect("not zero");
        (0..times).all(|_| self.0.write_all(bytes).is_ok())
    }

    pub(crate) fn end(&self) {
        // Hung up on already, perhaps.
        let _hung_up = self.0.shutdown(Shutdown::Write);
    }

    /// All that comes until the other side hangs up.
    pub(crate) fn hear_out(&mut self) -> String {
        let mut heard = Vec::new();
        match self.0.read_to_end(&mut heard) {
            Ok(_) => {}
            // It had not read all that was said to it.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("it does not hang up: {error}"),
        }
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// What comes next, up to so many bytes.
    pub(crate) fn hear(&mut self, len: usize) -> Vec<u8> {
        let mut heard = vec![0; len];
        let len = self.0.read(&mut heard).expect("something comes");
        heard.truncate(len);
        heard
    }
}
