//! A cell of three, what it has counted, and a peer that says whatever it is told to.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use paxoslease_core::{Drift, Message, NodeId, Ttl};
use paxoslease_node::Config;
use paxoslease_wire::{CellName, FrameWriter, Hello, ShardId, VERSION};

use crate::cell::{self, Cell};

/// How long a test waits for what must come. Never what it waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that belongs to the cell, and only proposes.
pub(crate) const PROPOSER: u16 = 9;

/// What all nodes of this process together have dropped, by reason. Other tests may add to it, so
/// there is only "so many more".
fn counted(reason: &str) -> u64 {
    static TOTALS: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let mut totals = TOTALS.lock().unwrap_or_else(PoisonError::into_inner);
    // Whoever looks takes what is new, also for others.
    for (key, _, _, value) in recorder().snapshot().into_vec() {
        let key = key.key();
        let label = key.labels().next().filter(|label| label.key() == "reason");
        if let (Some(label), DebugValue::Counter(count)) = (label, value) {
            *totals.entry(label.value().to_owned()).or_default() += count;
        }
    }
    totals.get(reason).copied().unwrap_or_default()
}

fn recorder() -> &'static Snapshotter {
    static RECORDER: OnceLock<Snapshotter> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        recorder.install().expect("the only one in this process");
        snapshotter
    })
}

/// Three nodes of one shard each, which are counted.
pub(crate) fn start(with: impl Fn(Config) -> Config) -> Cell {
    recorder();
    cell::start(3, |config| with(config.shards(1)))
}

/// What is dropped for a reason, from now on.
pub(crate) struct Drops(&'static str, u64);

impl Drops {
    pub(crate) fn of(reason: &'static str) -> Self {
        Self(reason, counted(reason))
    }

    /// Waits until so many more were dropped.
    pub(crate) fn wait_for(&self, more: u64) {
        while counted(self.0) < self.1 + more {
            std::thread::yield_now();
        }
    }
}

impl Cell {
    /// Whether somebody who does no harm gets a lease and gives it back, at every node.
    pub(crate) fn serves(&self) {
        for node in &self.nodes {
            let lease = node.acquire("served", Duration::from_secs(10)).blocking();
            lease.expect("granted").release_blocking().expect("released");
        }
    }

    /// The greeting that lets a node in.
    pub(crate) fn hello(&self, node: u16, boot: u64) -> Vec<u8> {
        let config = cell::config(&self.addresses, 1);
        let members: Vec<NodeId> = (1..=self.nodes.len() as u16).map(node_id).collect();
        let drift = Drift::new(config.clock_drift_ppm, config.clock_granularity);
        let max_lease = Ttl::from_duration(config.max_lease).expect("in bounds");
        let drift = drift.expect("in bounds");
        let hello = Hello {
            version: VERSION,
            cell_name: CellName::new(&config.cell).expect("in bounds"),
            cell: paxoslease_core::Cell::new(&members, max_lease, drift).expect("a cell"),
            node: node_id(node),
            boot,
            shard: ShardId::WHOLE,
        };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        bytes
    }

    /// A proposer that the first node has let in.
    pub(crate) fn proposer(&self, boot: u64) -> Peer<TcpStream> {
        let mut peer = self.stranger();
        peer.say(&self.hello(PROPOSER, boot));
        let greeting = peer.hear();
        assert!(Hello::decode(&greeting).is_ok(), "{greeting:?}");
        peer
    }

    /// Somebody at the door of the first node.
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

pub(crate) fn node_id(id: u16) -> NodeId {
    NodeId::new(id).expect("in bounds")
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
    /// Says so; whether all of it was taken. Who is hung up on cannot finish.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).is_ok()
    }

    /// One whole frame.
    pub(crate) fn hear(&mut self) -> Vec<u8> {
        let mut frame = vec![0; 4];
        self.0.read_exact(&mut frame).expect("a frame comes");
        let len = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]);
        frame.resize(4 + len as usize, 0);
        self.0.read_exact(&mut frame[4..]).expect("all of it");
        frame
    }

    /// Listens until the node hangs up.
    pub(crate) fn is_hung_up_on(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
                    ) =>
                {
                    return;
                }
                Err(error) => panic!("it does not hang up: {error}"),
            }
        }
    }
}

impl Peer<TcpStream> {
    pub(crate) fn end(&self) {
        // Hung up on already, perhaps.
        let _hung_up = self.0.shutdown(Shutdown::Write);
    }
}
