//! A cell of three, its counters, and a peer that sends any bytes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};

use paxoslease_core::Message;
use paxoslease_node::Config;
use paxoslease_wire::{FrameWriter, Hello};

use crate::cell::{self, Cell, PATIENCE, metrics, node_id, take, until};

/// A node that belongs to the cell, and only proposes.
pub(crate) const PROPOSER: u16 = 9;

/// How often all nodes of this process have dropped something for a reason. Other tests may add to
/// it, so a test can only wait for a number of further drops.
fn counted(reason: &str) -> f64 {
    static TOTALS: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    for (key, count) in metrics() {
        if let Some((_, reason)) = key.trim_end_matches('}').split_once("{reason=") {
            *totals.entry(reason.to_owned()).or_default() += count;
        }
    }
    totals.get(reason).copied().unwrap_or_default()
}

/// Three nodes of one shard each, whose drops are counted.
pub(crate) fn start() -> Cell {
    start_with(|config| config)
}

pub(crate) fn start_with(with: impl Fn(Config) -> Config) -> Cell {
    metrics();
    cell::start(3, |config| with(config.shards(1)))
}

/// The drops for a reason from now on.
pub(crate) struct Drops(&'static str, f64);

impl Drops {
    pub(crate) fn of(reason: &'static str) -> Self {
        Self(reason, counted(reason))
    }

    pub(crate) fn wait_for(&self, more: u32) {
        let Self(reason, before) = *self;
        until(&format!("{more} drops: {reason}"), || counted(reason) >= before + f64::from(more));
    }
}

impl Cell {
    /// Checks that an honest client gets a lease at every node.
    pub(crate) fn serves(&self) {
        for node in &self.nodes {
            take(node, "served").release_blocking().expect("released");
        }
    }

    /// A valid greeting of a node.
    pub(crate) fn hello(&self, node: u16, boot: u64) -> Vec<u8> {
        cell::hello(&cell::config(&self.addresses, node), boot, 1)
    }

    /// A proposer that the first node has greeted.
    pub(crate) fn greeted(&self, boot: u64) -> Peer<TcpStream> {
        let mut peer = self.stranger();
        peer.send(&self.hello(PROPOSER, boot));
        let greeting = peer.receive();
        assert!(Hello::decode(&greeting).is_ok(), "{greeting:?}");
        peer
    }

    /// A connection to the first node, without a greeting.
    pub(crate) fn stranger(&self) -> Peer<TcpStream> {
        Peer(connect(&self.addresses[0]))
    }
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let socket = TcpStream::connect(address).expect("connects");
    socket.set_nodelay(true).expect("an option of every socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    socket.set_write_timeout(Some(PATIENCE)).expect("not zero");
    socket
}

/// One frame of messages.
pub(crate) fn frame<'a>(from: u16, messages: impl IntoIterator<Item = Message<'a>>) -> Vec<u8> {
    let mut writer = FrameWriter::new(node_id(from));
    for message in messages {
        assert!(writer.push(&message), "there is room for it");
    }
    writer.finish(1).to_vec()
}

/// The other end of a connection to a node.
pub(crate) struct Peer<S>(pub(crate) S);

impl<S: Read + Write> Peer<S> {
    /// Returns whether all bytes were sent: the node may close the connection earlier.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).is_ok()
    }

    /// Reads one whole frame.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        self.0.read_exact(&mut frame).expect("a frame comes");
        let len = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
        frame.resize(4 + len as usize, 0);
        self.0.read_exact(&mut frame[4..]).expect("all of it");
        frame
    }

    /// Sends bytes, and waits until the node closes the connection.
    pub(crate) fn is_refused(&mut self, bytes: &[u8]) {
        self.send(bytes);
        self.is_closed();
    }

    /// Reads until the node closes the connection.
    pub(crate) fn is_closed(&mut self) {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => return,
                Err(error) => panic!("the node does not close the connection: {error}"),
            }
        }
    }
}

impl Peer<TcpStream> {
    pub(crate) fn end(&self) {
        // The node may have closed the connection already.
        let _closed = self.0.shutdown(Shutdown::Write);
    }
}
